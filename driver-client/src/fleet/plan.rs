//! Which connections there ought to be. Pure.
//!
//! 1. What was configured is always wanted: each address, or those that it is a name for.
//! 2. Besides, whatever replica is named by one that we have a session with. While there is none to name
//!    any, those that were named last.
//! 3. One session with each replica is enough: a peer that another address leads to is not dialled.
//!
//! What is not wanted is not dialled again. A session that stands is nobody's to end for that reason: a
//! replica that the others lost sight of may still have callers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio::time::Instant;

use super::Target;
use crate::operations::AddressId;

/// How many replicas are taken notice of.
const MOST_NAMED: usize = 64;

#[derive(Debug)]
pub(super) struct Plan {
    configured: Vec<Configured>,
    /// What each open session says of the others.
    told: BTreeMap<AddressId, Told>,
    /// Whom they named together when there were any.
    named: Vec<Named>,
    /// With whom each open session is.
    held: BTreeMap<AddressId, String>,
    /// Addresses of which one named the other, or is a name for it: they are replicas of one broker.
    kin: BTreeSet<(AddressId, AddressId)>,
    ids: HashMap<String, Known>,
    next: usize,
}

#[derive(Debug)]
struct Configured {
    target: Target,
    /// What it is a name for, if it is for several.
    resolved: Vec<Target>,
}

#[derive(Debug)]
struct Told {
    revision: u64,
    peers: Vec<Named>,
}

/// A replica that another one named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) target: Target,
    /// Where that is known.
    pub(super) replica: Option<String>,
}

#[derive(Debug)]
struct Known {
    id: AddressId,
    /// Since when nobody wants it, if nobody does.
    unwanted: Option<Instant>,
}

impl Plan {
    pub(super) fn new(addresses: &[String]) -> Self {
        let configured = |address: &String| Configured {
            target: Target::configured(address),
            resolved: Vec::new(),
        };
        Self {
            configured: addresses.iter().map(configured).collect(),
            told: BTreeMap::new(),
            named: Vec::new(),
            held: BTreeMap::new(),
            kin: BTreeSet::new(),
            ids: HashMap::new(),
            next: 0,
        }
    }

    pub(super) fn configured(&self) -> impl Iterator<Item = &Target> {
        self.configured.iter().map(|configured| &configured.target)
    }

    /// A configured address is a name for these; none or one: for what it says.
    pub(super) fn resolved(&mut self, address: &str, mut targets: Vec<Target>) {
        if targets.len() < 2 {
            targets.clear();
        }
        let name = self.id(address);
        for target in &targets {
            self.relate(name, &target.address);
        }
        for configured in &mut self.configured {
            if configured.target.address == address {
                configured.resolved.clone_from(&targets);
            }
        }
    }

    /// A session stands. The newest one with a replica is the one that it keeps.
    pub(super) fn opened(&mut self, address: AddressId, replica: &str) {
        self.closed(address);
        if !replica.is_empty() {
            self.held.retain(|_, held| held != replica);
            self.held.insert(address, replica.to_owned());
        }
    }

    /// The broker there names these others. What it said before is no news.
    pub(super) fn tell(&mut self, address: AddressId, revision: u64, peers: Vec<Named>) {
        let known = self.told.get(&address).map(|told| told.revision);
        if known.is_none_or(|known| known < revision) {
            for peer in peers.iter().take(MOST_NAMED) {
                self.relate(address, &peer.target.address);
            }
            self.told.insert(address, Told { revision, peers });
            self.sum_up();
        }
    }

    /// A session is over.
    pub(super) fn closed(&mut self, address: AddressId) {
        self.held.remove(&address);
        if self.told.remove(&address).is_some() && !self.told.is_empty() {
            self.sum_up();
        }
    }

    fn sum_up(&mut self) {
        let mut named: Vec<Named> = Vec::new();
        for peer in self.told.values().flat_map(|told| &told.peers) {
            match named.iter_mut().find(|known| known.target.address == peer.target.address) {
                // Of two replicas at one address nobody knows which: dialling it tells.
                Some(known) if known.replica != peer.replica => known.replica = None,
                Some(_) => {}
                None => named.push(peer.clone()),
            }
        }
        named.truncate(MOST_NAMED);
        self.named = named;
    }

    /// The replicas that have a session through another address than this one.
    pub(super) fn held_besides(&self, address: AddressId) -> Vec<String> {
        let others = self.held.iter().filter(|(held, _)| **held != address);
        others.map(|(_, replica)| replica.clone()).collect()
    }

    fn relate(&mut self, one: AddressId, other: &str) {
        let other = self.id(other);
        self.kin.extend([(one, other), (other, one)]);
    }

    /// The other replicas of the broker at an address, as far as anyone said. Also those that came after
    /// it was lost, which it could not name: others named both.
    pub(super) fn kin(&self, address: AddressId) -> BTreeSet<AddressId> {
        let mut family = BTreeSet::from([address]);
        let mut next = vec![address];
        while let Some(one) = next.pop() {
            let related = (one, AddressId(0))..=(one, AddressId(usize::MAX));
            for (_, other) in self.kin.range(related) {
                if family.insert(*other) {
                    next.push(*other);
                }
            }
        }
        family.remove(&address);
        family
    }

