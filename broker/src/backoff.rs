//! How long until what ended is tried again: a program, a watch of the API server.

use std::time::Duration;

/// Between which times the pauses lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest first pause; the step of each one after it is twice as long…
    pub(crate) first: Duration,
    /// …up to this.
    pub(crate) longest: Duration,
    /// What lived so long was well, and its next end counts as a first one.
    pub(crate) well_after: Duration,
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

/// Exponential, with equal jitter: anything from half the step to the whole. What ended
/// together does not start together, and yet no pause is shorter than the one before it, so that
/// what cannot even start is not tried again and again.
#[derive(Debug)]
pub(crate) struct Backoff {
    pace: Pace,
    step: Duration,
}

impl Backoff {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, step: pace.first }
    }

    /// The pause after something that lived for `lived`.
    pub(crate) fn next(&mut self, lived: Duration) -> Duration {
        if lived >= self.pace.well_after {
            self.step = self.pace.first;
        }
        let step = self.step;
        self.step = (step * 2).min(self.pace.longest);
        step / 2 + (step / 2).mul_f64(rand::random::<f64>())
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
        for step in [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000] {
            let pause = backoff.next(SHORT);
            let step = Duration::from_millis(step);
            assert!((step / 2..=step).contains(&pause), "{pause:?} of {step:?}");
        }
        assert!(backoff.next(pace.well_after) <= pace.first);
        assert_eq!(backoff.step, pace.first * 2);
    }

    #[test]
    fn no_pause_is_shorter_than_the_one_before_while_they_grow() {
        let mut backoff = Backoff::new(Pace::default());
        let pauses = [(); 6].map(|()| backoff.next(SHORT));
        assert!(pauses.is_sorted(), "{pauses:?}");
    }

    #[test]
    fn no_two_pauses_are_alike() {
        let pauses = [(); 10].map(|()| Backoff::new(Pace::default()).next(SHORT));
        assert!(pauses.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
