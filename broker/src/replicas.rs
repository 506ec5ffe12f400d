//! Which other replicas of this broker there are, and which drivers each of them sees.
//!
//! No replica leads and none is asked before work is done: this is only so that drivers find all of them,
//! and callers the right one. Who is there comes from an explicit list, from [`Leases`] in a cluster, or
//! from both. What was known last stays known while the cluster is away.
//!
//! Everybody reads: the drivers' door for Welcome, the dispatcher for who else has a driver, probes for
//! whether this replica has met the drivers that the others have.

mod claim;
mod leases;
mod presence;
mod report;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use broker_proto::v1;
use tokio::{sync::watch, time::Instant};

pub use self::{leases::Leases, report::Report};
use crate::driver::DriverKey;

/// How long after its start a replica waits for the drivers that others have, before it takes work
/// without them.
const GATHER_FOR: Duration = Duration::from_secs(30);
/// Of replicas that an error names.
const MOST_NAMED: usize = 5;

/// Cheap to clone: every clone is the same.
#[derive(Clone, Debug)]
pub struct Replicas(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    id: Arc<str>,
    /// Where drivers reach this one, if it was told.
    advertised: Option<Arc<str>>,
    sources: Mutex<Sources>,
    peers: watch::Sender<Arc<Peers>>,
    born: Instant,
    /// This replica has met the drivers of the others, or waited long enough.
    gathered: AtomicBool,
}

/// Where replicas are known from.
#[derive(Debug, Default)]
struct Sources {
    /// Addresses of an explicit list.
    listed: Vec<Arc<str>>,
    /// Those with a Lease; `None` while it is not known who has one.
    present: Option<Vec<Peer>>,
    /// Whether there are Leases to wait for.
    expected: bool,
    /// Why the others are not told that this one is here.
    unseen: Option<String>,
    /// Why it is not known who else is here.
    blind: Option<String>,
}

/// The others, at one time.
#[derive(Debug, Default)]
pub struct Peers {
    /// Grows whenever one comes, goes or moves.
    pub revision: u64,
    /// In the order of their addresses, each of which is there once.
    pub peers: Vec<Peer>,
}

/// One other replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// `None` where only the address is known.
    pub id: Option<Arc<str>>,
    /// As host:port.
    pub address: Arc<str>,
    /// The drivers that it has.
    pub report: Arc<Report>,
}

impl Replicas {
    /// A replica that knows of no other. `advertised` is where drivers reach it.
    pub fn new(id: &str, advertised: Option<&str>) -> Self {
        Self(Arc::new(Shared {
            id: id.into(),
            advertised: advertised.map(Into::into),
            sources: Mutex::default(),
            peers: watch::Sender::default(),
            born: Instant::now(),
            gathered: AtomicBool::new(false),
        }))
    }

    pub fn id(&self) -> &Arc<str> {
        &self.0.id
    }

    /// Knows these addresses, instead of those it was told before.
    pub fn list(&self, addresses: impl IntoIterator<Item = impl AsRef<str>>) {
        let listed = addresses.into_iter().map(|address| address.as_ref().into()).collect();
        self.change(|sources| sources.listed = listed);
    }

    /// The others, as they are now.
    pub fn peers(&self) -> Arc<Peers> {
        self.0.peers.borrow().clone()
    }

    /// Changes whenever a replica comes or goes, or what it says of its drivers does.
    pub fn changes(&self) -> watch::Receiver<Arc<Peers>> {
        self.0.peers.subscribe()
    }

    /// The ids of all replicas that live, this one among them, in order. Of one in an explicit list
    /// alone the id is not known.
    pub fn live(&self) -> BTreeSet<Arc<str>> {
        let peers = self.peers();
        let others = peers.peers.iter().filter_map(|peer| peer.id.clone());
        others.chain([self.0.id.clone()]).collect()
    }

    /// The same, `None` while it is not known who is there.
    pub fn known_live(&self) -> Option<BTreeSet<Arc<str>>> {
        self.sources().present.as_ref()?;
        Some(self.live())
    }

    /// Names the replicas that have a driver for a key.
    pub fn serving(&self, wanted: &DriverKey) -> Vec<String> {
        let peers = self.peers();
        let serving = peers.peers.iter().filter(|peer| peer.report.serves(wanted));
        serving.take(MOST_NAMED).map(Peer::name).collect()
    }

    /// Why this replica should not take work yet: the others have drivers that have not come here so
    /// far, or what those serve is `unread`. Once it may, it always may: a driver that comes to another
    /// one first is no reason.
    pub fn awaits(
        &self,
        ours: impl FnOnce() -> Report,
        unread: impl FnOnce() -> Option<String>,
    ) -> Option<String> {
        if self.0.gathered.load(Ordering::Acquire) {
            return None;
        }
        let why = self.lacks(ours).or_else(unread);
        let why = why.filter(|_| self.0.born.elapsed() < GATHER_FOR);
        if why.is_none() {
            self.0.gathered.store(true, Ordering::Release);
        }
        why
    }

