//! Things that may happen so often, and of that one identity may have a part.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use governor::{
    DefaultDirectRateLimiter, DefaultKeyedRateLimiter, NotUntil, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock, Reference},
};
use rand::RngExt as _;

use crate::{auth::Identity, metrics::Metrics};

/// Cheap to clone: every clone is the same pace.
#[derive(Clone, Debug)]
pub struct Pace(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    what: &'static str,
    metrics: Metrics,
    all: DefaultDirectRateLimiter,
    each: DefaultKeyedRateLimiter<Identity>,
}

impl Pace {
    /// After a quiet time so many seconds' worth may happen at once: after a restart all come back.
    pub const BURST: u32 = 5;

    /// `what` happens, as metrics call it: so often in a second, and its `share` for one identity.
    pub fn new(what: &'static str, rate: u32, share: f64, metrics: Metrics) -> Self {
        let quota = |rate: u32| {
            let rate = NonZeroU32::new(rate).unwrap_or(NonZeroU32::MIN);
            let burst = NonZeroU32::new(Self::BURST).expect("not zero");
            Quota::per_second(rate).allow_burst(rate.saturating_mul(burst))
        };
        let each = (f64::from(rate) * share) as u32;
        Self(Arc::new(Shared {
            what,
            metrics,
            all: RateLimiter::direct(quota(rate)),
            each: RateLimiter::keyed(quota(each)),
        }))
    }

    /// Whether it may happen now; if not, when to try again. That differs from one to the next, so that
    /// those who were too many do not return together.
    pub fn check(&self, identity: Option<&Identity>) -> Result<(), Duration> {
        // Its own first, so that a greedy one does not use up what is for all.
        if let Some(identity) = identity
            && let Err(not) = self.0.each.check_key(identity)
        {
            self.0.metrics.beyond_bound(self.0.what, "identity");
            return Err(again(&not));
        }
        self.0.all.check().map_err(|not| {
            self.0.metrics.beyond_bound(self.0.what, "broker");
            again(&not)
        })
    }

    /// Forgets identities that have all of their part.
    pub fn forget_old(&self) {
        self.0.each.retain_recent();
        self.0.each.shrink_to_fit();
    }
}

/// A burst is over after as long as it took to be saved up.
fn again<P: Reference>(not: &NotUntil<P>) -> Duration
where
    DefaultClock: governor::clock::Clock<Instant = P>,
{
    spread(not.wait_time_from(DefaultClock::default().now()))
}

/// From one second after that, to as many as a burst has.
pub(crate) fn spread(wait: Duration) -> Duration {
    let seconds = rand::rng().random_range(1.0..f64::from(Pace::BURST));
    wait + Duration::from_secs_f64(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(rate: u32, share: f64) -> Pace {
        Pace::new("registrations", rate, share, Metrics::default())
    }

    fn identity(name: &str) -> Identity {
        Identity::token(name)
    }

    #[test]
    fn a_greedy_identity_is_slowed_down_and_others_are_not() {
        let pace = pace(2, 0.5);
        let (greedy, other) = (identity("greedy"), identity("other"));
        let refused = (0..1_000).find_map(|_| pace.check(Some(&greedy)).err());
        let after = refused.expect("it cannot be let through a thousand times in its burst");
        assert!(after >= Duration::from_secs(1), "{after:?}");
        pace.check(Some(&other)).expect("the others' part is still there");
        let all = (0..1_000).find_map(|n| pace.check(Some(&identity(&format!("id-{n}")))).err());
        all.expect("all together are slowed down, too");
    }

    #[test]
    fn those_who_were_too_many_do_not_return_together() {
        let pace = pace(1, 1.0);
        while pace.check(None).is_ok() {}
        let mut times: Vec<_> = (0..100).map(|_| pace.check(None).unwrap_err()).collect();
        times.sort_unstable();
        assert!(times[99] - times[0] > Duration::from_secs(1), "{times:?}");
    }

    #[test]
    fn identities_that_are_quiet_are_forgotten() {
        let pace = pace(1_000_000, 1.0);
        for n in 0..100 {
            pace.check(Some(&identity(&format!("id-{n}")))).unwrap();
        }
        // One is saved up again after a microsecond.
        while !pace.0.each.is_empty() {
            pace.forget_old();
        }
    }
}
