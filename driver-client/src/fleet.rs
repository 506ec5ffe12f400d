//! One session with every live replica of the broker, however many there are at the moment.
//!
//! The [`Fleet`] is what connections tell whom they have met and whom those name; the supervisor in
//! [`Fleet::serve`] keeps a connection for each address that the [plan](plan) wants.

mod plan;
mod target;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker_proto::v1 as wire;
use broker_tls::Tls;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, error, info, warn};

use self::plan::{Named, Plan};
pub(crate) use self::target::Target;
use crate::{
    RunError,
    classes::Link,
    config::Config,
    connection::{Connection, Over, Rejection, Shared},
    dial::{Dial, endpoint, resolve},
    operations::AddressId,
};

/// How often it is looked up what names stand for.
const LOOK_UP_EVERY: Duration = Duration::from_secs(10);
const LOOK_UP_WITHIN: Duration = Duration::from_secs(5);
/// How long what a replica is owed is kept after it was last heard of: as long as successes are.
const OWED_FOR: Duration = Duration::from_secs(15 * 60);

/// What connections know together.
pub(crate) struct Fleet {
    plan: Mutex<Plan>,
    /// The ways to the brokers that we have a session with.
    links: Mutex<BTreeMap<AddressId, Link>>,
    changed: watch::Sender<()>,
    dial: Arc<dyn Dial>,
    tls: Tls,
    /// There is a token, which goes nowhere in clear.
    has_token: bool,
}

/// A connection that runs: its end, and what it was for.
type Ended = (AddressId, String, Result<Over, Rejection>);

