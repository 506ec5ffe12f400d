//! Which drivers are connected right now, and which of them gets an operation.
//!
//! A session's door takes seats with [`Registry::register`], one per kind it serves; dropping the
//! [`Registration`] gives them up. Everyone else reads: the dispatcher with [`Registry::choose`],
//! operators with [`Registry::sessions`].

mod group;
mod history;
mod seating;
mod settling;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use broker_proto::v1::reject::Reason;
use tokio::{sync::watch, time::Instant};

use self::{
    group::Group,
    seating::{Seat, choose},
    settling::Settling,
};
pub use self::{
    history::{Event, History, What},
    seating::{Policy, Seating, Wanted},
};
use crate::{
    driver::{ConnectionId, DriverKey, Instance, SessionId},
    maps::SharedMap,
    operation::Hold,
    session::{End, Info, SessionHandle, Token, handshake::Rejection},
};

/// How long an incumbent has to prove that it lives, before a newcomer takes its seat.
const PROOF_WITHIN: Duration = Duration::from_secs(2);
/// When a duplicate may come again. Soon: if this broker is restarted, it has to hear within `--settle`
/// of what one that waits outside still runs.
const DUPLICATE_RETRY: Duration = Duration::from_secs(2);

/// Cheap to clone: every clone is the same registry.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Seats>);

#[derive(Debug)]
struct Seats {
    seating: Seating,
    groups: SharedMap<DriverKey, Group<Seat>>,
    sessions: SharedMap<SessionId, SessionHandle>,
    next_order: AtomicU64,
    changed: watch::Sender<()>,
    history: History,
    settling: Settling,
}

/// Why no driver can take an operation. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// None is connected for the kind.
    NoDriver,
    /// Some are connected, but none gets new work: why one of them does not.
    NoneReady(&'static str),
    /// None of them implements the verb.
    Unsupported,
}

/// Why a name does not stand for one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOne {
    None,
    Several(Vec<SessionId>),
}

impl NotOne {
    /// The only one of these, or why there is none.
    fn or(sessions: impl Iterator<Item = SessionHandle>) -> Result<SessionHandle, Self> {
        let sessions: Vec<_> = sessions.collect();
        match sessions.as_slice() {
            [] => Err(Self::None),
            [session] => Ok(session.clone()),
            several => Err(Self::Several(several.iter().map(|s| s.info().id).collect())),
        }
    }
}

/// Where an operation that may still run can be asked for.
#[derive(Debug)]
pub enum Holder {
    /// It cannot run any more: any instance will do.
    Free,
    /// The instance that has it is connected: only it will do.
    Back(SessionHandle),
    /// The instance that has it is not connected: nobody will do.
    Away,
}

/// A session's seats, held for as long as it runs.
#[derive(Debug)]
#[must_use = "dropping a registration gives the seats up"]
pub struct Registration {
    registry: Registry,
    session: SessionHandle,
}

impl Registry {
    pub fn new(seating: Seating) -> Self {
        Self(Arc::new(Seats {
            seating,
            groups: SharedMap::default(),
            sessions: SharedMap::default(),
            next_order: AtomicU64::new(0),
            changed: watch::Sender::new(()),
            history: History::default(),
            settling: Settling::new(),
        }))
    }

    /// Seats `session` under each of its keys.
    ///
    /// A session that stands in its way is
    /// 1. an older stream of the very same process: replaced at once, since the driver knows before
    ///    we do that it is dead;
    /// 2. another process with the same instance id, or any other driver of an exclusive kind: asked
    ///    to prove that it lives. If it does, the newcomer is rejected; if not, it is replaced, and
    ///    whatever it still sends goes nowhere.
    pub async fn register(&self, session: &SessionHandle) -> Result<Registration, Rejection> {
        loop {
            let Err(rival) = self.seat(session) else {
                self.0.changed.send_replace(());
                return Ok(Registration { registry: self.clone(), session: session.clone() });
            };
            // Who says so must also be who the other one proved to be.
            let same_process = rival.info().instance == session.info().instance
                && rival.info().identity == session.info().identity;
            if !same_process && rival.proves_alive(PROOF_WITHIN).await {
                return Err(duplicate(session, &rival));
            }
            tracing::info!(
                session = %rival.info().id, by = %session.info().id, "session taken over"
            );
            session.info().takeovers.fetch_add(1, Ordering::Relaxed);
            let (ours, theirs) = (session.info(), rival.info());
            let place = format!("takes the place of session {} of {}", theirs.id, theirs.instance);
            self.0.history.note(What::Takeover, place, Some(ours.id), &ours.instance);
            rival.end(End::Replaced);
            self.unseat(&rival);
        }
    }

