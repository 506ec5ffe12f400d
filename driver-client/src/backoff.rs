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
/// The shortest ceiling of a connection that many wait for. It doubles, too, up to the first one of a
/// driver alone, but not before so many failures: a broker that was restarted is back in a second.
const BASE_OF_MANY: Duration = Duration::from_millis(50);
const FAILURES_OF_MANY: u32 = 32;
const PROOF_OF_HEALTH: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next delay. `lived` is how long the session lasted, zero if there was none; `draw` is
    /// evenly distributed over 0..1.
    pub(crate) fn next(&mut self, lived: Duration, draw: f64) -> Duration {
        self.next_for(1, lived, draw)
    }

    /// The next delay of a connection that so many drivers wait for: they would dial as often all together,
    /// each on its own, and far oftener if they are many.
    pub(crate) fn next_for(&mut self, drivers: usize, lived: Duration, draw: f64) -> Duration {
        if lived >= PROOF_OF_HEALTH {
            self.failures = 0;
        }
        let drivers = u32::try_from(drivers).unwrap_or(u32::MAX).max(1);
        let ceiling = (self.ceiling() / drivers).max(self.least());
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(draw.clamp(0.0, 1.0)).max(FLOOR)
    }

    fn ceiling(&self) -> Duration {
        doubled(BASE, self.failures).min(CAP)
    }

    fn least(&self) -> Duration {
        doubled(BASE_OF_MANY, self.failures / FAILURES_OF_MANY).min(BASE)
    }
}

fn doubled(time: Duration, times: u32) -> Duration {
    time.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX))
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

    #[test]
    fn the_more_wait_for_a_connection_the_sooner_it_is_dialled_again() {
        let ceiling = |failures, drivers| {
            Backoff { failures }.next_for(drivers, Duration::ZERO, 1.0).as_millis()
        };
        assert_eq!([0, 1, 2, 1_000].map(|drivers| ceiling(0, drivers)), [250, 250, 125, 50]);
        assert_eq!([1, 4, 1_000].map(|drivers| ceiling(10, drivers)), [4_000, 1_000, 50]);
        assert_eq!(
            [32, 64, 96, 1_000].map(|failures| ceiling(failures, 1_000)),
            [100, 200, 250, 250]
        );
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
