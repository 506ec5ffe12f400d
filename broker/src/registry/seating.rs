//! The policies by which several drivers share a key.

use std::collections::HashMap;

use tokio::time::Instant;

use super::{
    Missing,
    group::{Group, stable_hash},
};
use crate::{
    driver::{DriverKey, MachineId, Verb},
    session::{Health, SessionHandle},
};

/// How several drivers share a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// All work: reads go to the least loaded, changes of a machine always to the same instance
    #[default]
    Share,
    /// The newest healthy one works; the older ones are kept warm
    Standby,
    /// There is only one; a second one is rejected while the first lives
    Exclusive,
}

/// The policy of each key.
#[derive(Clone, Debug, Default)]
pub struct Seating {
    pub default: Policy,
    /// By kind, whatever its apiVersion and provider.
    pub kinds: HashMap<String, Policy>,
}

impl Seating {
    pub fn policy(&self, key: &DriverKey) -> Policy {
        self.kinds.get(&*key.kind).copied().unwrap_or(self.default)
    }
}

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) session: SessionHandle,
    /// Grows with every registration.
    pub(super) order: u64,
    pub(super) since: Instant,
}

/// What an operation needs of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub key: &'a DriverKey,
    /// Of the class.
    pub namespace: &'a str,
    pub verb: Verb,
    /// That is changed.
    pub machine: Option<&'a MachineId>,
    pub now: Instant,
}

pub(super) fn choose(
    seats: &Group<Seat>,
    policy: Policy,
    wanted: Wanted<'_>,
) -> Result<SessionHandle, Missing> {
    let may = |seat: &Seat| seat.session.info().territory.contains(wanted.key, wanted.namespace);
    let can = |seat: &Seat| may(seat) && seat.session.info().verbs.contains(&wanted.verb);
    let is_ready = |seat: &Seat| can(seat) && seat.session.health_at(wanted.now) == Health::Ready;
    let ready = || seats.iter().filter(|seat| is_ready(seat));
    let chosen = match (seats.only(), policy, wanted.machine) {
        // Mostly there is nothing to choose.
        (Some(only), ..) => Some(only).filter(|only| is_ready(only)),
        (None, Policy::Standby | Policy::Exclusive, _) => {
            // A new version that fails from the start gives way to the one before it.
            ready().max_by_key(|seat| (!seat.session.fails_from_the_start(), seat.order))
        }
        (None, Policy::Share, Some(machine)) => seats.choose(hash(machine), is_ready),
        (None, Policy::Share, None) => ready().min_by_key(|seat| load(&seat.session)),
    };
    match chosen {
        Some(seat) => Ok(seat.session.clone()),
        None if !seats.iter().any(may) => Err(Missing::NoDriver),
        None => Err(seats.iter().find(|seat| can(seat)).map_or(Missing::Unsupported, |seat| {
            Missing::NoneReady(match seat.session.health() {
                // It recovered since we looked.
                Health::Ready => "was not ready a moment ago",
                Health::Suspect(why) | Health::Draining(why) => why,
            })
        })),
    }
}

/// Load in thousandths of the capacity; equals are told apart by chance, lest one gets everything.
fn load(session: &SessionHandle) -> (usize, u16) {
    (session.load() * 1_000 / session.info().capacity, rand::random())
}

/// The same on every replica.
fn hash(machine: &MachineId) -> u64 {
    // Of its parts, as the hash that it carries is of this process alone.
    let realm = &machine.realm;
    stable_hash((&realm.api_version, &realm.kind, &realm.namespace, &machine.name))
}