    /// Takes all seats, or none and names the first session in the way.
    fn seat(&self, session: &SessionHandle) -> Result<(), SessionHandle> {
        let info = session.info();
        let order = self.0.next_order.fetch_add(1, Ordering::Relaxed);
        for key in &info.keys {
            let exclusive = self.0.seating.policy(key) == Policy::Exclusive;
            let mut seats = self.0.groups.entry(key.clone()).or_default();
            let namesake = |seat: &&Seat| seat.session.info().instance.id == info.instance.id;
            let rival = if exclusive {
                seats.iter().next()
            } else {
                seats.called(&info.instance.id).find(namesake)
            };
            if let Some(rival) = rival.map(|seat| seat.session.clone()) {
                drop(seats);
                self.unseat(session);
                return Err(rival);
            }
            let seat = Seat { session: session.clone(), order, since: Instant::now() };
            seats.insert(&info.instance.id, seat);
        }
        self.0.settling.met(&info.instance);
        self.0.sessions.insert(info.id, session.clone());
        Ok(())
    }

    /// Removes a session's seats: by session, never by key, since a successor may sit there by now.
    fn unseat(&self, session: &SessionHandle) {
        let Info { id, instance, keys, .. } = session.info();
        for key in keys {
            if let Some(mut seats) = self.0.groups.get_mut(key) {
                seats.remove(&instance.id, |seat| seat.session.info().id == *id);
            }
            self.0.groups.remove_if(key, |_, seats| seats.is_empty());
        }
        self.0.sessions.remove(id);
        self.0.changed.send_replace(());
    }

    /// A driver says that it had a session with this address before. Says whether that was with an
    /// earlier broker process.
    pub fn returned(&self, session: &SessionHandle) -> bool {
        self.0.settling.returned(&session.info().instance, &session.info().keys)
    }

    /// Since when drivers of this key that may be on their way back are waited for.
    pub fn settling_since(&self, key: &DriverKey) -> Instant {
        self.0.settling.since(key)
    }

    /// The session that should run an operation.
    pub fn choose(&self, wanted: Wanted<'_>) -> Result<SessionHandle, Missing> {
        // The handle comes out by clone, so that no map guard is held across an await.
        let seats = self.0.groups.get(wanted.key).ok_or(Missing::NoDriver)?;
        choose(&seats, self.0.seating.policy(wanted.key), wanted)
    }

    /// The session of this very process under a key.
    pub fn seated(&self, key: &DriverKey, instance: &Instance) -> Option<SessionHandle> {
        let seats = self.0.groups.get(key)?;
        let mut namesakes = seats.called(&instance.id);
        let seat = namesakes.find(|seat| seat.session.info().instance == *instance)?;
        Some(seat.session.clone())
    }

    /// Who may be asked for an operation that was lost and may still run.
    pub fn holder(&self, hold: &Hold) -> Holder {
        if Instant::now() >= hold.until {
            return Holder::Free;
        }
        let away = if hold.is_over { Holder::Free } else { Holder::Away };
        let Some(seats) = self.0.groups.get(&hold.key) else { return away };
        let mut namesakes = seats.called(&hold.instance.id);
        if let Some(seat) = namesakes.find(|seat| hold.belongs_to(seat.session.info())) {
            // A new stream of a process that keeps no table of its operations knows nothing.
            let remembers = hold.resumes || seat.session.info().id == hold.session;
            return if remembers { Holder::Back(seat.session.clone()) } else { Holder::Free };
        }
        let is_over = |seat: &Seat| {
            let info = seat.session.info();
            // Another start of the same instance: what ran in the earlier one died with it. A
            // historic driver dials again only when its one operation is over.
            let restarted = info.instance.id == hold.instance.id;
            let dialled_again =
                is_same_historic(&info.instance, &hold.instance) && seat.since > hold.since;
            // Somebody else who says so is not believed.
            info.identity == hold.identity && (restarted || dialled_again)
        };
        if seats.iter().any(is_over) { Holder::Free } else { away }
    }

