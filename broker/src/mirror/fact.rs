//! What this broker sees of each driver, read from the registry and the catalog now and then.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::{Duration, SystemTime},
};

use broker_crds::driver::{Served, Session, Spec, State};
use tokio::time::Instant;

use super::name::object_name;
use crate::{
    catalog::Catalog,
    driver::{DriverKey, SessionId},
    registry::Registry,
    session::{Health, SessionHandle},
};

/// A kind that is being read for the first time is in no trouble.
const PATIENCE: Duration = Duration::from_secs(3);
/// After so many drivers others get their turn.
const AT_ONCE: usize = 250;

/// What this broker sees of a driver.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    pub(super) spec: Arc<Spec>,
    pub(super) session: Arc<str>,
    pub(super) connected: SystemTime,
    pub(super) heard: SystemTime,
    pub(super) state: State,
    pub(super) reason: &'static str,
    pub(super) in_flight: u32,
    pub(super) trouble: Option<Arc<str>>,
}

impl Fact {
    /// Whether an operator would want to know.
    pub(super) fn differs(&self, written: &Session) -> bool {
        *written.session != *self.session
            || written.state != self.state
            || written.reason != self.reason
            || written.trouble != self.trouble.as_deref().unwrap_or_default()
    }

    pub(super) fn session(&self, replica: &str) -> Session {
        Session {
            replica: replica.to_owned(),
            session: self.session.to_string(),
            state: self.state,
            reason: self.reason.to_owned(),
            connected_since: self.connected,
            last_heard: self.heard,
            in_flight: self.in_flight,
            trouble: self.trouble.as_deref().unwrap_or_default().to_owned(),
        }
    }

    /// Two processes with one instance id, for different kinds: the newer one, and the kinds and work of
    /// both.
    fn join(&mut self, mut other: Fact) {
        if other.connected > self.connected {
            std::mem::swap(self, &mut other);
        }
        let spec = Arc::make_mut(&mut self.spec);
        spec.kinds.extend(other.spec.kinds.iter().cloned());
        spec.kinds
            .sort_by(|one, two| (&one.kind, &one.api_version).cmp(&(&two.kind, &two.api_version)));
        spec.kinds.dedup();
        if other.state > self.state {
            (self.state, self.reason) = (other.state, other.reason);
        }
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.trouble = self.trouble.take().or(other.trouble);
    }
}

/// By the name of the object of each driver.
pub(super) type Facts = HashMap<Arc<str>, Fact>;

/// Looks, and remembers what never changes in a session and what is the matter with kinds.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    told: HashMap<SessionId, Told>,
    troubles: HashMap<DriverKey, Option<Trouble>>,
}

#[derive(Clone, Debug)]
struct Told {
    name: Arc<str>,
    spec: Arc<Spec>,
    session: Arc<str>,
}

#[derive(Debug)]
struct Trouble {
    since: Instant,
    why: Arc<str>,
}

impl Lookout {
    /// All that is connected now. There may be thousands, and others have work to do.
    pub(super) async fn look(&mut self, registry: &Registry, catalog: &dyn Catalog) -> Facts {
        let (mut facts, mut told) = (Facts::new(), HashMap::new());
        self.look_at_kinds(registry, catalog);
        for (number, session) in registry.sessions().iter().enumerate() {
            if number % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            if session.ended().is_some() {
                continue;
            }
            let id = session.info().id;
            let its = self.told.remove(&id).unwrap_or_else(|| Told::by(session));
            let fact = self.fact(session, &its);
            match facts.entry(Arc::clone(&its.name)) {
                Entry::Vacant(place) => drop(place.insert(fact)),
                Entry::Occupied(mut other) => other.get_mut().join(fact),
            }
            told.insert(id, its);
        }
        self.told = told;
        facts
    }

    /// What is the matter with each kind. While the API server is away that is not known, and what was
    /// the matter before counts.
    fn look_at_kinds(&mut self, registry: &Registry, catalog: &dyn Catalog) {
        let keys = registry.keys();
        self.troubles.retain(|key, _| keys.binary_search(key).is_ok());
        if catalog.age().is_some() {
            return;
        }
        for key in keys {
            let reading = catalog.reading(&key.api_version, &key.kind);
            let before = self.troubles.get_mut(&key).and_then(Option::take);
            let trouble = reading.trouble().map(|why| Trouble {
                since: before.as_ref().map_or_else(Instant::now, |trouble| trouble.since),
                why: match before {
                    Some(trouble) if *trouble.why == *why => trouble.why,
                    _ => why.into(),
                },
            });
            self.troubles.insert(key, trouble);
        }
    }

    fn fact(&self, session: &SessionHandle, told: &Told) -> Fact {
        let info = session.info();
        let (state, reason) = match session.health() {
            Health::Ready => (State::Ready, ""),
            Health::Suspect(why) => (State::Suspect, why),
            Health::Draining(why) => (State::Draining, why),
        };
        let troubles = info.keys.iter().filter_map(|key| self.troubles.get(key)?.as_ref());
        let mut old = troubles.filter(|trouble| trouble.since.elapsed() >= PATIENCE);
        Fact {
            spec: Arc::clone(&told.spec),
            session: Arc::clone(&told.session),
            connected: info.connected_at,
            heard: SystemTime::now().checked_sub(session.last_heard()).unwrap_or(info.connected_at),
            state,
            reason,
            in_flight: u32::try_from(session.in_flight()).unwrap_or(u32::MAX),
            trouble: old.next().map(|trouble| Arc::clone(&trouble.why)),
        }
    }
}

impl Told {
    fn by(session: &SessionHandle) -> Self {
        let info = session.info();
        let spec = Spec {
            instance: info.instance.id.to_string(),
            kinds: info.keys.iter().map(served).collect(),
            version: info.version.clone(),
            protocol: info.protocol,
        };
        Self {
            name: object_name(&info.instance.id).into(),
            spec: Arc::new(spec),
            session: info.id.to_string().into(),
        }
    }
}

fn served(key: &DriverKey) -> Served {
    Served {
        api_version: key.api_version.to_string(),
        kind: key.kind.to_string(),
        provider: key.provider.as_deref().map(ToOwned::to_owned),
    }
}
