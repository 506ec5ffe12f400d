//! What ought to be written, given what is there and what this broker sees. Pure.
//!
//! Each broker minds its own session of a driver, and writes the object when that changed in a way that
//! is worth it; with it goes what follows for the whole object. So a change costs one write, and two
//! brokers that disagree, or are of two versions, do not write in turns.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Duration, SystemTime},
};

use broker_crds::driver::{Driver, Session};

use super::{Fact, Object, summary};

/// While nothing else changes, when a driver was last heard is so old at most.
pub(super) const RENEW: Duration = Duration::from_secs(5 * 60);
/// Where it is not known who is there: who has written nothing for so long is not.
const FORGET: Duration = Duration::from_secs(15 * 60);

/// Who decides, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here<'a> {
    pub(super) replica: &'a str,
    /// The brokers that are there, if that is known.
    pub(super) live: Option<&'a BTreeSet<Arc<str>>>,
    pub(super) now: SystemTime,
}

/// Why an object has to change, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// What an operator has to see.
    News,
    /// A session that is not there any more: ours, or one of a broker that is not there any more.
    Leftover,
    /// It has much more or much less to do.
    Load,
    /// What is written of it is old.
    Old,
}

impl Here<'_> {
    /// Whether anything is worth a write.
    pub(super) fn why(&self, seen: Option<&Object>, fact: Option<&Fact>) -> Option<Why> {
        let sessions = seen.map_or(&[][..], |object| &object.driver.status.sessions);
        let mine = sessions.iter().find(|session| session.replica == self.replica);
        let leftover = || sessions.iter().any(|session| !self.stays(session, fact));
        match (fact, mine) {
            (Some(_), None) => Some(Why::News),
            (Some(fact), Some(mine)) => {
                let spec = seen.is_some_and(|object| object.driver.spec != *fact.spec);
                if fact.differs(mine) || spec && self.is_newest(sessions, fact) {
                    Some(Why::News)
                } else if leftover() {
                    Some(Why::Leftover)
                } else if is_other_load(mine.in_flight, fact.in_flight) {
                    Some(Why::Load)
                } else {
                    let gained = fact.heard.duration_since(mine.last_heard).unwrap_or_default();
                    (gained >= RENEW).then_some(Why::Old)
                }
            }
            // An object without any session is one, too.
            (None, _) => {
                (seen.is_some() && (sessions.is_empty() || leftover())).then_some(Why::Leftover)
            }
        }
    }

    /// The object as it ought to be; `None` if it ought not to be.
    pub(super) fn object(&self, seen: Option<&Object>, fact: Option<&Fact>) -> Option<Driver> {
        let before = seen.map(|object| &object.driver);
        let sessions = before.map_or(&[][..], |driver| &driver.status.sessions);
        let others = sessions.iter().filter(|session| session.replica != self.replica);
        let mut kept: Vec<_> =
            others.filter(|session| self.stays(session, fact)).cloned().collect();
        let spec = match (fact, before) {
            (Some(fact), before) if before.is_none() || self.is_newest(&kept, fact) => {
                (*fact.spec).clone()
            }
            (_, before) => before.map(|driver| driver.spec.clone()).unwrap_or_default(),
        };
        kept.extend(fact.map(|fact| fact.session(self.replica)));
        if kept.is_empty() {
            return None;
        }
        let conditions = before.map_or(&[][..], |driver| &driver.status.conditions);
        let status = summary::sum_up(&spec, kept, conditions, self.now);
        Some(Driver { spec, status })
    }

    /// Which of those who are there removes what is left over in this object first: not all at once.
    pub(super) fn turn(&self, name: &str) -> u32 {
        let Some(live) = self.live.filter(|live| !live.is_empty()) else { return 0 };
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let first = hasher.finish() as usize % live.len();
        let us = live.iter().position(|replica| **replica == *self.replica).unwrap_or(0);
        u32::try_from((us + live.len() - first) % live.len()).unwrap_or(0)
    }

    fn stays(&self, session: &Session, fact: Option<&Fact>) -> bool {
        if session.replica == self.replica {
            return fact.is_some();
        }
        match self.live {
            Some(live) => live.contains(session.replica.as_str()),
            None => self.now.duration_since(session.last_heard).is_ok_and(|age| age < FORGET),
        }
    }

    /// Whether what the driver told us is what it told last. A restarted one may be another version, and
    /// still be connected to another broker as it was. Clocks may differ, but the order is the same for all.
    fn is_newest(&self, sessions: &[Session], fact: &Fact) -> bool {
        let mut others = sessions.iter().filter(|session| session.replica != self.replica);
        let ours = (fact.connected, self.replica);
        others.all(|other| (other.connected_since, other.replica.as_str()) < ours)
    }
}

/// Coarsely: some or none, or twice or half as much.
fn is_other_load(before: u32, now: u32) -> bool {
    let (less, more) = (u64::from(before.min(now)), u64::from(before.max(now)));
    more > 0 && more >= 2 * less
}

#[cfg(test)]
mod tests;
