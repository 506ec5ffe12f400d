//! Who is there, as far as renewals of Leases show. Pure.
//!
//! As with the leader election of Kubernetes, nobody's clock is compared with ours: what counts is when
//! we last saw a Lease renewed. While nothing at all is seen, nobody can be judged: the API server is
//! away, or the way to it. Whoever was there then is taken to be there still, and after such a gap
//! everybody has its whole time again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Peer, Report};

/// How long a Lease is good without being renewed.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// How often it is renewed.
pub(super) const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Our own Lease alone brings news more often than this.
const GAP: Duration = Duration::from_secs(9);
/// Whatever a Lease says, it is not believed for longer.
const LONGEST_LEASE: Duration = Duration::from_secs(60);
/// A Lease that nobody has renewed for so long is nobody's: its process is gone, and where names are given
/// once, as those of pods are, nobody will take it over.
const ABANDONED: Duration = Duration::from_secs(10 * 60);

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Presence {
    /// Which replica it is for.
    pub(super) replica: Arc<str>,
    /// Which process of it.
    pub(super) holder: String,
    /// Where drivers reach it.
    pub(super) address: Option<Arc<str>>,
    /// By the holder's clock: only good to see that it changed.
    pub(super) renewed: String,
    pub(super) lasts: Duration,
    pub(super) report: Arc<Report>,
}

/// All Leases that were seen.
#[derive(Debug, Default)]
pub(super) struct Presences {
    seen: BTreeMap<Arc<str>, Seen>,
    /// When anything was last seen.
    contact: Option<Instant>,
}

#[derive(Debug)]
struct Seen {
    presence: Presence,
    /// When we saw that it was renewed.
    at: Instant,
}

impl Presences {
    /// A Lease is there, or changed.
    pub(super) fn put(&mut self, presence: Presence, now: Instant) {
        self.touch(now);
        let at = match self.seen.get(&presence.replica) {
            Some(seen) if seen.presence.is_same_renewal(&presence) => seen.at,
            _ => now,
        };
        self.seen.insert(presence.replica.clone(), Seen { presence, at });
    }

    pub(super) fn remove(&mut self, replica: &str, now: Instant) {
        self.touch(now);
        self.seen.remove(replica);
    }

    /// These are all there are.
    pub(super) fn listed(&mut self, all: Vec<Presence>, now: Instant) {
        self.seen.retain(|replica, _| all.iter().any(|presence| presence.replica == *replica));
        for presence in all {
            self.put(presence, now);
        }
        self.touch(now);
    }

    fn touch(&mut self, now: Instant) {
        let gap = self.contact.is_some_and(|contact| now.duration_since(contact) > GAP);
        if gap {
            for seen in self.seen.values_mut() {
                seen.at = now;
            }
        }
        self.contact = Some(now);
    }

    /// The Leases that we have seen unrenewed for too long, without a gap, and that are not our `own`.
    pub(super) fn abandoned(&self, own: &str) -> Vec<Presence> {
        let Some(contact) = self.contact else { return Vec::new() };
        let is_abandoned = |seen: &&Seen| {
            *seen.presence.replica != *own && contact.duration_since(seen.at) >= ABANDONED
        };
        self.seen.values().filter(is_abandoned).map(|seen| seen.presence.clone()).collect()
    }

    /// All replicas that live, but `own`. Of two at one address, the one that was seen last.
    pub(super) fn live(&self, own: &str) -> Vec<Peer> {
        let Some(contact) = self.contact else { return Vec::new() };
        let alive = |seen: &&Seen| {
            *seen.presence.replica != *own
                && contact.duration_since(seen.at) < seen.presence.lasts()
        };
        let mut alive: Vec<&Seen> = self.seen.values().filter(alive).collect();
        alive.sort_by_key(|seen| std::cmp::Reverse(seen.at));
        let mut peers: Vec<Peer> = Vec::new();
        for seen in alive {
            let Some(address) = &seen.presence.address else { continue };
            if !peers.iter().any(|peer| peer.address == *address) {
                peers.push(Peer {
                    id: Some(seen.presence.replica.clone()),
                    address: address.clone(),
                    report: seen.presence.report.clone(),
                });
            }
        }
        peers
    }
}

impl Presence {
    pub(super) fn is_same_renewal(&self, other: &Presence) -> bool {
        (&self.holder, &self.renewed) == (&other.holder, &other.renewed)
    }

