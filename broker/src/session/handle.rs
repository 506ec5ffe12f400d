//! What the rest of the broker holds of a session.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use broker_proto::v1;
use broker_secret::Sensitive;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{Call, End, Oddities, Record, Times, machine::Machine};
use crate::{
    auth::{Identity, Territory},
    catalog::SecretName,
    driver::{ConnectionId, DriverKey, Instance, MachineId, SessionId, Verb},
    metrics::Metrics,
    operation::{self, Answer},
};

/// Room for commands that are not operations.
const SPARE_COMMANDS: usize = 64;

/// What is known of a driver from its registration on.
#[derive(Debug)]
pub struct Info {
    pub id: SessionId,
    /// Proves in class and secret questions that they come from this session.
    pub token: Token,
    pub name: String,
    pub keys: Vec<DriverKey>,
    /// Where it may serve each of them.
    pub territory: Territory,
    /// Who it proved to be.
    pub identity: Identity,
    pub instance: Instance,
    pub version: String,
    /// 0: the protocol of 2018.
    pub protocol: u32,
    pub verbs: Vec<Verb>,
    pub capacity: usize,
    /// Whether it answers a repeated request from memory after a reconnect.
    pub resumes: bool,
    pub connection: ConnectionId,
    pub address: Arc<str>,
    pub connected_at: SystemTime,
    /// How many sessions it took the place of.
    pub takeovers: AtomicU32,
}

/// 128 random bits that a driver got in its Welcome. Not printable, and wiped when its session is gone.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Sensitive);

impl Token {
    pub fn random() -> Self {
        Self(Sensitive::new(format!("{:032x}", rand::random::<u128>())))
    }

    /// For the Welcome frame alone.
    pub fn reveal(&self) -> &str {
        self.0.as_str().expect("made of a string")
    }
}

impl From<String> for Token {
    fn from(token: String) -> Self {
        Self(Sensitive::new(token))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

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

pub(super) enum Command {
    Submit(Box<Call<Admitted>>),
    Probe(oneshot::Sender<()>),
    Drain { reason: String, after: Duration },
    SecretChanged { namespace: String, name: String },
    Peers(v1::Peers),
    Forget(MachineId),
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Command")
    }
}

/// Cheap to clone: every clone is the same session.
#[derive(Clone, Debug)]
pub struct SessionHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    info: Info,
    times: Times,
    born: Instant,
    commands: mpsc::Sender<Command>,
    end: mpsc::Sender<End>,
    limit: usize,
    metrics: Metrics,
    /// Operations that were taken on and are not settled.
    admitted: AtomicUsize,
    sweep: Notify,
    // The rest is what the task last published.
    heard: AtomicU64,
    accept_due: AtomicU64,
    round_trip: AtomicU64,
    in_flight: AtomicUsize,
    queued: AtomicUsize,
    draining: AtomicBool,
    drain_reason: Mutex<&'static str>,
    record: Mutex<Record>,
    oddities: Mutex<Oddities>,
    ended: OnceLock<Ended>,
}

/// The first word that ends a session wins.
#[derive(Debug)]
pub(super) struct Ends(mpsc::Receiver<End>);

impl Ends {
    pub(super) async fn recv(&mut self) -> End {
        self.0.recv().await.unwrap_or(End::ShutDown)
    }
}

const NEVER: u64 = u64::MAX;

impl SessionHandle {
    pub(super) fn new(
        info: Info,
        times: Times,
        limit: usize,
        metrics: Metrics,
    ) -> (Self, mpsc::Receiver<Command>, Ends) {
        let (commands, received) = mpsc::channel(limit.saturating_add(SPARE_COMMANDS));
        let (end, ends) = mpsc::channel(1);
        let shared = Shared {
            info,
            times,
            born: Instant::now(),
            commands,
            end,
            limit,
            metrics,
            admitted: AtomicUsize::new(0),
            sweep: Notify::new(),
            heard: AtomicU64::new(0),
            accept_due: AtomicU64::new(NEVER),
            round_trip: AtomicU64::new(NEVER),
            in_flight: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            drain_reason: Mutex::new(""),
            record: Mutex::default(),
            oddities: Mutex::new(Oddities::default()),
            ended: OnceLock::new(),
        };
        (Self(Arc::new(shared)), received, Ends(ends))
    }

