//! How often things may be written.

use std::time::Duration;

use tokio::time::Instant;

use super::plan::Why;

/// Between two writes of one object.
const APART: Duration = Duration::from_secs(5);
/// The same where only the load of the driver changed.
const LOAD_APART: Duration = Duration::from_secs(30);
/// Whoever is gone may be back in a moment: a driver, or a broker that restarts.
const LINGER: Duration = Duration::from_secs(10);

/// What this broker did to an object, and what it waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    written: Option<Instant>,
    /// Somebody else was quicker, or it could not be written.
    not_before: Option<Instant>,
    leftover: Option<Instant>,
}

impl Past {
    /// Whether it may be written now. `turn`: who else removes what is left over before us.
    pub(super) fn is_due(&mut self, why: Option<Why>, turn: u32, now: Instant) -> bool {
        if why != Some(Why::Leftover) {
            self.leftover = None;
        }
        let Some(why) = why else { return false };
        let apart = if why == Why::Load { LOAD_APART } else { APART };
        let rested = self.written.is_none_or(|written| now >= written + apart);
        let lingered = why != Why::Leftover
            || now >= *self.leftover.get_or_insert(now) + LINGER * turn.saturating_add(1);
        rested && lingered && self.not_before.is_none_or(|time| now >= time)
    }

    pub(super) fn written(&mut self, now: Instant) {
        *self = Self { written: Some(now), ..Self::default() };
    }

    pub(super) fn wait(&mut self, now: Instant, pause: Duration) {
        *self = Self { not_before: Some(now + pause), ..Self::default() };
    }

    /// Whether it still says something.
    pub(super) fn matters(&self, now: Instant) -> bool {
        let recent = |time: Instant| now < time + LOAD_APART;
        self.written.is_some_and(recent) || self.waits(now)
    }

    /// Whether it could not be written a moment ago.
    pub(super) fn waits(&self, now: Instant) -> bool {
        self.not_before.is_some_and(|time| now < time)
    }
}

/// So many in a second, and some at once after a quiet time.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: f64,
    most: f64,
    left: f64,
    at: Instant,
}

impl Bucket {
    pub(super) fn new(rate: u32, burst: u32) -> Self {
        let most = f64::from(burst);
        Self { rate: rate.into(), most, left: most, at: Instant::now() }
    }

    pub(super) fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * self.rate;
        self.left = (self.left + gained).min(self.most);
        self.at = now;
        let is_enough = self.left >= 1.0;
        if is_enough {
            self.left -= 1.0;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_is_written_now_and_then_whatever_happens() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut past = Past::default();
        assert!(past.is_due(Some(Why::News), 0, at(0)));
        past.written(at(0));
        assert!(!past.is_due(Some(Why::News), 0, at(4)));
        assert!(past.is_due(Some(Why::News), 0, at(5)));
        assert!(!past.is_due(Some(Why::Load), 0, at(29)));
        assert!(past.is_due(Some(Why::Load), 0, at(30)));
        assert!(!past.is_due(None, 0, at(30)));
        past.wait(at(30), Duration::from_secs(2));
        assert!(!past.is_due(Some(Why::News), 0, at(31)));
        assert!(past.is_due(Some(Why::News), 0, at(32)));
    }

    #[test]
    fn who_is_gone_is_waited_for_and_not_all_remove_it_at_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut first, mut second) = (Past::default(), Past::default());
        for past in [&mut first, &mut second] {
            assert!(!past.is_due(Some(Why::Leftover), 0, at(0)));
        }
        assert!(first.is_due(Some(Why::Leftover), 0, at(10)));
        assert!(!second.is_due(Some(Why::Leftover), 1, at(10)));
        assert!(second.is_due(Some(Why::Leftover), 1, at(20)));
        // It was back in between.
        assert!(!first.is_due(None, 0, at(11)));
        assert!(!first.is_due(Some(Why::Leftover), 0, at(12)));
        assert!(!first.is_due(Some(Why::Leftover), 0, at(21)));
    }

    #[test]
    fn a_burst_is_followed_by_a_pace() {
        let start = Instant::now();
        let mut bucket = Bucket::new(2, 10);
        let taken = |bucket: &mut Bucket, now| (0..100).filter(|_| bucket.take(now)).count();
        assert_eq!(taken(&mut bucket, start), 10);
        assert_eq!(taken(&mut bucket, start + Duration::from_secs(1)), 2);
        assert_eq!(taken(&mut bucket, start + Duration::from_secs(100)), 10);
    }
}
