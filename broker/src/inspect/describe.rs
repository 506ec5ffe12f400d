//! Drivers and operations as operators read them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use broker_proto::v1::{self, DriverState};
use tokio::time::Instant;

use super::Rooms;
use crate::{
    catalog::Catalog,
    driver::{ClassId, DriverKey, SessionId},
    operation::{Delivery, Finished, Operation},
    registry::Event,
    session::{Health, Oddities, SessionHandle},
};

/// An operation that waits for so long in the driver's queue deserves a look.
const LONG_QUEUED: Duration = Duration::from_secs(30);
/// As does one that was sent and not accepted, or cancelled and not answered.
const LONG_UNACCEPTED: Duration = Duration::from_secs(5);
const LONG_UNWANTED: Duration = Duration::from_secs(30);
/// As does one that has used up most of its time.
const LONG_RUNNING: Duration = Duration::from_secs(60);

/// How many of its operations are told with a driver.
const ITS_OPERATIONS: usize = 100;

/// The drivers of a kind, or all, in the order in which they came.
pub fn drivers(rooms: &Rooms, kind: &str) -> Vec<v1::Driver> {
    let drivers = among(rooms.registry.sessions(), kind, &oldest(&rooms.ledger.running()));
    let catalog = &*rooms.catalog;
    drivers.into_iter().map(|driver| with_conditions(catalog, driver)).collect()
}

/// Of each instance of a kind, or of all, that is not connected any more the last session.
pub fn gone(rooms: &Rooms, kind: &str) -> Vec<v1::Driver> {
    let connected = rooms.registry.sessions();
    let connected: HashSet<_> =
        connected.iter().map(|session| &session.info().instance.id).collect();
    let mut gone = rooms.registry.history().gone();
    gone.retain(|session| !connected.contains(&session.info().instance.id));
    among(gone, kind, &HashMap::new())
}

fn among(
    mut sessions: Vec<SessionHandle>,
    kind: &str,
    oldest: &HashMap<SessionId, Instant>,
) -> Vec<v1::Driver> {
    sessions.retain(|session| {
        kind.is_empty() || session.info().keys.iter().any(|key| *key.kind == *kind)
    });
    sessions.sort_by_key(|session| (session.info().connected_at, session.info().id));
    let its_oldest = |session: &SessionHandle| oldest.get(&session.info().id).copied();
    sessions.iter().map(|session| describe(session, its_oldest(session))).collect()
}

pub fn driver(rooms: &Rooms, session: &SessionHandle) -> v1::Driver {
    let running = rooms.ledger.running();
    let driver = describe(session, oldest(&running).get(&session.info().id).copied());
    with_conditions(&*rooms.catalog, driver)
}

/// What is the matter with its kinds. One that has gone has none.
fn with_conditions(catalog: &dyn Catalog, driver: v1::Driver) -> v1::Driver {
    if driver.state() == DriverState::Gone {
        return driver;
    }
    let mut conditions: Vec<String> = Vec::new();
    for kind in &driver.kinds {
        if let Some(trouble) = catalog.reading(&kind.api_version, &kind.kind).trouble()
            && !conditions.iter().any(|told| told == trouble)
        {
            conditions.push(trouble.to_owned());
        }
    }
    v1::Driver { conditions, ..driver }
}

/// All that is known of a driver, also of one that has gone, with so many events at most.
pub fn details(rooms: &Rooms, session: &SessionHandle, events: usize) -> v1::DriverDetails {
    let (history, more) = rooms.registry.history().of(&session.info().instance, events);
    let id = session.info().id;
    let mut running = rooms.ledger.running();
    running.retain(|operation| operation.session_id() == Some(id));
    running.sort_by_key(|operation| operation.id);
    let mut finished = rooms.ledger.recent(usize::MAX);
    finished.retain(|operation| operation.facts.session == Some(id));
    let in_all = running.len() + finished.len();
    let running = running.iter().map(|operation| running_operation(operation));
    let operations = running.chain(finished.into_iter().map(finished_operation));
    v1::DriverDetails {
        driver: Some(driver(rooms, session)),
        history: history.into_iter().map(entry).collect(),
        history_more: count(more),
        operations: operations.take(ITS_OPERATIONS).collect(),
        operations_more: count(in_all.saturating_sub(ITS_OPERATIONS)),
    }
}