    fn lasts(&self) -> Duration {
        self.lasts.min(LONGEST_LEASE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn presence(replica: &str, renewal: u64) -> Presence {
        Presence {
            replica: replica.into(),
            holder: format!("{replica}_1"),
            address: Some(format!("{replica}:1").into()),
            renewed: renewal.to_string(),
            lasts: LEASE,
            report: Arc::default(),
        }
    }

    fn ids(presences: &Presences) -> Vec<String> {
        let mut ids: Vec<_> = presences
            .live("own")
            .iter()
            .map(|peer| peer.id.as_ref().unwrap().to_string())
            .collect();
        ids.sort();
        ids
    }

    /// Time as we see it.
    struct Clock(Instant);

    impl Clock {
        fn after(&self, seconds: u64) -> Instant {
            self.0 + Duration::from_secs(seconds)
        }
    }

    #[tokio::test]
    async fn who_renews_lives_and_who_does_not_is_gone_when_its_time_is_over() {
        let clock = Clock(Instant::now());
        let mut presences = Presences::default();
        presences.listed(vec![presence("a", 0), presence("b", 0), presence("own", 0)], clock.0);
        assert_eq!(ids(&presences), ["a", "b"]);
        for second in [5, 10, 14] {
            presences.put(presence("own", second), clock.after(second));
            presences.put(presence("a", second), clock.after(second));
            assert_eq!(ids(&presences), ["a", "b"], "after {second} s");
        }
        presences.put(presence("own", 15), clock.after(15));
        assert_eq!(ids(&presences), ["a"]);
        presences.put(presence("b", 16), clock.after(16));
        assert_eq!(ids(&presences), ["a", "b"], "it was only slow");
        presences.remove("a", clock.after(17));
        assert_eq!(ids(&presences), ["b"]);
    }

    #[tokio::test]
    async fn what_changes_without_a_renewal_is_no_sign_of_life() {
        let clock = Clock(Instant::now());
        let mut presences = Presences::default();
        presences.listed(vec![presence("a", 0)], clock.0);
        for second in [5, 10, 15] {
            // Somebody labels it.
            presences.put(presence("a", 0), clock.after(second));
        }
        assert_eq!(ids(&presences), Vec::<String>::new());
    }

    #[tokio::test]
    async fn while_the_api_server_is_away_nobody_is_gone_and_then_all_have_their_time_again() {
        let clock = Clock(Instant::now());
        let mut presences = Presences::default();
        presences.listed(vec![presence("a", 0), presence("b", 0)], clock.0);
        // An hour later nobody has been able to renew anything.
        presences.listed(vec![presence("a", 0), presence("b", 0)], clock.after(3600));
        assert_eq!(ids(&presences), ["a", "b"]);
        for second in [5, 10, 15] {
            presences.put(presence("a", second), clock.after(3600 + second));
        }
        assert_eq!(ids(&presences), ["a"], "only one came back");
    }

    #[tokio::test]
    async fn a_lease_is_abandoned_when_it_was_seen_unrenewed_for_ten_minutes_without_a_gap() {
        let clock = Clock(Instant::now());
        let mut presences = Presences::default();
        let abandoned = |presences: &Presences| {
            let abandoned = presences.abandoned("own").into_iter();
            abandoned.map(|presence| presence.replica.to_string()).collect::<Vec<_>>()
        };
        let nobody = Vec::<String>::new();
        presences.listed(vec![presence("a", 0), presence("dead", 0), presence("own", 0)], clock.0);
        for second in (5..=595).step_by(5) {
            presences.put(presence("a", second), clock.after(second));
            assert_eq!(abandoned(&presences), nobody, "after {second} s");
        }
        // The API server was away for ten seconds: who knows what was not seen.
        presences.listed(vec![presence("a", 0), presence("dead", 0)], clock.after(605));
        assert_eq!(abandoned(&presences), nobody);
        for second in (610..=1200).step_by(5) {
            presences.put(presence("a", second), clock.after(second));
            assert_eq!(abandoned(&presences), nobody, "after {second} s");
        }
        presences.put(presence("a", 1205), clock.after(1205));
        assert_eq!(abandoned(&presences), ["dead"], "not those that renew, and not our own");
        presences.put(presence("dead", 1206), clock.after(1206));
        assert_eq!(abandoned(&presences), nobody, "it is back");
    }

    #[tokio::test]
    async fn who_is_not_listed_any_more_is_gone() {
        let clock = Clock(Instant::now());
        let mut presences = Presences::default();
        presences.listed(vec![presence("a", 0), presence("b", 0)], clock.0);
        presences.listed(vec![presence("b", 0)], clock.after(1));
        assert_eq!(ids(&presences), ["b"]);
    }

    #[tokio::test]
    async fn of_two_at_one_address_the_newer_one_is_there() {
        let clock = Clock(Instant::now());
        let mut presences = Presences::default();
        let address = Some("same:1".into());
        presences.put(Presence { address: address.clone(), ..presence("z", 0) }, clock.0);
        presences.put(Presence { address, ..presence("a", 0) }, clock.after(1));
        presences.put(Presence { address: None, ..presence("lost", 0) }, clock.after(1));
        assert_eq!(ids(&presences), ["a"]);
    }

    proptest! {
        /// Whatever else happens: who renews often enough is there, and who stopped is gone once others
        /// were seen for its time.
        #[test]
        fn nobody_is_gone_who_renews_and_nobody_stays_who_does_not(
            pauses in proptest::collection::vec(1u64..8, 1..60),
            stops_after in 0usize..30,
        ) {
            let clock = Clock(Instant::now());
            let mut presences = Presences::default();
            presences.listed(vec![presence("lives", 0), presence("stops", 0)], clock.0);
            let (mut now, mut stopped_at) = (0, 0);
            for (turn, pause) in pauses.into_iter().enumerate() {
                now += pause;
                presences.put(presence("lives", now), clock.after(now));
                if turn < stops_after {
                    presences.put(presence("stops", now), clock.after(now));
                    stopped_at = now;
                }
                let ids = ids(&presences);
                prop_assert!(ids.iter().any(|id| id == "lives"));
                let gone = now - stopped_at >= LEASE.as_secs();
                prop_assert_eq!(ids.iter().any(|id| id == "stops"), !gone);
            }
        }
    }
}
