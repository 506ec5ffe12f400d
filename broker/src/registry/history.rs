//! What happened to drivers lately, and the sessions that are over.
//!
//! Each driver has its own room here, so that one that flaps pushes out nobody's history but its own.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use tokio::sync::broadcast;

use super::NotOne;
use crate::{
    driver::{Instance, SessionId},
    session::SessionHandle,
};

/// How much is kept of each driver, and of how many drivers.
const EVENTS: usize = 200;
const SESSIONS: usize = 10;
const DRIVERS: usize = 1_000;
/// Events that one who follows may be behind.
const BEHIND: usize = 1_000;

#[derive(Debug)]
pub struct History {
    books: Mutex<Books>,
    /// For those who follow.
    news: broadcast::Sender<Event>,
}

#[derive(Debug, Default)]
struct Books {
    drivers: HashMap<Arc<str>, Life>,
    /// Who gives up its room first: ten thousand may come at once, and none of them can look at all others.
    order: BTreeMap<Turn, Arc<str>>,
    /// Grows with every event.
    clock: u64,
}

/// What is kept of one driver.
#[derive(Debug, Default)]
struct Life {
    events: VecDeque<Event>,
    /// How many events there were that are not kept.
    forgotten: usize,
    /// The sessions that are over, oldest first.
    over: VecDeque<SessionHandle>,
    /// How many sessions of it are not over.
    connected: usize,
    touched: u64,
}

/// Whether it is connected, and when it was last touched.
type Turn = (bool, u64);

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
    /// It took the place of another session.
    Takeover,
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
            What::Takeover => "takeover",
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
        if what != What::Rejected {
            self.tell(&event);
        }
        self.books().change(instance, |life| {
            match what {
                What::Registered => life.connected += 1,
                What::Over => life.connected = life.connected.saturating_sub(1),
                _ => {}
            }
            if life.events.len() == EVENTS {
                life.events.pop_front();
                life.forgotten += 1;
            }
            life.events.push_back(event);
        });
    }

    /// A driver was not let in, for whatever reason. Who follows hears of it; it is not kept, since
    /// anyone can say any name.
    pub fn turned_away(&self, instance: Arc<str>, why: &str) {
        let instance = Instance { id: instance, boot: None };
        let (at, details) = (SystemTime::now(), why.to_owned());
        self.tell(&Event { at, what: What::Rejected, details, session: None, instance });
    }

    /// What happens from now on. Who falls behind loses the oldest.
    pub fn follow(&self) -> broadcast::Receiver<Event> {
        self.news.subscribe()
    }

    fn tell(&self, event: &Event) {
        // Nobody follows where nobody wants to know.
        if self.news.receiver_count() > 0 {
            self.news.send(event.clone()).ok();
        }
    }

    /// Keeps a session that is over, for who asks about it later.
    pub(super) fn over(&self, session: &SessionHandle) {
        let info = session.info();
        let why = session.ended().map_or("", |ended| &ended.why);
        self.note(What::Over, why, Some(info.id), &info.instance);
        self.books().change(&info.instance, |life| {
            if life.over.len() == SESSIONS {
                life.over.pop_front();
            }
            life.over.push_back(session.clone());
        });
    }

    /// The last session of each instance that has one that is over.
    pub fn gone(&self) -> Vec<SessionHandle> {
        let books = self.books();
        let mut gone: HashMap<&str, &SessionHandle> = HashMap::new();
        for session in books.drivers.values().flat_map(|life| &life.over) {
            gone.insert(&session.info().instance.id, session);
        }
        gone.into_values().cloned().collect()
    }

    /// The session that is over and that `name` is the instance or the full name of.
    pub(super) fn exactly(&self, name: &str) -> Option<SessionHandle> {
        let books = self.books();
        let mut over = books.drivers.values().flat_map(|life| life.over.iter().rev());
        over.find(|session| {
            *session.info().instance.id == *name || session.info().id.to_string() == name
        })
        .cloned()
    }

    /// The one session that is over and whose name begins so.
    pub(super) fn beginning(&self, name: &str) -> Result<SessionHandle, NotOne> {
        let books = self.books();
        let over = books.drivers.values().flat_map(|life| &life.over);
        NotOne::or(over.filter(|session| session.info().id.to_string().starts_with(name)).cloned())
    }

    /// The newest events of an instance, newest first, whatever the session; and how many more there
    /// were.
    pub fn of(&self, instance: &Instance, most: usize) -> (Vec<Event>, usize) {
        let books = self.books();
        let Some(life) = books.drivers.get(&*room(instance)) else { return (Vec::new(), 0) };
        let its = || life.events.iter().rev().filter(|event| event.instance.id == instance.id);
        let events: Vec<_> = its().take(most).cloned().collect();
        let more = its().count() - events.len() + life.forgotten;
        (events, more)
    }

    /// Why an instance of this name was last not let in, if that is all that is known of it.
    pub fn rejection(&self, instance: &str) -> Option<Event> {
        let books = self.books();
        let events = books.drivers.values().flat_map(|life| life.events.iter().rev());
        let mut its = events.filter(|event| *event.instance.id == *instance);
        its.next().filter(|event| event.what == What::Rejected).cloned()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no panic while locked")
    }
}

