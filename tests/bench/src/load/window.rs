//! Which operations of a load count.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Either a time that is measured, or a number of operations. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Window(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    opens: Instant,
    /// `None` with a number of operations: it closes when they are done.
    closes: Option<Instant>,
    taken: AtomicU64,
    most: u64,
    done: CancellationToken,
}

impl Window {
    /// So many seconds, after so many that do not count.
    pub(super) fn new(warm_up: f64, seconds: f64) -> Self {
        let opens = Instant::now() + Duration::from_secs_f64(warm_up);
        let closes = opens + Duration::from_secs_f64(seconds);
        Self::with(opens, Some(closes), u64::MAX)
    }

    /// So many operations, from the first on.
    pub(super) fn of(count: u64) -> Self {
        Self::with(Instant::now(), None, count)
    }

    fn with(opens: Instant, closes: Option<Instant>, most: u64) -> Self {
        let done = CancellationToken::new();
        Self(Arc::new(Inner { opens, closes, taken: AtomicU64::new(0), most, done }))
    }

    /// The number of the next operation, as long as there is to be one.
    pub(super) fn next(&self, now: Instant) -> Option<u64> {
        if self.0.closes.is_some_and(|closes| now >= closes) {
            return None;
        }
        let number = self.0.taken.fetch_add(1, Ordering::Relaxed);
        (number < self.0.most).then_some(number)
    }

    /// Whether an operation counts that ended at this time.
    pub(super) fn counts(&self, ended: Instant) -> bool {
        ended >= self.0.opens && self.0.closes.is_none_or(|closes| ended < closes)
    }

    /// How long it is, where that is known beforehand.
    pub(super) fn length(&self) -> Option<Duration> {
        Some(self.0.closes? - self.0.opens)
    }

    pub(super) async fn opened(&self) {
        sleep_until(self.0.opens).await;
    }

    /// All operations are done.
    pub(super) fn close(&self) {
        self.0.done.cancel();
    }

    pub(super) async fn closed(&self) {
        match self.0.closes {
            Some(closes) => sleep_until(closes).await,
            None => self.0.done.cancelled().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_operations_is_given_out_once() {
        let window = Window::of(3);
        let now = Instant::now();
        let numbers: Vec<_> = std::iter::from_fn(|| window.next(now)).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert!(window.counts(now));
        assert_eq!(window.length(), None);
    }

    #[test]
    fn in_a_time_counts_what_ends_in_it() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let window = Window::with(now + second, Some(now + 3 * second), u64::MAX);
        assert!(!window.counts(now));
        assert!(window.counts(now + second));
        assert!(window.counts(now + 2 * second));
        assert!(!window.counts(now + 3 * second));
        assert_eq!(window.next(now + 2 * second), Some(0));
        assert_eq!(window.next(now + 3 * second), None);
        assert_eq!(window.length(), Some(2 * second));
    }
}
