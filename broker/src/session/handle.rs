//! What the rest of the broker holds of a session.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use broker_proto::{
    passing::{DriverSide, broker_side::Control, driver_side::Response},
    v1,
};
use futures::task::AtomicWaker;
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, timeout},
};

use super::{
    Broken, Call, End, Frames, Info, Oddities, Record, Terms, Times,
    admitted::Admitted,
    forget,
    machine::{Frame, Machine, Notice},
};
use crate::{catalog::SecretName, driver::MachineId, metrics::Metrics, operation};

/// How many control frames may wait for a driver that does not read before it is told no more news.
const MOST_NEWS: usize = 64;

/// Whether a session gets new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// Silent for a while, or slow to accept.
    Suspect(&'static str),
    /// Finishes what it has.
    Draining(&'static str),
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub at: SystemTime,
    pub why: String,
}

/// Why a session did not take an operation. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As much waits as may wait.
    Full,
    /// The session is over.
    Gone,
}

/// Cheap to clone: every clone is the same session.
#[derive(Clone, Debug)]
pub struct SessionHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    info: Info,
    times: Times,
    /// Why it is to end: the first word counts.
    end: OnceLock<End>,
    limit: usize,
    metrics: Metrics,
    /// Operations that were taken on and are not settled.
    admitted: AtomicUsize,
    state: Mutex<State>,
    /// Whoever writes to the driver.
    writer: AtomicWaker,
    /// There is nobody any more who would.
    deaf: AtomicBool,
    /// Some operation's callers changed.
    unswept: AtomicBool,
    /// Wakes the task, for what only it does.
    nudge: Notify,
    round_trip: AtomicU64,
    draining: AtomicBool,
    drain_reason: Mutex<&'static str>,
    ended: OnceLock<Ended>,
}

/// Locked for moments only. Whoever holds the lock may settle operations, and so look at the ledger; who
/// looks at the ledger must not come here.
#[derive(Debug)]
enum State {
    Open(Box<Open>),
    /// What is left of it.
    Over {
        heard: Instant,
        oddities: Oddities,
        record: Box<Record>,
    },
}

#[derive(Debug)]
struct Open {
    machine: Machine<Admitted>,
    terms: Terms,
    /// When the task looks at the clock next.
    alarm: Instant,
    /// Pings that somebody waits for.
    probes: Vec<(u64, oneshot::Sender<()>)>,
    /// Those that were counted.
    oddities: Oddities,
}

const NEVER: u64 = u64::MAX;

impl SessionHandle {
    pub(super) fn new(
        info: Info,
        terms: Terms,
        times: Times,
        limit: usize,
        metrics: Metrics,
    ) -> Self {
        let now = Instant::now();
        let open = Open {
            machine: Machine::new(terms, times, now),
            terms,
            alarm: now,
            probes: Vec::new(),
            oddities: Oddities::default(),
        };
        let shared = Shared {
            info,
            times,
            end: OnceLock::new(),
            limit,
            metrics,
            admitted: AtomicUsize::new(0),
            state: Mutex::new(State::Open(Box::new(open))),
            writer: AtomicWaker::new(),
            deaf: AtomicBool::new(false),
            unswept: AtomicBool::new(false),
            nudge: Notify::new(),
            round_trip: AtomicU64::new(NEVER),
            draining: AtomicBool::new(false),
            drain_reason: Mutex::new(""),
            ended: OnceLock::new(),
        };
        Self(Arc::new(shared))
    }

    pub fn info(&self) -> &Info {
        &self.0.info
    }

    pub fn is_native(&self) -> bool {
        self.0.info.protocol > 0
    }

    /// What goes to the driver. For whoever writes to it, once.
    pub fn frames(&self) -> Frames {
        Frames(self.clone())
    }