    fn lacks(&self, ours: impl FnOnce() -> Report) -> Option<String> {
        let unknown = {
            let sources = self.sources();
            sources.expected && sources.present.is_none()
        };
        if unknown {
            return Some("who the other replicas are is not known yet".to_owned());
        }
        let (peers, ours) = (self.peers(), ours());
        peers.peers.iter().find_map(|peer| {
            let (key, theirs, here) = peer.report.exceeds(&ours)?;
            let name = peer.name();
            Some(format!("replica {name} has {theirs} drivers for {key}, this one has {here}"))
        })
    }

    /// What drivers of the others do not come here, long after they should have.
    pub fn passed_over(&self, ours: impl FnOnce() -> Report) -> Option<String> {
        if self.0.born.elapsed() < GATHER_FOR {
            return None;
        }
        let (peers, ours) = (self.peers(), ours());
        let lacking = peers.peers.iter().filter_map(|peer| peer.report.exceeds(&ours));
        let (key, ..) = lacking.into_iter().find(|(.., here)| *here == 0)?;
        Some(format!("others have drivers for {key}, and this one has none"))
    }

    /// What is wrong with how replicas know each other, if anything is.
    pub fn problems(&self) -> Vec<String> {
        let sources = self.sources();
        let tell = |what: &str, why: &Option<String>| Some(format!("{what}: {}", why.as_ref()?));
        let unseen = tell("this one cannot tell the others that it is here", &sources.unseen);
        let blind = tell("this one cannot see which others are here", &sources.blind);
        unseen.into_iter().chain(blind).collect()
    }

    /// Leases will tell of others: until they do, it is not known who is there.
    pub(crate) fn expect(&self) {
        self.sources().expected = true;
    }

    /// Those who have a Lease are these.
    pub fn present(&self, present: Vec<Peer>) {
        self.change(|sources| sources.present = Some(present));
    }

    fn note_unseen(&self, why: Option<String>) {
        self.sources().unseen = why;
    }

    fn note_blind(&self, why: Option<String>) {
        self.sources().blind = why;
    }

