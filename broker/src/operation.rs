//! One request on its way to an answer.
//!
//! An [`Operation`] is shared by the callers that wait for it and the session that runs it. It is
//! settled exactly once: with the driver's answer, or as lost. The session holds it through a
//! [`Ticket`], which settles it as lost when dropped, however the session ended. The
//! [`Ledger`] knows all operations, and which machine each of them works on.

mod answer;
mod end;
mod ledger;
pub mod pace;
mod recent;
mod request;
mod ticket;
mod trace;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures::future::poll_fn;
use tokio::time::{Instant, timeout_at};

pub use self::{
    answer::{Answer, Code, Payload, duration, shortened},
    end::Bell,
    ledger::{Claim, Conflict, Hold, Ledger},
    recent::Finished,
    request::{Request, Words},
    ticket::Ticket,
    trace::Trace,
};
use self::{end::End, ledger::Page};
use crate::{
    driver::{Instance, OperationId, SessionId},
    session::SessionHandle,
};

/// For how long the clock on the wall is taken to go on as it did.
const MOMENT: Duration = Duration::from_secs(1);

/// How far an operation got: what a caller may assume when no answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Delivery {
    /// Nothing reached a driver: safe to retry anywhere.
    NotSent,
    /// On its way to a driver: the outcome is unknown.
    Sent,
    /// A driver said that it started: the outcome is unknown.
    Accepted,
    /// The driver answered.
    Answered,
}

impl Delivery {
    pub fn as_str(self) -> &'static str {
        match self {
            Delivery::NotSent => "NOT_SENT",
            Delivery::Sent => "SENT",
            Delivery::Accepted => "ACCEPTED",
            Delivery::Answered => "ANSWERED",
        }
    }
}

/// How an operation ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    Answered(Arc<Answer>),
    /// No answer will come. How far it got is in [`Operation::delivery`].
    Lost,
}

/// One execution of a request by one driver.
#[derive(Debug)]
pub struct Operation {
    pub id: OperationId,
    pub request: Request,
    pub submitted: Instant,
    pub submitted_at: SystemTime,
    /// Where an earlier operation on this machine may still run.
    pub hold: Option<Box<Hold>>,
    ledger: Ledger,
    /// What is written down of its machine, if it changes that.
    page: Option<Arc<Page>>,
    /// When whoever asked for it gives up.
    deadline: Instant,
    /// How much longer somebody waits who joined, in nanoseconds.
    extended: AtomicU64,
    session: OnceLock<SessionHandle>,
    delivery: AtomicU8,
    /// How long after its submission it was sent, and accepted.
    sent_after: After,
    accepted_after: After,
    /// A driver said that it began it.
    begun: AtomicBool,
    waiting: Crowd,
    abandoned: AtomicBool,
    heard: AtomicBool,
    end: End,
}

impl Operation {
    fn new(
        ledger: Ledger,
        id: OperationId,
        request: Request,
        (now, deadline): (Instant, Instant),
        hold: Option<Box<Hold>>,
        page: Option<Arc<Page>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            request,
            hold,
            submitted: now,
            submitted_at: SystemTime::now(),
            ledger,
            page,
            deadline,
            extended: AtomicU64::new(0),
            session: OnceLock::new(),
            delivery: AtomicU8::new(Delivery::NotSent as u8),
            sent_after: After::default(),
            accepted_after: After::default(),
            begun: AtomicBool::new(false),
            waiting: Crowd::default(),
            abandoned: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            end: End::default(),
        })
    }

    pub fn delivery(&self) -> Delivery {
        match self.delivery.load(Ordering::Acquire) {
            0 => Delivery::NotSent,
            1 => Delivery::Sent,
            2 => Delivery::Accepted,
            _ => Delivery::Answered,
        }
    }

    /// When the last of those who wait gives up.
    pub fn deadline(&self) -> Instant {
        match self.extended.load(Ordering::Acquire) {
            0 => self.deadline,
            longer => self.deadline + Duration::from_nanos(longer),
        }
    }

    /// Someone joins who waits until `deadline`. If that is longer than the driver knows of, it is told.
    fn extend(&self, deadline: Instant) {
        let longer = nanos(deadline.saturating_duration_since(self.deadline));
        if self.extended.fetch_max(longer, Ordering::AcqRel) < longer
            && let Some(session) = self.session()
        {
            session.callers_changed();
        }
    }

    /// It got as far as this, so long after its submission. Only its ticket says so, and there is one:
    /// nobody else writes what is read here.
    fn advance(&self, delivery: Delivery, after: Duration) {
        if delivery > self.delivery() {
            self.delivery.store(delivery as u8, Ordering::Release);
        }
        if delivery >= Delivery::Sent {
            self.sent_after.set(after);
        }
        if delivery >= Delivery::Accepted {
            self.accepted_after.set(after);
        }
    }

    /// How long it waited until its frame went out.
    pub fn sent_after(&self) -> Option<Duration> {
        self.sent_after.get()
    }

    /// How long it took until the driver accepted it.
    pub fn accepted_after(&self) -> Option<Duration> {
        self.accepted_after.get()
    }

    /// Says which session runs it. An operation meets one session in its life.
    pub fn assign(&self, session: SessionHandle) {
        // A second assignment would be a bug of dispatch; the first one stays in force.
        drop(self.session.set(session));
    }

    pub fn session(&self) -> Option<&SessionHandle> {
        self.session.get()
    }

    pub fn session_id(&self) -> Option<SessionId> {
        self.session.get().map(|session| session.info().id)
    }

    /// What the clock on the wall shows at `now`. It is not looked at again if that is but a moment after
    /// the submission: it may be set in the meantime, but is then soon right.
    pub fn wall_clock_at(&self, now: Instant) -> SystemTime {
        let age = now.saturating_duration_since(self.submitted);
        if age < MOMENT { self.submitted_at + age } else { SystemTime::now() }
    }

    /// Whether a caller still waits for it.
    pub fn is_wanted(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether at some time nobody waited for it, so that the driver was told to stop.
    pub fn was_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// For how long nobody but `instance` has changed the machine; `None` for ever.
    pub fn unchanged_for(&self, instance: &Instance, now: Instant) -> Option<Duration> {
        self.ledger.unchanged_for(self, instance, now)
    }

    /// Whether a driver said that it began it. A failure without was a refusal; a success may come without.
    fn was_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Joins the callers that wait. Dropping the [`Waiter`] leaves them; when the last one left, the
    /// driver is told to stop.
    pub fn wait(self: &Arc<Self>) -> Waiter {
        Waiter { operation: Arc::clone(self), number: self.waiting.join() }
    }

    fn settle(&self, outcome: Outcome, now: Instant) {
        let took = now - self.submitted;
        if let Outcome::Answered(_) = outcome {
            self.advance(Delivery::Answered, took);
        }
        // The ledger goes first: a caller that retries at once must not meet the ended operation.
        self.ledger.close(self, &outcome, (now, took));
        self.end.come(outcome);
        if !self.is_wanted()
            && let Some(outcome) = self.end.outcome()
        {
            self.ledger.unheard(self, &outcome);
            if let Outcome::Answered(answer) = outcome {
                self.ledger.keep(self, &answer);
            }
        }
    }
}