    /// Hands an operation over. It is NOT_SENT until its frame goes out.
    /// Where it is refused, the dropped ticket says so to everyone who waits.
    pub fn submit(&self, ticket: operation::Ticket, now: Instant) -> Result<(), Refused> {
        self.admit()?;
        let verb = ticket.operation().request.verb;
        let call = Call { verb, ticket: Admitted::to(self, ticket) };
        let mut state = self.state();
        let State::Open(open) = &mut *state else {
            // Settled without the lock.
            drop(state);
            drop(call);
            return Err(Refused::Gone);
        };
        if open.machine.is_draining() {
            drop(state);
            drop(call);
            return Ok(());
        }
        // Whoever has to see to it was told with the first.
        let is_first = open.machine.queued() == 0;
        open.machine.submit(call);
        if is_first {
            self.put(open, now);
        }
        Ok(())
    }

    /// Something was put into the machine: whoever has to see to it is told.
    fn put(&self, open: &mut Open, now: Instant) {
        self.offer(open, now);
        if open.machine.wake_at(now) < open.alarm {
            self.0.nudge.notify_one();
        }
    }

    /// Wakes whoever writes to the driver, if there is something to write.
    fn offer(&self, open: &Open, now: Instant) {
        if !open.machine.has_frame(now) {
            return;
        }
        if self.0.deaf.load(Ordering::Acquire) {
            self.end(End::Broken(Broken::gone()));
        } else {
            self.0.writer.wake();
        }
    }

    /// Nobody takes frames any more. Whoever reads may know better why, so this matters only when there is
    /// something to say: at the next ping at the latest.
    pub(super) fn writer_gone(&self) {
        self.0.deaf.store(true, Ordering::Release);
        self.0.nudge.notify_one();
    }

    /// For the transport: the next frames, once there are some; `None` at the end.
    pub(super) fn poll_frames(
        &self,
        context: &mut Context<'_>,
        mut take: impl FnMut(&Frame<'_>) -> bool,
    ) -> Poll<Option<()>> {
        // Before looking, so that what comes in between is not missed.
        self.0.writer.register(context.waker());
        let mut state = self.state();
        let State::Open(open) = &mut *state else { return Poll::Ready(None) };
        let now = Instant::now();
        let Some(first) = open.machine.next_frame(now) else { return Poll::Pending };
        let mut has_room = take(&first);
        while has_room && let Some(frame) = open.machine.next_frame(now) {
            has_room = take(&frame);
        }
        Poll::Ready(Some(()))
    }

    /// Does what is due. Returns when to look again.
    pub(super) fn tick(&self) -> Instant {
        let now = Instant::now();
        let mut state = self.state();
        let State::Open(open) = &mut *state else { return now + Duration::from_secs(3600) };
        if self.0.unswept.swap(false, Ordering::AcqRel) {
            open.machine.sweep(now);
        }
        open.machine.tick(now);
        self.offer(open, now);
        let oddities = open.machine.oddities();
        if oddities != open.oddities {
            self.0.metrics.odd_frames(open.oddities, oddities);
            open.oddities = oddities;
        }
        open.alarm = open.machine.wake_at(now);
        open.alarm
    }

    pub(super) fn hear(&self, frame: DriverSide, now: Instant) -> Option<Notice> {
        // Before what waits is given back: whoever waits for it looks for another driver at once.
        if self.is_native() && matches!(frame.response, Some(Response::Drain(_))) {
            self.note_draining("is leaving by its own wish");
        }
        self.open(|open| open.machine.hear(frame, now)).flatten()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.open(|open| open.machine.is_dead(Instant::now())).unwrap_or(true)
    }

    /// Why it is to end, if it is.
    pub(super) fn told_to_end(&self) -> Option<&End> {
        self.0.end.get()
    }

    /// Returns when the task has something to do.
    pub(super) async fn nudged(&self) {
        self.0.nudge.notified().await;
    }

    /// It is over: whoever waits for an operation is told.
    pub(super) fn close(&self) {
        let mut state = self.state();
        let over = match &mut *state {
            State::Open(open) => State::Over {
                heard: open.machine.heard(),
                oddities: open.machine.oddities(),
                record: Box::new(open.machine.record().clone()),
            },
            State::Over { .. } => return,
        };
        let open = mem::replace(&mut *state, over);
        drop(state);
        // Without the lock: those who are told try again at once.
        drop(open);
        self.0.writer.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic left half changed is not to go on, but it has to be closed all the same.
        self.0.state.lock().unwrap_or_else(|poisoned| {
            self.end(End::Broken(Broken::panicked()));
            PoisonError::into_inner(poisoned)
        })
    }

    fn open<T>(&self, with: impl FnOnce(&mut Open) -> T) -> Option<T> {
        match &mut *self.state() {
            State::Open(open) => Some(with(open)),
            State::Over { .. } => None,
        }
    }

    /// Takes a place among the operations that it may have.
    fn admit(&self) -> Result<(), Refused> {
        let taken = self.0.admitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, |admitted| {
            (admitted < self.0.limit).then_some(admitted + 1)
        });
        taken.map(drop).map_err(|_| Refused::Full)
    }

