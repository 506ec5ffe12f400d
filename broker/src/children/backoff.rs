//! How long until an ended program is started again.

use std::time::Duration;

/// Between which times the pauses lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The longest first pause; each one after it may be twice as long…
    pub(super) first: Duration,
    /// …up to this.
    pub(super) longest: Duration,
    /// A program that lived so long was well, and its next end counts as a first one.
    pub(super) well_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            well_after: Duration::from_secs(30),
        }
    }
}

/// Exponential, with full jitter: anything from nothing to the limit, so that programs that ended
/// together do not start together.
#[derive(Debug)]
pub(super) struct Backoff {
    pace: Pace,
    limit: Duration,
}

impl Backoff {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, limit: pace.first }
    }

    /// The pause after a program that lived for `lived`.
    pub(super) fn next(&mut self, lived: Duration) -> Duration {
        if lived >= self.pace.well_after {
            self.limit = self.pace.first;
        }
        let limit = self.limit;
        self.limit = (limit * 2).min(self.pace.longest);
        limit.mul_f64(rand::random::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::ZERO;

    #[test]
    fn pauses_grow_up_to_a_limit_and_start_again_after_a_long_life() {
        let pace = Pace::default();
        let mut backoff = Backoff::new(pace);
        let mut limits = Vec::new();
        for _ in 0..8 {
            let limit = backoff.limit;
            assert!(backoff.next(SHORT) <= limit);
            limits.push(limit.as_millis());
        }
        assert_eq!(limits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert!(backoff.next(pace.well_after) <= pace.first);
        assert_eq!(backoff.limit, pace.first * 2);
    }

    #[test]
    fn no_two_pauses_are_alike() {
        let pauses = [(); 10].map(|()| Backoff::new(Pace::default()).next(SHORT));
        assert!(pauses.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
