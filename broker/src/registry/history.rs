//! What happened to drivers lately.

use std::{collections::VecDeque, sync::Mutex, time::SystemTime};

use crate::driver::{Instance, SessionId};

/// How many events are kept, of all drivers together.
const KEPT: usize = 5_000;

#[derive(Debug, Default)]
pub struct History(Mutex<VecDeque<Event>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: SystemTime,
    pub what: What,
    pub details: String,
    /// `None` for one that was not let in.
    pub session: Option<SessionId>,
    pub instance: Instance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Registered,
    Rejected,
    Suspect,
    Ready,
    /// An operator asked it to leave.
    Asked,
    Draining,
    /// Its session is over, in whatever way.
    Over,
}

impl What {
    pub fn as_str(self) -> &'static str {
        match self {
            What::Registered => "registered",
            What::Rejected => "rejected",
            What::Suspect => "suspect",
            What::Ready => "ready",
            What::Asked => "asked to leave",
            What::Draining => "draining",
            What::Over => "over",
        }
    }
}

impl History {
    pub fn note(
        &self,
        what: What,
        details: impl Into<String>,
        session: Option<SessionId>,
        instance: &Instance,
    ) {
        let event = Event {
            at: SystemTime::now(),
            what,
            details: details.into(),
            session,
            instance: instance.clone(),
        };
        let mut events = self.0.lock().expect("no panic while locked");
        if events.len() == KEPT {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Whose session this was, in the session's full name.
    pub fn instance(&self, session: &str) -> Option<Instance> {
        let events = self.0.lock().expect("no panic while locked");
        let mut newest = events.iter().rev();
        let its = |event: &&Event| event.session.is_some_and(|id| id.to_string() == session);
        newest.find(its).map(|event| event.instance.clone())
    }

    /// The events of an instance, newest first, whatever the session.
    pub fn of(&self, instance: &str) -> Vec<Event> {
        let events = self.0.lock().expect("no panic while locked");
        events.iter().rev().filter(|event| *event.instance.id == *instance).cloned().collect()
    }
}