/// A time that is set once, in nanoseconds; none so far.
#[derive(Debug)]
struct After(AtomicU64);

const NOT_YET: u64 = u64::MAX;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NOT_YET - 1)
}

impl Default for After {
    fn default() -> Self {
        Self(AtomicU64::new(NOT_YET))
    }
}

impl After {
    fn get(&self) -> Option<Duration> {
        let nanos = self.0.load(Ordering::Acquire);
        (nanos != NOT_YET).then(|| Duration::from_nanos(nanos))
    }

    /// The first word counts. One at a time may say it.
    fn set(&self, after: Duration) {
        if self.0.load(Ordering::Acquire) == NOT_YET {
            self.0.store(nanos(after), Ordering::Release);
        }
    }
}

/// Those who wait: below, how many they are; above, how many there ever were, which is the number of the
/// next one.
#[derive(Debug, Default)]
struct Crowd(AtomicU64);

const NEXT: u64 = 1 << 32;

impl Crowd {
    /// One more is there, with this number.
    fn join(&self) -> u64 {
        self.0.fetch_add(NEXT + 1, Ordering::AcqRel) / NEXT
    }

    /// One leaves. Says whether it was the last.
    fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) % NEXT == 1
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire).is_multiple_of(NEXT)
    }
}

/// A caller waiting for an operation.
#[derive(Debug)]
pub struct Waiter {
    operation: Arc<Operation>,
    number: u64,
}

impl Waiter {
    pub fn operation(&self) -> &Arc<Operation> {
        &self.operation
    }

    pub async fn outcome(&self) -> Outcome {
        let outcome = poll_fn(|context| self.operation.end.poll(self.number, context)).await;
        self.operation.heard.store(true, Ordering::Release);
        outcome
    }

    /// The outcome, if it is over by then.
    pub async fn outcome_by(&self, deadline: Instant) -> Option<Outcome> {
        timeout_at(deadline, self.outcome()).await.ok()
    }

    pub fn is_over(&self) -> bool {
        self.operation.end.has_come()
    }

    /// The outcome, if it is over.
    pub fn heard(&self) -> Option<Outcome> {
        let outcome = self.operation.end.outcome();
        if outcome.is_some() {
            self.operation.heard.store(true, Ordering::Release);
        }
        outcome
    }

    /// Rings the bell with `number` once it is over, instead of a task of its own that waits.
    pub fn listen(&self, bell: Arc<Bell>, number: usize) {
        self.operation.end.listen(self.number, bell, number);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let operation = &self.operation;
        let is_last = operation.waiting.leave();
        if !is_last {
            operation.end.ignore(self.number);
            return;
        }
        if operation.heard.load(Ordering::Acquire) {
            return;
        }
        // Before looking at the end: either it is seen here, or whoever settles it sees that we left.
        operation.end.ignore(self.number);
        match operation.end.outcome() {
            // It was settled as the last caller left: nobody heard.
            Some(Outcome::Answered(answer)) => operation.ledger.keep(operation, &answer),
            Some(Outcome::Lost) => {}
            None => {
                operation.abandoned.store(true, Ordering::Release);
                if let Some(session) = operation.session() {
                    session.callers_changed();
                }
            }
        }
    }
}