    /// All connections that there ought to be, each address once.
    pub(super) fn wanted(&mut self, now: Instant) -> Vec<(AddressId, Target)> {
        let mut targets: Vec<Target> = Vec::new();
        for Configured { target, resolved } in &self.configured {
            let several = if resolved.is_empty() { std::slice::from_ref(target) } else { resolved };
            targets.extend_from_slice(several);
        }
        for peer in &self.named {
            let own = self.ids.get(&peer.target.address).map(|known| known.id);
            let elsewhere = self.held.iter().any(|(address, replica)| {
                Some(replica) == peer.replica.as_ref() && Some(*address) != own
            });
            if !elsewhere {
                targets.push(peer.target.clone());
            }
        }
        let mut wanted: Vec<(AddressId, Target)> = Vec::new();
        for target in targets {
            let id = self.id(&target.address);
            if !wanted.iter().any(|(other, _)| *other == id) {
                wanted.push((id, target));
            }
        }
        for known in self.ids.values_mut() {
            if wanted.iter().any(|(id, _)| *id == known.id) || self.held.contains_key(&known.id) {
                known.unwanted = None;
            } else {
                known.unwanted.get_or_insert(now);
            }
        }
        wanted
    }

    /// Whether there ought to be a connection to this one.
    pub(super) fn wants(&mut self, address: AddressId, now: Instant) -> bool {
        self.wanted(now).iter().any(|(wanted, _)| *wanted == address)
    }

    /// The same address is the same one when it comes back: what its broker is owed is kept.
    fn id(&mut self, address: &str) -> AddressId {
        if let Some(known) = self.ids.get(address) {
            return known.id;
        }
        let id = AddressId(self.next);
        self.next += 1;
        self.ids.insert(address.to_owned(), Known { id, unwanted: None });
        id
    }

