//! How many of those who were refused get a line in the log and in the audit log: whoever is refused
//! again and again must not fill the disk, nor push out what others did.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use crate::{
    audit::{Audit, Event, Outcome, Record},
    auth::Caller,
};

/// How often those that got no line are summed up in one.
const SUM_UP_EVERY: Duration = Duration::from_secs(1);

/// Cheap to clone: every clone is the same.
#[derive(Clone, Debug)]
pub struct Refusals(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Apart, so that a flood of strangers does not hide what somebody known tried.
    strangers: DefaultDirectRateLimiter,
    known: DefaultDirectRateLimiter,
    untold: AtomicU64,
}

impl Refusals {
    /// So many lines in a second about strangers, and as many about others.
    pub fn new(lines: u32) -> Self {
        let quota = Quota::per_second(NonZeroU32::new(lines).unwrap_or(NonZeroU32::MIN));
        Self(Arc::new(Shared {
            strangers: RateLimiter::direct(quota),
            known: RateLimiter::direct(quota),
            untold: AtomicU64::new(0),
        }))
    }

    /// Whether there is to be a line about the refusal of this caller. If not it is counted.
    #[must_use = "a refusal without a line is not told"]
    pub fn tell(&self, caller: &Caller) -> bool {
        self.within(if caller.is_anonymous() { &self.0.strangers } else { &self.0.known })
    }

    /// The same about someone who never got to say who it is.
    #[must_use = "a refusal without a line is not told"]
    pub fn tell_of_stranger(&self) -> bool {
        self.within(&self.0.strangers)
    }

    fn within(&self, limiter: &DefaultDirectRateLimiter) -> bool {
        let told = limiter.check().is_ok();
        if !told {
            self.0.untold.fetch_add(1, Ordering::Relaxed);
        }
        told
    }

    /// Says how many there were without a line, for as long as the broker runs and once at its end.
    pub async fn sum_up(self, audit: Audit, stopped: CancellationToken) {
        let mut ticks = interval(SUM_UP_EVERY);
        while stopped.run_until_cancelled(ticks.tick()).await.is_some() {
            self.sum_up_once(&audit);
        }
        self.sum_up_once(&audit);
    }

    fn sum_up_once(&self, audit: &Audit) {
        let untold = self.0.untold.swap(0, Ordering::Relaxed);
        if untold > 0 {
            tracing::warn!(more = untold, "refused without a line each: there are too many");
            audit.write(|| Record {
                lines: Some(untold),
                ..Record::new(Event::RefusalsUntold, Outcome::Denied)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{auth::Auth, driver::ConnectionId};

    #[test]
    fn a_flood_of_strangers_is_summed_up_and_does_not_hide_who_is_known() {
        let refusals = Refusals::new(10);
        let told = (0..10_000).filter(|_| refusals.tell_of_stranger()).count();
        // Some come back while this runs, but few.
        assert!((10..1_000).contains(&told), "{told}");
        assert_eq!(refusals.0.untold.load(Ordering::Relaxed) as usize, 10_000 - told);
        let caller = Auth::without_token(ConnectionId(1), "here".into(), None).unwrap();
        while refusals.tell(&caller) {}
        assert!(refusals.within(&refusals.0.known));
    }
}