impl Fleet {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            plan: Mutex::new(Plan::new(&config.addresses)),
            links: Mutex::default(),
            changed: watch::Sender::new(()),
            dial: config.dial.clone(),
            tls: config.tls.clone(),
            has_token: config.token.is_some() || config.token_file.is_some(),
        }
    }

    /// Keeps connections until the driver stops and they have ended, or no broker will have us.
    pub(crate) async fn serve(&self, shared: &Arc<Shared>) -> Result<(), RunError> {
        self.look_up().await;
        tokio::select! {
            result = self.supervise(shared) => result,
            () = self.look_up_forever(shared) => Ok(()),
        }
    }

    async fn supervise(&self, shared: &Arc<Shared>) -> Result<(), RunError> {
        let mut changes = self.changed.subscribe();
        let mut connections: JoinSet<Ended> = JoinSet::new();
        let mut running: HashSet<AddressId> = HashSet::new();
        // Those that will not have us, for as long as they are wanted.
        let mut given_up: Vec<AddressId> = Vec::new();
        let mut result = Ok(());
        let mut accepted = false;
        loop {
            changes.borrow_and_update();
            let draining = shared.drain.is_cancelled();
            if !draining {
                let wanted = self.plan().wanted(Instant::now());
                given_up.retain(|id| wanted.iter().any(|(wanted, _)| wanted == id));
                for (id, target) in wanted {
                    if given_up.contains(&id) || !running.insert(id) {
                        continue;
                    }
                    let address = target.address.clone();
                    let connection = Connection::new(shared.clone(), id, target);
                    connections.spawn(async move { (id, address, connection.run().await) });
                }
            }
            tokio::select! {
                ended = connections.join_next() => match ended {
                    None => break,
                    Some(Ok((id, address, ended))) => {
                        running.remove(&id);
                        match ended {
                            Ok(Over::Stopped) => accepted = true,
                            Ok(Over::Unwanted) => info!(address, "this replica is gone"),
                            Err(rejection) => {
                                error!(address, %rejection, "giving this broker up");
                                given_up.push(id);
                                let (reason, message) = (rejection.reason, rejection.message);
                                result = Err(RunError::Rejected { address, reason, message });
                            }
                        }
                    }
                    // Never aborted while we wait, so this is a bug of ours: better to fail aloud.
                    Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                },
                // The sender is ours.
                _ = changes.changed() => {}
                () = shared.drain.cancelled(), if !draining => {}
            }
        }
        if accepted || shared.drain.is_cancelled() { Ok(()) } else { result }
    }

    /// Looks up again and again what names stand for, and forgets who is long gone.
    async fn look_up_forever(&self, shared: &Shared) {
        loop {
            sleep(LOOK_UP_EVERY).await;
            self.look_up().await;
            if let Some(then) = Instant::now().checked_sub(OWED_FOR) {
                // Without the lock: the executor asks the plan while it has its own.
                let gone = self.plan().forget_before(then);
                for address in gone {
                    shared.executor.abandon(address);
                }
            }
        }
    }

    async fn look_up(&self) {
        let configured: Vec<Target> = self.plan().configured().cloned().collect();
        for target in configured {
            let looked = timeout(LOOK_UP_WITHIN, self.dial.look_up(&target.address)).await;
            // What cannot be looked up now stands for what it stood for before.
            let Ok(Some(places)) = looked else { continue };
            let targets = places.iter().map(|place| target.beside(place));
            let targets = targets.filter(|target| self.may_dial(target)).collect();
            self.plan().resolved(&target.address, targets);
        }
        self.changed.send_replace(());
    }

    /// A session stands: with whom, and whom that one names.
    pub(crate) fn opened(
        &self,
        address: AddressId,
        origin: &Target,
        welcome: &wire::Welcome,
        link: Link,
    ) {
        self.links().insert(address, link);
        self.plan().opened(address, &welcome.replica_id);
        match &welcome.others {
            Some(others) => self.tell(address, origin, others),
            // It knows addresses alone, or nothing of others.
            None if !welcome.peers.is_empty() => {
                let peer = |address: &String| wire::Peer {
                    address: address.clone(),
                    ..wire::Peer::default()
                };
                let peers = welcome.peers.iter().map(peer).collect();
                self.tell(address, origin, &wire::Peers { revision: 0, peers });
            }
            None => {}
        }
        self.changed.send_replace(());
    }

    /// A replica names the others.
    pub(crate) fn tell(&self, address: AddressId, origin: &Target, others: &wire::Peers) {
        let named = |peer: &wire::Peer| {
            let target = origin.beside(&peer.address);
            let replica = Some(peer.replica_id.clone()).filter(|replica| !replica.is_empty());
            self.may_dial(&target).then_some(Named { target, replica })
        };
        let peers = others.peers.iter().filter_map(named).collect();
        debug!(revision = others.revision, peers = others.peers.len(), "told of other replicas");
        self.plan().tell(address, others.revision, peers);
        self.changed.send_replace(());
    }

    /// A session is over.
    pub(crate) fn closed(&self, address: AddressId) {
        self.links().remove(&address);
        self.plan().closed(address);
        self.changed.send_replace(());
    }

    /// The way to another replica of the broker at an address, if there is one. Others that we were told
    /// to dial may be brokers of other clusters, with other classes of the same names.
    pub(crate) fn link_beside(&self, address: AddressId) -> Option<Link> {
        let kin = self.kin(address);
        let links = self.links();
        let mut beside = links.iter().filter(|(other, _)| kin.contains(other));
        beside.next().map(|(_, link)| link.clone())
    }

    /// The other replicas of the broker at an address.
    pub(crate) fn kin(&self, address: AddressId) -> BTreeSet<AddressId> {
        self.plan().kin(address)
    }

    /// Changes whenever a session comes or goes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The replicas that have a session with us through another address.
    pub(crate) fn held_besides(&self, address: AddressId) -> Vec<String> {
        self.plan().held_besides(address)
    }

    /// Returns when no other address leads to this replica any more.
    pub(crate) async fn released(&self, replica: &str, address: AddressId) {
        self.until(|plan| !plan.held_besides(address).iter().any(|held| held == replica)).await;
    }

    pub(crate) fn wants(&self, address: AddressId) -> bool {
        self.plan().wants(address, Instant::now())
    }

    /// Returns when nobody wants the address any more.
    pub(crate) async fn unwanted(&self, address: AddressId) {
        self.until(|plan| !plan.wants(address, Instant::now())).await;
    }

    async fn until(&self, mut is_so: impl FnMut(&mut Plan) -> bool) {
        let mut changes = self.changed.subscribe();
        while !is_so(&mut self.plan()) {
            // The sender lives as long as we do.
            changes.changed().await.ok();
        }
    }

    /// Whether an address that others told us of is one, and our token may go there.
    fn may_dial(&self, target: &Target) -> bool {
        let tls = target.tls(&self.tls);
        let (url, _) = resolve(&target.address, &tls);
        let is_one = endpoint(&url).is_ok();
        let is_safe = !self.has_token || self.dial.is_private(&target.address, &tls);
        if !is_one || !is_safe {
            let address = &target.address;
            warn!(address, "not dialling this replica: no address, or the token would go in clear");
        }
        is_one && is_safe
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<AddressId, Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        // Whole between any two statements that could panic.
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