    /// The place of an operation is free again.
    pub(super) fn give_back(&self) {
        self.0.admitted.fetch_sub(1, Ordering::AcqRel);
    }

    /// Somebody joined or left the callers of some operation: the driver may have to be told.
    pub fn callers_changed(&self) {
        self.0.unswept.store(true, Ordering::Release);
        self.0.nudge.notify_one();
    }

    /// Whether the driver answers a ping within `patience`. A historic one cannot be asked and is taken
    /// to live until its transport says otherwise, lest two of them evict each other in turn.
    pub async fn proves_alive(&self, patience: Duration) -> bool {
        !self.is_native() || self.ping(patience).await.is_some()
    }

    /// The time to the driver's work loop and back; `None` if no answer comes in time.
    pub async fn ping(&self, patience: Duration) -> Option<Duration> {
        let (proven, proof) = oneshot::channel();
        let sent = Instant::now();
        self.open(|open| {
            let sequence = open.machine.ping_now(sent);
            // Those who asked before may have stopped waiting.
            open.probes.retain(|(_, proven)| !proven.is_closed());
            open.probes.push((sequence, proven));
            self.put(open, sent);
        })?;
        timeout(patience, proof).await.ok()?.ok()?;
        Some(sent.elapsed())
    }

    /// Ends the session. Its callers are told at once; frames it still sends go nowhere.
    pub fn end(&self, why: End) {
        if self.0.end.set(why).is_ok() {
            self.0.nudge.notify_one();
        }
    }

    /// Gives the session no more work; a driver that understands it is told to leave after `after`.
    pub fn drain(&self, reason: &str, after: Duration) {
        self.note_draining("was asked to leave");
        self.open(|open| {
            open.machine.drain();
            if open.terms.drain {
                let after = prost_types::Duration::try_from(after).ok();
                let drain = v1::Drain { reason: reason.to_owned(), after };
                open.machine.tell("drain", Control::Drain(drain));
                self.put(open, Instant::now());
            }
        });
    }

    /// Best effort: each operation carries the secret's revision as well.
    pub fn secret_changed(&self, secret: &SecretName) {
        let (namespace, name) = (secret.namespace.to_string(), secret.name.to_string());
        let changed = v1::SecretChanged { namespace, name };
        self.news("secret_changed", Control::SecretChanged(changed));
    }

    /// Tells a native driver of the other replicas. Says whether there was room to.
    pub fn peers_changed(&self, peers: &v1::Peers) -> bool {
        self.news("peers", Control::Peers(peers.clone().into()))
    }

    /// Another instance changes the machine: what this one remembers of it is not true any more. Best
    /// effort, as each operation says how old a memory may be; it matters when this broker is gone.
    pub fn forget(&self, machine: MachineId) {
        self.news("forget", forget(&machine));
    }

