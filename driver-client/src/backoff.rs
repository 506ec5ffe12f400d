//! How long until we dial again.
//!
//! Full jitter: each delay is drawn evenly between nothing and a ceiling that doubles with every
//! failure, so that a thousand drivers of a restarted broker do not come back in step. A handshake
//! that succeeds and dies at once is a failure too; only a session that lived for a while proves
//! that the broker is well, and resets the ceiling.

use std::time::Duration;

const BASE: Duration = Duration::from_millis(250);
/// Shorter than a broker that was restarted waits for its drivers (`--settle`): whoever is left out
/// cannot say what it still runs.
const CAP: Duration = Duration::from_secs(4);
/// Even the luckiest draw waits this long, so that no loop is ever hot.
const FLOOR: Duration = Duration::from_millis(20);
const PROOF_OF_HEALTH: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next delay. `lived` is how long the session lasted, zero if there was none; `draw` is
    /// evenly distributed over 0..1.
    pub(crate) fn next(&mut self, lived: Duration, draw: f64) -> Duration {
        if lived >= PROOF_OF_HEALTH {
            self.failures = 0;
        }
        let ceiling = self.ceiling();
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(draw.clamp(0.0, 1.0)).max(FLOOR)
    }

    fn ceiling(&self) -> Duration {
        BASE.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(CAP)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let mut backoff = Backoff::default();
        let ceilings: Vec<_> =
            (0..8).map(|_| backoff.next(Duration::ZERO, 1.0).as_millis()).collect();
        assert_eq!(ceilings, [250, 500, 1000, 2000, 4000, 4000, 4000, 4000]);
    }

    #[test]
    fn handshakes_that_die_at_once_keep_it_growing() {
        let mut backoff = Backoff::default();
        for _ in 0..3 {
            backoff.next(Duration::from_secs(2), 1.0);
        }
        assert_eq!(backoff.next(Duration::from_secs(2), 1.0), Duration::from_secs(2));
    }

    #[test]
    fn a_session_that_lived_resets_it() {
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            backoff.next(Duration::ZERO, 1.0);
        }
        assert_eq!(backoff.next(PROOF_OF_HEALTH, 1.0), BASE);
    }

    proptest! {
        #[test]
        fn every_delay_is_between_floor_and_cap(draws in prop::collection::vec((0.0..=1.0, 0_u64..20), 1..100)) {
            let mut backoff = Backoff::default();
            for (draw, lived) in draws {
                let delay = backoff.next(Duration::from_secs(lived), draw);
                prop_assert!(delay >= FLOOR && delay <= CAP);
            }
        }
    }
}