fn entry(event: Event) -> v1::HistoryEntry {
    v1::HistoryEntry {
        at: Some(event.at.into()),
        what: event.what.as_str().to_owned(),
        details: event.details,
        session_id: event.session.map(|id| id.to_string()).unwrap_or_default(),
        instance_id: event.instance.to_string(),
    }
}

/// Since when the oldest operation of each session waits.
fn oldest(running: &[Arc<Operation>]) -> HashMap<SessionId, Instant> {
    let given = |operation: &Arc<Operation>| Some((operation.session_id()?, operation.submitted));
    earliest(running.iter().filter_map(given))
}

/// The earliest time of each, in one pass: there may be thousands of both.
fn earliest(times: impl Iterator<Item = (SessionId, Instant)>) -> HashMap<SessionId, Instant> {
    let mut earliest = HashMap::new();
    for (session, time) in times {
        let known = earliest.entry(session).or_insert(time);
        *known = time.min(*known);
    }
    earliest
}

fn describe(session: &SessionHandle, oldest_pending: Option<Instant>) -> v1::Driver {
    let info = session.info();
    let record = session.record();
    let ended = session.ended();
    let (state, reason) = match (ended, session.health()) {
        (Some(ended), _) => (DriverState::Gone, ended.why.as_str()),
        (None, Health::Ready) => (DriverState::Ready, ""),
        (None, Health::Suspect(why)) => (DriverState::Suspect, why),
        (None, Health::Draining(why)) => (DriverState::Draining, why),
    };
    // What it had in the end is settled.
    let pending = |number| if ended.is_none() { count(number) } else { 0 };
    v1::Driver {
        session_id: info.id.to_string(),
        name: info.name.clone(),
        kinds: info.keys.iter().map(kind).collect(),
        instance_id: info.instance.id.to_string(),
        boot_id: info.instance.boot.as_deref().unwrap_or_default().to_owned(),
        driver_version: info.version.clone(),
        protocol: info.protocol,
        address: info.address.to_string(),
        state: state.into(),
        connected_at: Some(info.connected_at.into()),
        last_heard: session.last_heard().try_into().ok(),
        capacity: count(info.capacity),
        in_flight: pending(session.in_flight()),
        queued: pending(session.queued()),
        verbs: info.verbs.iter().map(ToString::to_string).collect(),
        state_reason: reason.to_owned(),
        identity: info.identity.to_string(),
        round_trip: session.round_trip().and_then(|time| time.try_into().ok()),
        oldest_pending: oldest_pending.and_then(|since| since.elapsed().try_into().ok()),
        succeeded: record.succeeded,
        failed: record.failed,
        error_rate: record.error_rate(),
        takeovers: info.takeovers.load(Ordering::Relaxed),
        last_error: record.last_error.as_ref().map(|e| e.message.clone()).unwrap_or_default(),
        last_error_at: record.last_error.map(|error| error.at.into()),
        odd_frames: odd(session.oddities()),
        gone_at: ended.map(|ended| ended.at.into()),
        conditions: Vec::new(),
    }
}

fn odd(oddities: Oddities) -> u64 {
    let Oddities { unknown_id, wrong_verb, empty, unexpected, forgotten } = oddities;
    unknown_id + wrong_verb + empty + unexpected + forgotten
}

fn kind(key: &DriverKey) -> v1::Kind {
    v1::Kind {
        api_version: key.api_version.to_string(),
        kind: key.kind.to_string(),
        provider: key.provider.as_deref().unwrap_or_default().to_owned(),
    }
}

/// All running operations, oldest first, and the newest `finished` others.
pub fn operations(rooms: &Rooms, finished: usize) -> Vec<v1::Operation> {
    let mut running = rooms.ledger.running();
    running.sort_by_key(|operation| operation.id);
    let running = running.iter().map(|operation| running_operation(operation));
    running.chain(rooms.ledger.recent(finished).into_iter().map(finished_operation)).collect()
}

