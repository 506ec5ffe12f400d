//! How many operations ended lately and how long they took, per verb and kind: a ring of small
//! histograms. Pure.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crate::{driver::Verb, maps::HashMap};

/// The time that one point stands for.
pub const STEP: Duration = Duration::from_secs(5);
/// How many points are kept: five minutes.
pub const STEPS: u64 = 60;
/// How many pairs of verb and kind are told apart; the rest is counted together.
const MOST_SERIES: usize = 64;
const OTHERS: &str = "others";
/// A power of two is parted into so many buckets: a quantile is off by at most an eighth.
const PARTS: u32 = 8;

/// What ended lately. Time is given from outside, as the time since some start.
#[derive(Debug, Default)]
pub struct Pace {
    series: HashMap<(Verb, Arc<str>), VecDeque<Step>>,
    /// The step in which room was last made for another series.
    made_room: u64,
}

/// What ended within one step.
#[derive(Clone, Debug, Default)]
struct Step {
    number: u64,
    count: u64,
    failed: u64,
    /// By bucket; shorter than the number of buckets when none was slow.
    took: Vec<u32>,
}

/// One verb of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub verb: Verb,
    pub kind: Arc<str>,
    /// Over the whole time.
    pub total: Point,
    /// Oldest first. Steps in which nothing ended are left out.
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// How many steps ago; 0 has only begun.
    pub ago: u64,
    pub count: u64,
    pub failed: u64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Pace {
    /// Counts an operation that ended at `now`.
    pub fn count(&mut self, now: Duration, verb: Verb, kind: &Arc<str>, took: Duration, ok: bool) {
        let number = step(now);
        let mut key = (verb, Arc::clone(kind));
        if self.series.len() >= MOST_SERIES && !self.series.contains_key(&key) {
            // Once in a step: with many kinds there is none for most of what is counted.
            if self.made_room < number {
                self.made_room = number;
                self.forget_old(number);
            }
            if self.series.len() >= MOST_SERIES {
                key.1 = OTHERS.into();
            }
        }
        let steps = self.series.entry(key).or_default();
        if steps.back().is_none_or(|last| last.number < number) {
            steps.push_back(Step { number, ..Step::default() });
        }
        while steps.front().is_some_and(|first| first.number + STEPS <= number) {
            steps.pop_front();
        }
        if let Some(last) = steps.back_mut() {
            last.count += 1;
            last.failed += u64::from(!ok);
            let bucket = bucket(took);
            if last.took.len() <= bucket {
                last.took.resize(bucket + 1, 0);
            }
            last.took[bucket] += 1;
        }
    }

    /// What ended within the last [`STEPS`], in the order of kinds and verbs.
    pub fn series(&mut self, now: Duration) -> Vec<Series> {
        let number = step(now);
        self.forget_old(number);
        let mut series: Vec<_> = self
            .series
            .iter()
            .map(|((verb, kind), steps)| {
                let recent = steps.iter().filter(|step| step.number + STEPS > number);
                let total = recent.clone().fold(Step { number, ..Step::default() }, Step::and);
                let points = recent.map(|step| step.point(number)).collect();
                Series { verb: *verb, kind: Arc::clone(kind), total: total.point(number), points }
            })
            .collect();
        series.sort_by(|a, b| (&a.kind, a.verb.as_str()).cmp(&(&b.kind, b.verb.as_str())));
        series
    }

    fn forget_old(&mut self, number: u64) {
        self.series.retain(|_, steps| steps.back().is_some_and(|s| s.number + STEPS > number));
    }
}

impl Step {
    fn and(mut self, other: &Step) -> Step {
        self.count += other.count;
        self.failed += other.failed;
        if self.took.len() < other.took.len() {
            self.took.resize(other.took.len(), 0);
        }
        for (sum, more) in self.took.iter_mut().zip(&other.took) {
            *sum += more;
        }
        self
    }

    fn point(&self, now: u64) -> Point {
        Point {
            ago: now.saturating_sub(self.number),
            count: self.count,
            failed: self.failed,
            p50: self.quantile(50),
            p99: self.quantile(99),
        }
    }