    /// Forgets the addresses that nobody has wanted since `then`, and says which.
    pub(super) fn forget_before(&mut self, then: Instant) -> Vec<AddressId> {
        let gone = self.ids.extract_if(|_, known| known.unwanted.is_some_and(|since| since < then));
        let gone: Vec<AddressId> = gone.map(|(_, known)| known.id).collect();
        self.kin.retain(|(one, other)| !gone.contains(one) && !gone.contains(other));
        gone
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn plan(addresses: &[&str]) -> Plan {
        Plan::new(&addresses.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    fn named(replica: &str) -> Named {
        let target = Target::configured(&format!("{replica}:1"));
        Named { target, replica: Some(replica.to_owned()) }
    }

    fn wanted(plan: &mut Plan) -> Vec<String> {
        plan.wanted(Instant::now()).into_iter().map(|(_, target)| target.address).collect()
    }

    fn id(plan: &mut Plan, address: &str) -> AddressId {
        plan.id(address)
    }

    #[tokio::test]
    async fn whoever_is_named_is_wanted_until_nobody_names_it() {
        let mut plan = plan(&["a:1"]);
        assert_eq!(wanted(&mut plan), ["a:1"]);
        let a = id(&mut plan, "a:1");
        plan.opened(a, "a");
        plan.tell(a, 1, vec![named("b"), named("c")]);
        assert_eq!(wanted(&mut plan), ["a:1", "b:1", "c:1"]);
        let b = id(&mut plan, "b:1");
        assert!(plan.kin(a).contains(&b) && plan.kin(b).contains(&a));
        plan.opened(b, "b");
        plan.tell(b, 7, vec![named("a"), named("d")]);
        assert_eq!(wanted(&mut plan), ["a:1", "b:1", "c:1", "d:1"]);
        plan.tell(a, 1, Vec::new());
        assert_eq!(wanted(&mut plan).len(), 4, "what it said before is no news");
        plan.tell(a, 2, vec![named("b")]);
        assert_eq!(wanted(&mut plan), ["a:1", "b:1", "d:1"]);
        plan.closed(b);
        assert_eq!(wanted(&mut plan), ["a:1", "b:1"]);
    }

    #[tokio::test]
    async fn while_nobody_is_there_to_name_any_those_named_last_are_wanted() {
        let mut plan = plan(&["a:1"]);
        let a = id(&mut plan, "a:1");
        plan.opened(a, "a");
        plan.tell(a, 1, vec![named("b")]);
        plan.closed(a);
        assert_eq!(wanted(&mut plan), ["a:1", "b:1"]);
        plan.opened(a, "another");
        plan.tell(a, 0, Vec::new());
        assert_eq!(wanted(&mut plan), ["a:1"], "a new one at the old address begins anew");
    }

    #[tokio::test]
    async fn a_replica_that_another_address_leads_to_is_not_dialled() {
        let mut plan = plan(&["service:1"]);
        let service = id(&mut plan, "service:1");
        plan.opened(service, "a");
        plan.tell(service, 1, vec![named("b")]);
        let b = id(&mut plan, "b:1");
        plan.opened(b, "b");
        plan.tell(b, 1, vec![named("a")]);
        assert_eq!(wanted(&mut plan), ["service:1", "b:1"]);
        assert_eq!(plan.held_besides(service), ["b"]);
        // The service leads elsewhere: then its own address is needed.
        plan.closed(service);
        assert_eq!(wanted(&mut plan), ["service:1", "a:1"], "and b is held, so it stays");
        plan.opened(service, "b");
        assert_eq!(plan.held_besides(service), Vec::<String>::new(), "the newest holds it");
    }

    #[tokio::test]
    async fn an_address_that_another_replica_has_is_dialled_whoever_was_there_before() {
        let mut plan = plan(&["a:1"]);
        let (a, b) = (id(&mut plan, "a:1"), id(&mut plan, "b:1"));
        plan.opened(a, "a");
        plan.tell(a, 1, vec![named("b")]);
        plan.opened(b, "b");
        let reused = Named { replica: Some("new".to_owned()), ..named("b") };
        plan.tell(a, 2, vec![reused]);
        assert_eq!(wanted(&mut plan), ["a:1", "b:1"]);
    }

    #[tokio::test]
    async fn a_name_for_several_addresses_is_one_connection_each() {
        let mut plan = plan(&["headless:1", "z:1"]);
        let targets = ["x:1", "y:1"].map(Target::configured);
        plan.resolved("headless:1", targets.to_vec());
        assert_eq!(wanted(&mut plan), ["x:1", "y:1", "z:1"]);
        plan.resolved("headless:1", targets[..1].to_vec());
        assert_eq!(wanted(&mut plan), ["headless:1", "z:1"], "one is dialled by its name");
    }

    #[tokio::test]
    async fn replicas_of_one_broker_are_those_that_name_each_other_whenever_that_was() {
        let mut plan = plan(&["a:1", "headless:1", "stranger:1"]);
        let [a, b, c, stranger] = ["a:1", "b:1", "c:1", "stranger:1"].map(|name| plan.id(name));
        plan.opened(a, "a");
        plan.tell(a, 1, vec![named("b")]);
        plan.opened(b, "b");
        plan.closed(a);
        plan.tell(b, 1, vec![named("c")]);
        plan.opened(stranger, "stranger");
        plan.tell(stranger, 1, Vec::new());
        assert_eq!(plan.kin(a), [b, c].into(), "it was lost before the last one came");
        assert_eq!(plan.kin(c), [a, b].into());
        assert_eq!(plan.kin(stranger), [].into());

        plan.resolved("headless:1", ["x:1", "y:1"].map(Target::configured).to_vec());
        let [name, x, y] = ["headless:1", "x:1", "y:1"].map(|name| plan.id(name));
        assert_eq!(plan.kin(x), [name, y].into(), "one name stands for both");
    }

    #[tokio::test]
    async fn an_address_keeps_its_number_until_it_was_unwanted_for_long() {
        let mut plan = plan(&["a:1"]);
        let start = Instant::now();
        let a = id(&mut plan, "a:1");
        plan.opened(a, "a");
        plan.tell(a, 1, vec![named("b")]);
        let b = plan.wanted(start)[1].0;
        plan.tell(a, 2, Vec::new());
        plan.wanted(start);
        assert_eq!(plan.forget_before(start), []);
        plan.tell(a, 3, vec![named("b")]);
        assert_eq!(plan.wanted(start)[1].0, b);
        plan.tell(a, 4, Vec::new());
        plan.wanted(start);
        assert_eq!(plan.forget_before(start + Duration::from_secs(1)), [b]);
        plan.tell(a, 5, vec![named("b")]);
        assert_ne!(plan.wanted(start)[1].0, b);
    }

    proptest! {
        /// Whatever replicas say, what was configured is wanted, no address twice, and not too many.
        #[test]
        fn what_was_configured_is_always_wanted_and_nothing_twice(
            steps in proptest::collection::vec((0usize..6, 0u64..5, 0usize..200, any::<bool>()), 0..40)
        ) {
            let mut plan = plan(&["r0:1", "r1:1"]);
            for (address, revision, peers, open) in steps {
                let id = plan.id(&format!("r{address}:1"));
                if open {
                    plan.opened(id, &format!("r{}", (address + peers) % 6));
                    let peers = (0..peers).map(|n| named(&format!("r{n}"))).collect();
                    plan.tell(id, revision, peers);
                } else {
                    plan.closed(id);
                }
                let wanted = wanted(&mut plan);
                prop_assert!(wanted.starts_with(&["r0:1".to_owned(), "r1:1".to_owned()]));
                let mut once = wanted.clone();
                once.sort();
                once.dedup();
                prop_assert_eq!(once.len(), wanted.len());
                prop_assert!(wanted.len() <= MOST_NAMED + 2);
            }
        }
    }
}