fn running_operation(operation: &Operation) -> v1::Operation {
    let request = &operation.request;
    let session = operation.session();
    v1::Operation {
        operation_id: operation.id.to_string(),
        verb: request.verb.to_string(),
        class: Some(class(&request.class.id)),
        machine_name: request.machine.name.to_string(),
        driver_instance: session.map(|s| s.info().instance.to_string()).unwrap_or_default(),
        session_id: session.map(|s| s.info().id.to_string()).unwrap_or_default(),
        delivery: delivery(operation.delivery()).into(),
        submitted_at: Some(operation.submitted_at.into()),
        age: operation.submitted.elapsed().try_into().ok(),
        finished: false,
        outcome: String::new(),
        message: String::new(),
        attempts: request.attempt,
        time_left: operation.deadline().saturating_duration_since(Instant::now()).try_into().ok(),
        stuck: stuck(operation).unwrap_or_default(),
        queued_for: operation.sent_after().and_then(|time| time.try_into().ok()),
        accepted_after: operation.accepted_after().and_then(|time| time.try_into().ok()),
    }
}

/// Why an operation deserves a look, if it does.
pub(super) fn stuck(operation: &Operation) -> Option<String> {
    let age = operation.submitted.elapsed();
    let since_sent = operation.sent_after().map(|after| age.saturating_sub(after));
    let time_left = operation.deadline().saturating_duration_since(Instant::now());
    let seconds = |time: Duration| format!("{}s", time.as_secs());
    match (operation.delivery(), since_sent) {
        (Delivery::Sent, Some(time)) if time >= LONG_UNACCEPTED => {
            Some(format!("not accepted for {}", seconds(time)))
        }
        (Delivery::NotSent, _) if age >= LONG_QUEUED => {
            Some(format!("queued for {}", seconds(age)))
        }
        (Delivery::Accepted, _) if !operation.is_wanted() && age >= LONG_UNWANTED => {
            Some("nobody waits for it any more, and the driver does not end it".to_owned())
        }
        (Delivery::Accepted, _) if age >= LONG_RUNNING && age > time_left => {
            Some(format!("runs for {}, more than half of its time", seconds(age)))
        }
        _ => None,
    }
}

fn finished_operation(finished: Finished) -> v1::Operation {
    let facts = finished.facts;
    v1::Operation {
        operation_id: facts.id.to_string(),
        verb: facts.verb.to_string(),
        class: Some(class(&finished.class.id)),
        machine_name: finished.machine,
        driver_instance: finished.instance.map(|i| i.to_string()).unwrap_or_default(),
        session_id: facts.session.map(|id| id.to_string()).unwrap_or_default(),
        delivery: delivery(facts.delivery).into(),
        submitted_at: Some(facts.submitted_at.into()),
        age: facts.took.try_into().ok(),
        finished: true,
        outcome: facts.outcome.to_owned(),
        message: finished.message,
        attempts: facts.attempt,
        time_left: None,
        stuck: String::new(),
        queued_for: facts.sent_after.and_then(|time| time.try_into().ok()),
        accepted_after: facts.accepted_after.and_then(|time| time.try_into().ok()),
    }
}

pub fn class(id: &ClassId) -> v1::ClassRef {
    v1::ClassRef {
        api_version: id.api_version.to_string(),
        kind: id.kind.to_string(),
        namespace: id.namespace.to_string(),
        name: id.name.to_string(),
        provider: String::new(),
    }
}

fn delivery(delivery: Delivery) -> v1::Delivery {
    match delivery {
        Delivery::NotSent => v1::Delivery::NotSent,
        Delivery::Sent => v1::Delivery::Sent,
        Delivery::Accepted => v1::Delivery::Accepted,
        Delivery::Answered => v1::Delivery::Answered,
    }
}

pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_operation_of_each_of_many_sessions_is_found_in_one_pass() {
        let start = Instant::now();
        let sessions: Vec<_> = (0..2_000).map(|_| SessionId::random()).collect();
        let after = |millis: usize| start + Duration::from_millis(millis as u64);
        // Three each, the middle one first, and mixed with those of all others.
        let times = [1, 0, 2].into_iter().flat_map(|round| {
            sessions.iter().enumerate().map(move |(n, id)| (*id, after(10_000 * round + n)))
        });
        let found = earliest(times);
        assert_eq!(found.len(), sessions.len());
        for (number, session) in sessions.iter().enumerate() {
            assert_eq!(found[session], after(number));
        }
    }
}