    fn quantile(&self, percent: u64) -> Duration {
        let rank = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let reaches = |count: &u32| {
            seen += u64::from(*count);
            seen >= rank
        };
        self.took.iter().position(reaches).map_or(Duration::ZERO, upper_bound)
    }
}

fn step(now: Duration) -> u64 {
    now.as_secs() / STEP.as_secs()
}

/// The powers of two of microseconds, each in [`PARTS`] parts.
fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    let power = micros.ilog2();
    let part = ((u128::from(micros) * u128::from(PARTS)) >> power) as usize - PARTS as usize;
    power as usize * PARTS as usize + part
}

fn upper_bound(bucket: usize) -> Duration {
    let (power, part) = (bucket / PARTS as usize, bucket % PARTS as usize);
    let micros = ((PARTS as usize + part + 1) as u128) << power;
    Duration::from_micros(u64::try_from(micros / u128::from(PARTS)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn operations_are_counted_by_verb_and_kind_in_steps() {
        let (mut pace, sim, aws) = (Pace::default(), "Sim".into(), "Aws".into());
        pace.count(at(3), Verb::Create, &sim, millis(10), true);
        pace.count(at(4), Verb::Create, &sim, millis(10), false);
        pace.count(at(12), Verb::Create, &sim, millis(10), true);
        pace.count(at(12), Verb::Delete, &aws, millis(10), true);
        let series = pace.series(at(14));
        let names: Vec<_> = series.iter().map(|s| (&*s.kind, s.verb)).collect();
        assert_eq!(names, [("Aws", Verb::Delete), ("Sim", Verb::Create)]);
        let points: Vec<_> = series[1].points.iter().map(|p| (p.ago, p.count, p.failed)).collect();
        assert_eq!(points, [(2, 2, 1), (0, 1, 0)], "the step between them had none");
        assert_eq!((series[1].total.count, series[1].total.failed), (3, 1));
    }

    #[test]
    fn quantiles_are_near_the_truth_whatever_the_scale() {
        for scale in [1, 1_000, 60_000] {
            let (mut pace, kind) = (Pace::default(), "Sim".into());
            for n in 1..=100 {
                pace.count(at(0), Verb::List, &kind, millis(n * scale), true);
            }
            let total = &pace.series(at(0))[0].total;
            for (found, truth) in [(total.p50, 50), (total.p99, 99)] {
                let (found, truth) = (found.as_secs_f64(), millis(truth * scale).as_secs_f64());
                assert!((truth..=truth * 1.13).contains(&found), "{found} for {truth}");
            }
        }
    }

    #[test]
    fn extreme_times_find_a_bucket() {
        for took in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let (mut pace, kind) = (Pace::default(), "Sim".into());
            pace.count(at(0), Verb::List, &kind, took, true);
            assert!(pace.series(at(0))[0].total.p99 >= Duration::from_micros(1));
        }
    }

    #[test]
    fn what_is_older_than_the_ring_is_forgotten() {
        let (mut pace, kind) = (Pace::default(), "Sim".into());
        pace.count(at(0), Verb::List, &kind, millis(1), true);
        assert_eq!(pace.series(at(299))[0].points[0].ago, 59);
        assert_eq!(pace.series(at(300)), []);
        for second in 0..2_000 {
            pace.count(at(second), Verb::List, &kind, millis(1), true);
        }
        let series = pace.series(at(1_999));
        assert_eq!((series[0].points.len(), series[0].total.count), (60, 300));
    }

    #[test]
    fn kinds_without_end_are_counted_together() {
        let mut pace = Pace::default();
        for n in 0..1_000 {
            pace.count(at(0), Verb::List, &format!("Kind{n}").into(), millis(1), true);
        }
        let series = pace.series(at(0));
        assert_eq!(series.len(), MOST_SERIES + 1);
        assert_eq!(series.iter().map(|series| series.total.count).sum::<u64>(), 1_000);
        // Their time passes, and others have theirs.
        pace.count(at(400), Verb::List, &"New".into(), millis(1), true);
        let kinds: Vec<_> = pace.series(at(400)).iter().map(|s| s.kind.to_string()).collect();
        assert_eq!(kinds, ["New"]);
    }
}