    /// The key that serves classes of this kind and provider in this namespace: a driver for just that
    /// provider, or else one for all of them.
    pub fn key_for(&self, key: Arc<DriverKey>, namespace: &str) -> Arc<DriverKey> {
        let served = |seats: &Group<Seat>| {
            seats.iter().any(|seat| seat.session.info().territory.contains(&key, namespace))
        };
        if key.provider.is_some() && !self.0.groups.get(&*key).is_some_and(|seats| served(&seats)) {
            return Arc::new(DriverKey { provider: None, ..DriverKey::clone(&key) });
        }
        key
    }

    /// All keys that are served, in order.
    pub fn keys(&self) -> Vec<DriverKey> {
        let mut keys: Vec<_> = self.0.groups.iter().map(|group| group.key().clone()).collect();
        keys.sort_unstable();
        keys
    }

    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// The one session that `name` stands for: an instance id, a session id, or the unique beginning of
    /// one. Who is called exactly so goes before who is only called similarly, and who is connected
    /// before who was: a session that is over says so by [`SessionHandle::ended`].
    pub fn named(&self, name: &str) -> Result<SessionHandle, NotOne> {
        let sessions = self.sessions();
        let called = |session: &&SessionHandle| *session.info().instance.id == *name;
        let exactly: Vec<_> = sessions.iter().filter(called).cloned().collect();
        if !exactly.is_empty() {
            return NotOne::or(exactly.into_iter());
        }
        if let Some(gone) = self.0.history.exactly(name) {
            return Ok(gone);
        }
        if name.is_empty() {
            return Err(NotOne::None);
        }
        let begins = |session: &SessionHandle| session.info().id.to_string().starts_with(name);
        match NotOne::or(sessions.into_iter().filter(begins)) {
            Err(NotOne::None) => self.0.history.beginning(name),
            found => found,
        }
    }

    pub fn sessions(&self) -> Vec<SessionHandle> {
        self.0.sessions.iter().map(|session| session.value().clone()).collect()
    }

    /// The sessions that a question came from: the one with this token, or else all those on the
    /// same connection, since a historic driver tells nothing more of itself.
    pub fn asking(&self, token: Option<&Token>, connection: ConnectionId) -> Vec<SessionHandle> {
        let mine = |session: &SessionHandle| match token {
            Some(token) => session.info().token == *token,
            None => session.info().connection == connection,
        };
        self.0.sessions.iter().map(|entry| entry.value().clone()).filter(mine).collect()
    }

    /// Returns once no session is left that `concerns` us.
    pub async fn left(&self, concerns: impl Fn(&SessionHandle) -> bool) {
        let mut changes = self.changes();
        while self.sessions().iter().any(&concerns) {
            // The sender lives as long as the registry.
            changes.changed().await.ok();
        }
    }

    /// Changes whenever a driver comes or goes.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Whoever ran it knows better; this is for one that was never run.
        self.session.note_end("it had gone before it was welcomed");
        // Kept first, so that whoever asks for it finds it here or there.
        self.registry.0.history.over(&self.session);
        self.registry.unseat(&self.session);
    }
}

/// Whether two historic instances may be one: they are called `name@host:port`, and another connection
/// has another port.
fn is_same_historic(one: &Instance, other: &Instance) -> bool {
    let host = |instance: &Instance| instance.id.rsplit_once(':').map(|(host, _)| host.to_owned());
    one.boot.is_none() && other.boot.is_none() && host(one) == host(other)
}

fn duplicate(session: &SessionHandle, rival: &SessionHandle) -> Rejection {
    let (ours, theirs) = (session.info(), rival.info());
    let message = if ours.instance.id == theirs.instance.id {
        format!(
            "another running process has the instance id {:?} (session {}): give each its own",
            ours.instance.id, theirs.id
        )
    } else {
        format!("the kind is exclusive and instance {:?} serves it", theirs.instance.id)
    };
    Rejection::new(Reason::Duplicate, message).retry_after(DUPLICATE_RETRY)
}
