//! What is measured of the broker, and whether it grows.

use std::fmt;

/// One quiet moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) seconds: u64,
    pub(super) round: usize,
    /// The process's number.
    pub(super) broker: u32,
    pub(super) calls: usize,
    pub(super) failed: usize,
    pub(super) faults: usize,
    pub(super) wrong: usize,
    pub(super) rss_kib: u64,
    pub(super) fds: u64,
    pub(super) threads: u64,
    pub(super) tasks: u64,
}

impl Sample {
    pub(super) const HEADER: &str =
        "seconds\tround\tbroker\tcalls\tfailed\tfaults\twrong\trss_kib\tfds\tthreads\ttasks";
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, round, broker, calls, failed, faults, wrong, .. } = self;
        let Self { rss_kib, fds, threads, tasks, .. } = self;
        write!(f, "{seconds}\t{round}\t{broker}\t{calls}\t{failed}\t{faults}\t{wrong}\t")?;
        write!(f, "{rss_kib}\t{fds}\t{threads}\t{tasks}")
    }
}

/// From the second quarter of the samples to the last, by their medians: the first quarter is for
/// warming up, and one odd sample does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    rss_kib: i64,
    rss_allowed_kib: i64,
    fds: i64,
    tasks: i64,
}

/// An allocator gives back what it likes. So memory may differ by so much of it,
const RSS_SHARE: i64 = 10;
/// and by this.
const RSS_KIB: i64 = 2048;
/// Quiet is not silence: a connection or a timer's task may be between two states.
const FDS: i64 = 2;
const TASKS: i64 = 4;

pub(super) fn growth(samples: &[Sample]) -> Growth {
    let (all, quarter) = (samples.len(), samples.len() / 4);
    let early = &samples[quarter..(2 * quarter).max(quarter + 1).min(all)];
    let late = &samples[all.saturating_sub(quarter.max(1))..];
    let grown = |read: fn(&Sample) -> u64| median(late, read) - median(early, read);
    Growth {
        rss_kib: grown(|sample| sample.rss_kib),
        rss_allowed_kib: median(early, |sample| sample.rss_kib) / RSS_SHARE + RSS_KIB,
        fds: grown(|sample| sample.fds),
        tasks: grown(|sample| sample.tasks),
    }
}

fn median(samples: &[Sample], read: fn(&Sample) -> u64) -> i64 {
    let mut values: Vec<_> = samples.iter().map(read).collect();
    values.sort_unstable();
    let median = values.get(values.len() / 2).copied().unwrap_or_default();
    i64::try_from(median).expect("no process is that large")
}

impl Growth {
    pub(super) fn is_flat(self) -> bool {
        self.rss_kib <= self.rss_allowed_kib && self.fds <= FDS && self.tasks <= TASKS
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rss_kib, fds, tasks, .. } = self;
        write!(f, "rss_growth={rss_kib}KiB fds_growth={fds} tasks_growth={tasks}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rss: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |n| Sample { rss_kib: rss(n), fds: 20, tasks: 30, ..Sample::default() };
        (0..20).map(sample).collect()
    }

    #[test]
    fn warming_up_and_an_odd_sample_are_flat() {
        let warm = samples(|n| if n < 4 { 10_000 + n * 1000 } else { 20_000 + (n % 3) * 100 });
        assert!(growth(&warm).is_flat(), "{}", growth(&warm));
        let odd = samples(|n| if n == 18 { 90_000 } else { 20_000 });
        assert!(growth(&odd).is_flat(), "{}", growth(&odd));
        assert!(growth(&[]).is_flat());
        assert!(growth(&odd[..1]).is_flat());
    }

    #[test]
    fn what_goes_on_growing_is_not_flat() {
        let leak = samples(|n| 20_000 + n * 500);
        assert_eq!(growth(&leak).rss_kib, 5000);
        assert!(!growth(&leak).is_flat());
        let mut descriptors = samples(|_| 20_000);
        for (n, sample) in descriptors.iter_mut().enumerate() {
            sample.fds += n as u64;
        }
        assert!(!growth(&descriptors).is_flat());
        let two = [samples(|_| 20_000).remove(0), samples(|_| 40_000).remove(0)];
        assert!(!growth(&two).is_flat());
    }
}