impl Default for History {
    fn default() -> Self {
        Self { books: Mutex::default(), news: broadcast::Sender::new(BEHIND) }
    }
}

impl Books {
    /// Changes what is in the room of a driver; if there is none for it, that of the one that has been
    /// away for longest becomes its.
    fn change(&mut self, instance: &Instance, change: impl FnOnce(&mut Life)) {
        self.clock += 1;
        let room = room(instance);
        if !self.drivers.contains_key(&room)
            && self.drivers.len() >= DRIVERS
            && let Some((_, longest)) = self.order.pop_first()
        {
            self.drivers.remove(&longest);
        }
        let life = self.drivers.entry(Arc::clone(&room)).or_default();
        self.order.remove(&life.turn());
        change(life);
        life.touched = self.clock;
        self.order.insert(life.turn(), room);
    }
}

impl Life {
    fn turn(&self) -> Turn {
        (self.connected > 0, self.touched)
    }
}

/// Historic drivers are called `name@host:port` and have another port each time they dial: they share
/// a room, or one that flaps would be as many drivers as it has connections.
fn room(instance: &Instance) -> Arc<str> {
    match instance.id.rsplit_once(':') {
        Some((host, _)) if instance.boot.is_none() => host.into(),
        _ => Arc::clone(&instance.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(id: &str) -> Instance {
        Instance { id: id.into(), boot: Some("b".into()) }
    }

    #[test]
    fn a_driver_that_flaps_pushes_out_nobodys_history_but_its_own() {
        let history = History::default();
        let (calm, flaps) = (native("calm"), native("flaps"));
        history.note(What::Registered, "", None, &calm);
        for number in 0..10_000 {
            history.note(What::Rejected, number.to_string(), None, &flaps);
            // Each connection of a historic driver has its own name.
            let historic = Instance { id: format!("sim@host:{number}").into(), boot: None };
            history.note(What::Registered, "", None, &historic);
            history.note(What::Over, "", None, &historic);
        }
        assert_eq!(history.of(&calm, 10).0.len(), 1);
        let (events, more) = history.of(&flaps, 3);
        let details: Vec<_> = events.iter().map(|event| event.details.as_str()).collect();
        assert_eq!((details, more), (vec!["9999", "9998", "9997"], 10_000 - 3));
        assert!(history.books().drivers.len() < 5);
    }

    #[test]
    fn who_has_been_away_for_longest_is_forgotten_first() {
        let history = History::default();
        let connected = native("connected");
        history.note(What::Registered, "", None, &connected);
        for number in 0..=DRIVERS {
            let instance = native(&number.to_string());
            history.note(What::Registered, "", None, &instance);
            history.note(What::Over, "", None, &instance);
        }
        let kept = |id: &str| !history.of(&native(id), 1).0.is_empty();
        assert!(kept("connected") && kept("2") && kept(&DRIVERS.to_string()));
        assert!(!kept("0") && !kept("1"));
    }
}