    /// Tells the driver what it is good to know, unless it does not even read what it has to. Says whether
    /// that was so.
    fn news(&self, name: &'static str, news: Control) -> bool {
        let told = self.open(|open| {
            let has_room = open.machine.control_frames() < MOST_NEWS;
            if has_room {
                open.machine.tell(name, news);
                self.put(open, Instant::now());
            }
            has_room
        });
        let is_told = told.unwrap_or(true);
        if !is_told {
            tracing::debug!(session = %self.info().id, name, "it does not read: not told");
        }
        is_told
    }

    /// Computed from when it was last heard, not from when somebody last looked.
    pub fn health(&self) -> Health {
        self.health_at(Instant::now())
    }

    pub fn health_at(&self, now: Instant) -> Health {
        let shared = &self.0;
        if shared.draining.load(Ordering::Acquire) {
            return Health::Draining(*shared.drain_reason.lock().expect("no panic while locked"));
        }
        let (heard, due) = match &*self.state() {
            State::Open(open) => (open.machine.heard(), open.machine.accept_due()),
            State::Over { heard, .. } => (*heard, None),
        };
        if self.is_native() && now >= heard + shared.times.suspect_after {
            return Health::Suspect("has not been heard of for too long");
        }
        if due.is_some_and(|due| now >= due) {
            return Health::Suspect("does not accept what it is sent");
        }
        Health::Ready
    }

    pub fn is_silent(&self) -> bool {
        self.is_native() && self.last_heard() >= self.0.times.suspect_after
    }

    pub fn last_heard(&self) -> Duration {
        let heard = match &*self.state() {
            State::Open(open) => open.machine.heard(),
            State::Over { heard, .. } => *heard,
        };
        heard.elapsed()
    }

    pub fn round_trip(&self) -> Option<Duration> {
        let micros = self.0.round_trip.load(Ordering::Relaxed);
        (micros != NEVER).then(|| Duration::from_micros(micros))
    }

    /// Operations that it was given and that are not settled.
    pub fn load(&self) -> usize {
        self.0.admitted.load(Ordering::Acquire)
    }

    /// How many it may be given at once, those that wait included.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    pub fn in_flight(&self) -> usize {
        self.open(|open| open.machine.in_flight()).unwrap_or_default()
    }

    pub fn queued(&self) -> usize {
        self.open(|open| open.machine.queued()).unwrap_or_default()
    }

    pub fn oddities(&self) -> Oddities {
        match &*self.state() {
            State::Open(open) => open.machine.oddities(),
            State::Over { oddities, .. } => *oddities,
        }
    }

    /// What it has done so far.
    pub fn record(&self) -> Record {
        self.with_record(Record::clone)
    }

    pub fn fails_from_the_start(&self) -> bool {
        self.with_record(Record::fails_from_the_start)
    }

    fn with_record<T>(&self, look: impl FnOnce(&Record) -> T) -> T {
        match &*self.state() {
            State::Open(open) => look(open.machine.record()),
            State::Over { record, .. } => look(record),
        }
    }

    /// Since when and why it is over, if it is.
    pub fn ended(&self) -> Option<&Ended> {
        self.0.ended.get()
    }

    /// It is over, or about to be: the first word counts.
    pub fn note_end(&self, why: &str) {
        self.0.ended.get_or_init(|| Ended { at: SystemTime::now(), why: why.to_owned() });
    }

    fn note_draining(&self, reason: &'static str) {
        *self.0.drain_reason.lock().expect("no panic while locked") = reason;
        self.0.draining.store(true, Ordering::Release);
    }

    pub(super) fn note_pong(&self, sequence: u64, round_trip: Option<Duration>) {
        if let Some(round_trip) = round_trip {
            let micros = u64::try_from(round_trip.as_micros()).unwrap_or(NEVER - 1);
            self.0.round_trip.store(micros, Ordering::Relaxed);
        }
        self.open(|open| {
            for (_, proven) in open.probes.extract_if(.., |(wanted, _)| *wanted <= sequence) {
                // Whoever asked may have stopped waiting.
                proven.send(()).ok();
            }
        });
    }
}
