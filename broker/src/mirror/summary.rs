//! What is shown of all sessions together. Pure, so that it is the same whoever writes it.

use std::time::SystemTime;

use broker_crds::driver::{Condition, Served, Session, Spec, State, Status};

/// A line has room for so many.
const MOST: usize = 3;

/// The status of a driver with these sessions.
pub(super) fn sum_up(
    spec: &Spec,
    mut sessions: Vec<Session>,
    before: &[Condition],
    now: SystemTime,
) -> Status {
    sessions.sort_by(|one, other| one.replica.cmp(&other.replica));
    let count = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
    let state = sessions.iter().map(|session| session.state).max().unwrap_or_default();
    let conditions = [ready(&sessions, state), classes_read(&sessions)];
    Status {
        state,
        serves: few(spec.kinds.iter().map(word), ","),
        replicas: count,
        in_flight: sessions.iter().fold(0, |sum, s| sum.saturating_add(s.in_flight)),
        last_heard: sessions.iter().map(|session| session.last_heard).max(),
        conditions: conditions.map(|condition| since(condition, before, now)).to_vec(),
        sessions,
    }
}

fn ready(sessions: &[Session], state: State) -> Condition {
    let message = if state == State::Ready {
        match sessions.len() {
            1 => "it gets work of the one broker that it is connected to".to_owned(),
            count => format!("it gets work of the {count} brokers that it is connected to"),
        }
    } else {
        let others = sessions.iter().filter(|session| session.state != State::Ready);
        few(others.map(|session| format!("for {} it {}", session.replica, session.reason)), "; ")
    };
    condition("Ready", state == State::Ready, state.as_str(), message)
}

/// Whether the machine classes of its kinds can be read.
fn classes_read(sessions: &[Session]) -> Condition {
    let mut troubles: Vec<_> = sessions.iter().map(|session| &session.trouble).collect();
    troubles.retain(|trouble| !trouble.is_empty());
    troubles.sort_unstable();
    troubles.dedup();
    let fine = troubles.is_empty();
    let reason = if fine { "Read" } else { "NotRead" };
    condition("ClassesRead", fine, reason, few(troubles.into_iter().cloned(), "; "))
}

fn condition(sort: &str, status: bool, reason: &str, message: String) -> Condition {
    Condition {
        r#type: sort.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: SystemTime::UNIX_EPOCH,
    }
}

/// Since when it is so: since it was last otherwise.
fn since(condition: Condition, before: &[Condition], now: SystemTime) -> Condition {
    let same =
        before.iter().find(|old| old.r#type == condition.r#type && old.status == condition.status);
    let last_transition_time = same.map_or(now, |old| old.last_transition_time);
    Condition { last_transition_time, ..condition }
}

fn word(served: &Served) -> String {
    match &served.provider {
        Some(provider) => format!("{}/{provider}", served.kind),
        None => served.kind.clone(),
    }
}

/// The first few, and how many more there are.
fn few(texts: impl Iterator<Item = String>, between: &str) -> String {
    let mut texts: Vec<_> = texts.collect();
    let more = texts.len().saturating_sub(MOST);
    texts.truncate(MOST);
    if more > 0 {
        texts.push(format!("+{more}"));
    }
    texts.join(between)
}