    fn change(&self, change: impl FnOnce(&mut Sources)) {
        let mut sources = self.sources();
        change(&mut sources);
        let peers = sources.peers(self.0.advertised.as_ref());
        // With the lock held, so that no view overtakes a newer one.
        self.0.peers.send_if_modified(|known| {
            if known.peers == peers {
                return false;
            }
            let moved = known.places().ne(peers.iter().map(Peer::place));
            let revision = known.revision + u64::from(moved);
            *known = Arc::new(Peers { revision, peers });
            true
        });
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        // Whole between any two statements that could panic.
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sources {
    /// All others, each address once. An address of our own is no other's, whoever had it before us.
    fn peers(&self, own: Option<&Arc<str>>) -> Vec<Peer> {
        let listed = self.listed.iter().map(|address| Peer {
            id: None,
            address: address.clone(),
            report: Arc::default(),
        });
        // Who has a Lease is known better, so it goes first.
        let mut peers: Vec<_> = self.present.iter().flatten().cloned().chain(listed).collect();
        peers.retain(|peer| Some(&peer.address) != own);
        peers.sort_by(|one, other| one.address.cmp(&other.address));
        peers.dedup_by(|later, first| later.address == first.address);
        peers
    }
}

impl Peers {
    fn places(&self) -> impl Iterator<Item = (Option<&str>, &str)> {
        self.peers.iter().map(Peer::place)
    }

    /// As drivers are told.
    pub fn to_wire(&self) -> v1::Peers {
        let peer = |peer: &Peer| v1::Peer {
            replica_id: peer.id.as_deref().unwrap_or_default().to_owned(),
            address: peer.address.to_string(),
        };
        v1::Peers { revision: self.revision, peers: self.peers.iter().map(peer).collect() }
    }
}

impl Peer {
    fn place(&self) -> (Option<&str>, &str) {
        (self.id.as_deref(), &self.address)
    }

    /// For people.
    fn name(&self) -> String {
        match &self.id {
            Some(id) => format!("{id} ({})", self.address),
            None => self.address.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &str) -> DriverKey {
        DriverKey { api_version: "v1".into(), kind: kind.into(), provider: None }
    }

    fn peer(id: &str, drivers: usize) -> Peer {
        let report = if drivers > 0 { Report::with(key("K"), drivers) } else { Report::default() };
        Peer { id: Some(id.into()), address: format!("{id}:1").into(), report: Arc::new(report) }
    }

    fn awaits(replicas: &Replicas, ours: impl FnOnce() -> Report) -> Option<String> {
        replicas.awaits(ours, || None)
    }

    fn addresses(replicas: &Replicas) -> Vec<String> {
        replicas.peers().peers.iter().map(|peer| peer.address.to_string()).collect()
    }

    #[test]
    fn the_others_come_from_a_list_and_from_leases_and_each_is_there_once() {
        let replicas = Replicas::new("a", Some("a:1"));
        replicas.list(["a:1", "b:1", "d:1"]);
        assert_eq!(addresses(&replicas), ["b:1", "d:1"], "our own address is nobody else's");
        replicas.present(vec![peer("c", 0), peer("b", 1)]);
        assert_eq!(addresses(&replicas), ["b:1", "c:1", "d:1"]);
        assert_eq!(replicas.peers().peers[0].id.as_deref(), Some("b"), "a Lease knows more");
        let live: Vec<_> = replicas.live().iter().map(ToString::to_string).collect();
        assert_eq!(live, ["a", "b", "c"]);
    }

    #[test]
    fn the_revision_grows_when_one_comes_goes_or_moves_and_not_with_its_drivers() {
        let replicas = Replicas::new("a", None);
        let mut changes = replicas.changes();
        let revision = || replicas.peers().revision;
        assert_eq!(revision(), 0);
        replicas.present(vec![peer("b", 0)]);
        assert_eq!(revision(), 1);
        changes.mark_unchanged();
        replicas.present(vec![peer("b", 0)]);
        assert!(!changes.has_changed().unwrap(), "nothing changed");
        replicas.present(vec![peer("b", 2)]);
        assert!(changes.has_changed().unwrap(), "somebody may want to know");
        assert_eq!(revision(), 1, "drivers need not");
        replicas.present(vec![Peer { id: Some("c".into()), ..peer("b", 2) }]);
        assert_eq!(revision(), 2, "another one has its address");
        replicas.present(Vec::new());
        assert_eq!(revision(), 3);
    }

    #[test]
    fn those_who_have_a_driver_are_named() {
        let replicas = Replicas::new("a", None);
        replicas.present(vec![peer("b", 1), peer("c", 0), peer("d", 3)]);
        assert_eq!(replicas.serving(&key("K")), ["b (b:1)", "d (d:1)"]);
        assert!(replicas.serving(&key("Other")).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_waits_for_the_drivers_that_others_have_but_not_for_ever() {
        let ours = |drivers| move || Report::with(key("K"), drivers);
        let replicas = Replicas::new("a", None);
        replicas.expect();
        let why = awaits(&replicas, Report::default).unwrap();
        assert!(why.contains("not known yet"), "{why}");
        replicas.present(vec![peer("b", 0), peer("c", 2)]);
        let why = awaits(&replicas, ours(1)).unwrap();
        assert_eq!(why, "replica c (c:1) has 2 drivers for K (v1), this one has 1");
        let unread = || Some("unread".to_owned());
        assert_eq!(replicas.awaits(ours(2), unread).as_deref(), Some("unread"));
        assert_eq!(awaits(&replicas, ours(2)), None);
        assert_eq!(awaits(&replicas, Report::default), None, "it was ready once");

        let replicas = Replicas::new("a", None);
        replicas.present(vec![peer("c", 2)]);
        assert!(awaits(&replicas, Report::default).is_some());
        tokio::time::advance(GATHER_FOR).await;
        assert_eq!(awaits(&replicas, Report::default), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_none_of_the_drivers_of_others_after_a_while_is_told_so() {
        let replicas = Replicas::new("a", None);
        replicas.present(vec![peer("c", 2)]);
        assert_eq!(replicas.passed_over(Report::default), None, "they may be on their way");
        tokio::time::advance(GATHER_FOR).await;
        let told = "others have drivers for K (v1), and this one has none";
        assert_eq!(replicas.passed_over(Report::default).as_deref(), Some(told));
        assert_eq!(replicas.passed_over(|| Report::with(key("K"), 1)), None, "one is enough");
    }

    #[test]
    fn what_is_wrong_is_told_until_it_is_mended() {
        let replicas = Replicas::new("a", None);
        assert!(replicas.problems().is_empty());
        replicas.note_unseen(Some("forbidden".to_owned()));
        replicas.note_blind(Some("away".to_owned()));
        let told = [
            "this one cannot tell the others that it is here: forbidden",
            "this one cannot see which others are here: away",
        ];
        assert_eq!(replicas.problems(), told);
        replicas.note_unseen(None);
        assert_eq!(replicas.problems(), told[1..]);
    }

    #[test]
    fn one_that_is_alone_waits_for_nobody() {
        assert_eq!(awaits(&Replicas::new("a", None), Report::default), None);
    }
}