    pub fn info(&self) -> &Info {
        &self.0.info
    }

    pub fn is_native(&self) -> bool {
        self.0.info.protocol > 0
    }

    /// Hands an operation over. It is NOT_SENT until its frame goes out.
    /// Where it is refused, the dropped ticket says so to everyone who waits.
    pub fn submit(&self, ticket: operation::Ticket) -> Result<(), Refused> {
        let place = self.admit()?;
        let operation = ticket.operation();
        operation.assign(self.clone());
        let mut params = operation.request.to_params(self.is_native());
        if self.is_native() && operation.request.verb.is_mutation() {
            let unchanged = operation.unchanged_for(&self.info().instance);
            params.recall_within = unchanged.and_then(|unchanged| unchanged.try_into().ok());
        }
        let call =
            Call { verb: operation.request.verb, params, ticket: Admitted { ticket, place } };
        // There is a place for each admitted operation, so only a finished session refuses here.
        self.0.commands.try_send(Command::Submit(Box::new(call))).map_err(|_| Refused::Gone)
    }

    fn admit(&self) -> Result<Place, Refused> {
        let taken = self.0.admitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, |admitted| {
            (admitted < self.0.limit).then_some(admitted + 1)
        });
        taken.map(|_| Place(self.clone())).map_err(|_| Refused::Full)
    }

    /// Somebody joined or left the callers of some operation: the driver may have to be told.
    pub fn callers_changed(&self) {
        self.0.sweep.notify_one();
    }

    pub(super) async fn swept(&self) {
        self.0.sweep.notified().await;
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
        self.0.commands.try_send(Command::Probe(proven)).ok()?;
        timeout(patience, proof).await.ok()?.ok()?;
        Some(sent.elapsed())
    }

    /// Ends the session. Its callers are told at once; frames it still sends go nowhere.
    pub fn end(&self, why: End) {
        // Full means that an earlier word already ends it; closed, that it is over.
        drop(self.0.end.try_send(why));
    }

    /// Gives the session no more work; a driver that understands it is told to leave after `after`.
    pub fn drain(&self, reason: &str, after: Duration) {
        self.note_draining("was asked to leave");
        let command = Command::Drain { reason: reason.to_owned(), after };
        if self.0.commands.try_send(command).is_err() {
            tracing::debug!(session = %self.info().id, "too busy to be told to drain");
        }
    }

    /// Best effort: each operation carries the secret's revision as well.
    pub fn secret_changed(&self, secret: &SecretName) {
        let command = Command::SecretChanged {
            namespace: secret.namespace.to_string(),
            name: secret.name.to_string(),
        };
        if self.0.commands.try_send(command).is_err() {
            tracing::debug!(session = %self.info().id, "too busy to be told of a rotated secret");
        }
    }

    /// Tells a native driver of the other replicas. Says whether there was room to.
    pub fn peers_changed(&self, peers: &v1::Peers) -> bool {
        if !self.is_native() {
            return true;
        }
        // The places of operations are not to be taken.
        self.0.commands.capacity() > self.0.limit
            && self.0.commands.try_send(Command::Peers(peers.clone())).is_ok()
            || self.0.commands.is_closed()
    }

    /// Another instance changes the machine: what this one remembers of it is not true any more. Best
    /// effort, as each operation says how old a memory may be; it matters when this broker is gone.
    pub fn forget(&self, machine: MachineId) {
        // The places of operations are not to be taken.
        let spare = self.is_native() && self.0.commands.capacity() > self.0.limit;
        if !spare || self.0.commands.try_send(Command::Forget(machine)).is_err() {
            tracing::debug!(session = %self.info().id, "not told of a machine that moved");
        }
    }

    /// Computed from when it was last heard, not from when somebody last looked.
    pub fn health(&self) -> Health {
        let shared = &self.0;
        if shared.draining.load(Ordering::Acquire) {
            return Health::Draining(*shared.drain_reason.lock().expect("no panic while locked"));
        }
        if self.is_silent() {
            return Health::Suspect("has not been heard of for too long");
        }
        if self.micros(Instant::now()) >= shared.accept_due.load(Ordering::Acquire) {
            return Health::Suspect("does not accept what it is sent");
        }
        Health::Ready
    }

    pub fn is_silent(&self) -> bool {
        self.is_native() && self.last_heard() >= self.0.times.suspect_after
    }

    pub fn last_heard(&self) -> Duration {
        let heard = Duration::from_micros(self.0.heard.load(Ordering::Acquire));
        self.0.born.elapsed().saturating_sub(heard)
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
        self.0.in_flight.load(Ordering::Acquire)
    }

    pub fn queued(&self) -> usize {
        self.0.queued.load(Ordering::Acquire)
    }

    pub fn oddities(&self) -> Oddities {
        *self.0.oddities.lock().expect("no panic while locked")
    }

    /// What it has done so far.
    pub fn record(&self) -> Record {
        self.0.record.lock().expect("no panic while locked").clone()
    }

    pub fn fails_from_the_start(&self) -> bool {
        self.0.record.lock().expect("no panic while locked").fails_from_the_start()
    }

    /// Since when and why it is over, if it is.
    pub fn ended(&self) -> Option<&Ended> {
        self.0.ended.get()
    }

    /// It is over, or about to be: the first word counts.
    pub fn note_end(&self, why: &str) {
        self.0.ended.get_or_init(|| Ended { at: SystemTime::now(), why: why.to_owned() });
    }

    pub(super) fn note_draining(&self, reason: &'static str) {
        *self.0.drain_reason.lock().expect("no panic while locked") = reason;
        self.0.draining.store(true, Ordering::Release);
    }

    pub(super) fn note_round_trip(&self, round_trip: Option<Duration>) {
        if let Some(round_trip) = round_trip {
            let micros = u64::try_from(round_trip.as_micros()).unwrap_or(NEVER - 1);
            self.0.round_trip.store(micros, Ordering::Relaxed);
        }
    }

    /// Lets others read what the task knows.
    pub(super) fn publish(&self, machine: &mut Machine<Admitted>) {
        let shared = &self.0;
        shared.heard.store(self.micros(machine.heard()), Ordering::Release);
        let due = machine.accept_due().map_or(NEVER, |due| self.micros(due));
        shared.accept_due.store(due, Ordering::Release);
        shared.in_flight.store(machine.in_flight(), Ordering::Release);
        shared.queued.store(machine.queued(), Ordering::Release);
        let (before, oddities) = (self.oddities(), machine.oddities());
        if oddities != before {
            shared.metrics.odd_frames(before, oddities);
            *shared.oddities.lock().expect("no panic while locked") = oddities;
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        let age = at.saturating_duration_since(self.0.born);
        u64::try_from(age.as_micros()).unwrap_or(NEVER - 1)
    }
}

/// A place among the operations a session may have; given back when the operation is settled.
#[derive(Debug)]
struct Place(SessionHandle);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.admitted.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An operation's ticket with its place in the session.
#[derive(Debug)]
pub(super) struct Admitted {
    ticket: operation::Ticket,
    place: Place,
}

impl super::Ticket for Admitted {
    fn is_wanted(&self) -> bool {
        self.ticket.is_wanted()
    }

    fn deadline(&self) -> Instant {
        self.ticket.deadline()
    }

    fn sent(&self) {
        self.ticket.sent();
    }

    fn accepted(&self) {
        self.ticket.accepted();
    }

    fn answered(self, answer: Answer) {
        let record = &self.place.0.0.record;
        record.lock().expect("no panic while locked").note(&answer, SystemTime::now());
        // The place first: a caller that hears the answer may submit the next operation at once.
        drop(self.place);
        self.ticket.answered(answer);
    }

    fn refused(self) {
        drop(self.place);
        self.ticket.refused();
    }
}
