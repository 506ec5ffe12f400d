//! An operation in, its answer out: resolve, find a driver, send, wait, give up.
//!
//! Everything between looking at the ledger and handing the operation to a session is synchronous, so
//! a caller that goes away leaves nothing half done. A caller that joined another's operation needs no
//! help from it: whoever still waits when an operation comes back unsent starts it anew.

mod account;
mod class_name;
mod error;
mod resolve;
mod step;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{Instrument as _, Span, field};

use self::{
    account::Account,
    step::{Pause, Step},
};
pub use self::{
    class_name::{ClassName, ClassNames},
    error::{Error, Sighting},
    resolve::{Ask, Origin},
    step::{Begun, Later, Waiting},
};
use crate::{
    audit::Audit,
    catalog::Catalog,
    driver::{DriverKey, Verb},
    metrics::Metrics,
    operation::{Answer, Claim, Code, Delivery, Ledger, Outcome, Request, Ticket, Trace, Waiter},
    registry::{Holder, Missing, Registry, Wanted},
    replicas::Replicas,
    session::{Health, Refused, SessionHandle},
};

/// The longest total time a caller can have.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How often an operation that no driver got to see is tried again.
const ATTEMPTS: u32 = 5;
/// How often a caller that waits for a driver looks again without being told of a change, since a
/// suspect driver that recovers tells nobody.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Cheap to clone: every clone is the same dispatcher.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    registry: Registry,
    ledger: Ledger,
    catalog: Arc<dyn Catalog>,
    stopping: Arc<AtomicBool>,
    settle: Duration,
    metrics: Metrics,
    audit: Audit,
    /// Where a driver may be that is not here.
    replicas: Replicas,
}

impl Dispatcher {
    /// After a start, changes of machines wait for `settle`, so that drivers can return.
    pub fn new(
        registry: Registry,
        ledger: Ledger,
        catalog: Arc<dyn Catalog>,
        settle: Duration,
        metrics: Metrics,
        audit: Audit,
    ) -> Self {
        let stopping = Arc::default();
        let replicas = Replicas::new("", None);
        Self { registry, ledger, catalog, stopping, settle, metrics, audit, replicas }
    }

    /// Whose callers are told which of these replicas has a driver that is not here.
    pub fn among(self, replicas: Replicas) -> Self {
        Self { replicas, ..self }
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Takes on no new operations from now on; those that run go on.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Executes what a caller asks, within its `timeout` or the verb's default.
    pub async fn execute(
        &self,
        ask: Box<Ask>,
        timeout: Option<Duration>,
    ) -> Result<Answered, Error> {
        let mut begun = self.begin(ask, timeout, Instant::now());
        loop {
            begun = match begun {
                Begun::Over(result) => return result,
                Begun::Waiting(waiting) => {
                    let outcome = waiting.outcome().await;
                    self.judged(waiting, outcome, Instant::now())
                }
                Begun::Later(later) => return later.await,
            };
        }
    }

    /// The same for who has many at once: begins, and leaves the waiting to the caller.
    pub fn begin(&self, ask: Box<Ask>, timeout: Option<Duration>, now: Instant) -> Begun {
        let (mut account, deadline) = self.open(ask, timeout, now);
        let span = account.span.clone();
        span.in_scope(|| match self.step(&mut account, (now, deadline)) {
            Step::Over(result) => Begun::Over(self.close(account, result, now)),
            Step::Waiting(waiter) => Begun::Waiting(Waiting { account, waiter, deadline }),
            step @ Step::Pause(_) => Begun::Later(self.later(account, deadline, step)),
        })
    }

    /// Goes on with what was begun, when it is over or its time is.
    pub fn conclude(&self, waiting: Waiting, now: Instant) -> Begun {
        let outcome = waiting.waiter.heard();
        self.judged(waiting, outcome, now)
    }

    fn judged(&self, waiting: Waiting, outcome: Option<Outcome>, now: Instant) -> Begun {
        let Waiting { mut account, waiter, deadline } = waiting;
        let span = account.span.clone();
        span.in_scope(|| match Self::judge(&mut account, &waiter, outcome) {
            Step::Over(result) => Begun::Over(self.close(account, result, now)),
            step => Begun::Later(self.later(account, deadline, step)),
        })
    }

    fn later(&self, account: Account, deadline: Instant, step: Step) -> Later {
        let (dispatcher, span) = (self.clone(), account.span.clone());
        async move { dispatcher.run(account, deadline, step).await }.instrument(span).boxed()
    }

    fn open(
        &self,
        mut ask: Box<Ask>,
        timeout: Option<Duration>,
        now: Instant,
    ) -> (Account, Instant) {
        let timeout = timeout.unwrap_or_else(|| default_timeout(ask.verb)).min(LONGEST);
        let span = tracing::debug_span!(
            "operation",
            otel.kind = field::Empty,
            id = field::Empty,
            verb = ask.verb.as_str(),
            class = field::Empty,
            machine = field::Empty,
            driver = field::Empty,
            trace = field::Empty
        );
        // What a driver does for us belongs below our span, if that is exported.
        ask.trace = Trace::through(&span, ask.trace);
        if let Some(trace) = &ask.trace {
            span.record("trace", trace.id());
        }
        let account = Account::open(self.audit.clone(), ask, span, now);
        let deadline = now + timeout;
        (account, deadline)
    }

    /// Writes down that a request was turned away before it was looked at.
    pub fn refused(&self, ask: Box<Ask>, error: Error) -> Error {
        let now = Instant::now();
        Account::open(self.audit.clone(), ask, Span::current(), now).close(Err(&error), now);
        error
    }

    fn close(
        &self,
        account: Account,
        result: Result<Answered, Error>,
        now: Instant,
    ) -> Result<Answered, Error> {
        if let Err(error) = &result {
            self.metrics.request_failed(&account.ask.class.kind, error);
        }
        account.close(result.as_ref(), now);
        result
    }

    async fn run(
        &self,
        mut account: Account,
        deadline: Instant,
        mut step: Step,
    ) -> Result<Answered, Error> {
        let result = loop {
            step = match step {
                Step::Over(result) => break result,
                Step::Waiting(waiter) => {
                    let outcome = waiter.outcome_by(deadline).await;
                    Self::judge(&mut account, &waiter, outcome)
                }
                Step::Pause(pause) => {
                    if let Err(error) = self.pass(pause, &account, deadline).await {
                        break Err(error);
                    }
                    self.step(&mut account, (Instant::now(), deadline))
                }
            };
        };
        self.close(account, result, Instant::now())
    }

    /// Returns when another attempt may go better.
    async fn pass(&self, pause: Pause, account: &Account, deadline: Instant) -> Result<(), Error> {
        match pause {
            // Lets whoever is about to leave do so.
            Pause::Moment => tokio::task::yield_now().await,
            Pause::NoDriver(error) => {
                let kind = &account.ask.class.kind;
                let _waiting = error.knows_kind().then(|| self.metrics.waits_for_driver(kind));
                self.wait_for_change(deadline).await.map_err(|()| error)?;
            }
            Pause::TooEarly(until) => sleep_until(until).await,
        }
        Ok(())
    }

    /// One attempt, up to where it has to be waited for.
    fn step(&self, account: &mut Account, (now, deadline): (Instant, Instant)) -> Step {
        match self.start(account, (now, deadline)) {
            Ok(Started::Waiting(waiter)) => Step::Waiting(waiter),
            Ok(Started::TooEarly(until)) if until < deadline => Step::Pause(Pause::TooEarly(until)),
            Ok(Started::TooEarly(_)) => Step::Over(Err(Error::Settling)),
            Ok(Started::Remembered(answer)) => Step::Over(Ok(Answered { answer, seen: None })),
            Err(error @ Error::Lost(_)) => Step::again(account, error),
            Err(error) if error.passes_with_a_driver() => {
                let error = error.among(&self.replicas);
                if account.ask.wait_for_driver {
                    Step::Pause(Pause::NoDriver(error))
                } else {
                    Step::Over(Err(error))
                }
            }
            Err(error) => Step::Over(Err(error)),
        }
    }

    /// What to make of the end of an operation, or of there being none in time.
    fn judge(account: &mut Account, waiter: &Waiter, outcome: Option<Outcome>) -> Step {
        let operation = waiter.operation();
        match outcome {
            None => Step::Over(Err(Error::Deadline(operation.into()))),
            // It was cancelled for those who waited before us.
            Some(Outcome::Answered(answer))
                if answer.code == Code::CANCELLED && operation.was_abandoned() =>
            {
                Step::again(account, Error::Lost(operation.into()))
            }
            Some(Outcome::Answered(answer)) => {
                let seen = (!answer.code.is_ok()).then(|| operation.into());
                Step::Over(Ok(Answered { answer, seen }))
            }
            Some(Outcome::Lost) if operation.delivery() == Delivery::NotSent => {
                Step::again(account, Error::Lost(operation.into()))
            }
            Some(Outcome::Lost) => Step::Over(Err(Error::Lost(operation.into()))),
        }
    }

    /// Starts the operation, or joins the one that runs. Synchronous from end to end.
    fn start(
        &self,
        account: &mut Account,
        (now, deadline): (Instant, Instant),
    ) -> Result<Started, Error> {
        account.operation = None;
        if self.stopping.load(Ordering::Acquire) {
            return Err(Error::Stopping);
        }
        let request = account.ask.resolve(&*self.catalog, &self.registry)?;
        let request = Request { attempt: account.attempt, ..request };
        if now >= deadline {
            return Err(Error::TooLate);
        }
        if let Some(until) = self.settles_at(&request, now) {
            return Ok(Started::TooEarly(until));
        }
        let operation = if request.verb.is_mutation() {
            match self.ledger.claim(request, (now, deadline)).map_err(Error::Conflict)? {
                Claim::Start(operation) => operation,
                Claim::Join(operation) => {
                    account.meets(&operation);
                    return Ok(Started::Waiting(operation.wait()));
                }
                Claim::Remembered(answer) => return Ok(Started::Remembered(answer)),
            }
        } else {
            self.ledger.open(request, (now, deadline))
        };
        account.meets(&operation);
        let waiter = operation.wait();
        // From here on the ticket settles the operation on every way out.
        let ticket = Ticket::new(operation);
        let session = self.place(&ticket, now)?;
        // Looked at once more: the first driver to return says so and takes its seat, and we may have
        // looked before the one and found it after the other.
        if let Some(until) = self.settles_at(&ticket.operation().request, now) {
            return Ok(Started::TooEarly(until));
        }
        self.note_move(&ticket, &session);
        session.submit(ticket, now).map_err(|refused| match refused {
            Refused::Full => Error::Busy(waiter.operation().into(), session.info().capacity),
            Refused::Gone => Error::Lost(waiter.operation().into()),
        })?;
        Ok(Started::Waiting(waiter))
    }

    /// When drivers that may be on their way back have had their time, if that is to come.
    fn settles_at(&self, request: &Request, now: Instant) -> Option<Instant> {
        if !request.verb.is_mutation() {
            return None;
        }
        let settled = self.registry.settling_since(&request.key) + self.settle;
        (now < settled).then_some(settled)
    }

    /// Tells who changed the machine before that another does now.
    fn note_move(&self, ticket: &Ticket, to: &SessionHandle) {
        let (operation, instance) = (ticket.operation(), &to.info().instance);
        let request = &operation.request;
        if request.verb.is_mutation()
            && let Some(from) = self.ledger.last_served_by_another(operation, instance)
            && let Some(from) = self.registry.seated(&request.key, &from)
        {
            from.forget(request.machine.clone());
        }
    }

    /// The session for an operation.
    fn place(&self, ticket: &Ticket, now: Instant) -> Result<SessionHandle, Error> {
        let request = &ticket.operation().request;
        let may = |session: &SessionHandle, key: &DriverKey| {
            session.info().territory.contains(key, &request.class.id.namespace)
        };
        // A driver of another provider has another machine of the same name, or makes it up.
        let hold = ticket.operation().hold.as_deref().filter(|hold| {
            hold.key.provider.is_none() || hold.key.provider == request.class.key.provider
        });
        let session = match hold {
            None => self.choose(request, now)?,
            Some(hold) => match self.registry.holder(hold) {
                Holder::Free => self.choose(request, now)?,
                Holder::Back(session)
                    if session.health_at(now) == Health::Ready && may(&session, &hold.key) =>
                {
                    session
                }
                Holder::Back(_) if hold.is_over => self.choose(request, now)?,
                Holder::Back(_) | Holder::Away => {
                    return Err(Error::Away { hold: Box::new(hold.clone()), verb: request.verb });
                }
            },
        };
        // A driver of 2018 is given nothing but the provider's id to delete by.
        let nameless = request.verb == Verb::Delete && request.words.provider_id.is_empty();
        if nameless && !session.is_native() {
            return Err(Error::ProviderIdRequired { machine: request.machine.name.clone() });
        }
        Ok(session)
    }

    fn choose(&self, request: &Request, now: Instant) -> Result<SessionHandle, Error> {
        let machine = request.verb.is_mutation().then_some(&request.machine);
        let key = &request.key;
        let namespace = &request.class.id.namespace;
        let wanted = Wanted { key, namespace, verb: request.verb, machine, now };
        self.registry.choose(wanted).map_err(|missing| match missing {
            Missing::NoDriver => {
                let connected = self.registry.keys();
                Error::NoDriver {
                    wanted: DriverKey::clone(key),
                    connected,
                    is_known: true,
                    elsewhere: Vec::new(),
                }
            }
            Missing::NoneReady(why) => Error::NoneReady { key: DriverKey::clone(key), why },
            Missing::Unsupported => {
                Error::Unsupported { key: DriverKey::clone(key), verb: request.verb }
            }
        })
    }

    /// Returns when looking for a driver again may help, or with an error at the deadline.
    async fn wait_for_change(&self, deadline: Instant) -> Result<(), ()> {
        let mut changes = self.registry.changes();
        let change = async {
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep(LOOK_AGAIN) => {}
            }
        };
        timeout_at(deadline, change).await.map_err(|_| ())
    }
}

/// A driver's answer.
#[derive(Debug)]
pub struct Answered {
    pub answer: Arc<Answer>,
    /// Where a failure came from, unless it was kept from an earlier request.
    pub seen: Option<Sighting>,
}

enum Started {
    Waiting(Waiter),
    /// Drivers are still on their way back.
    TooEarly(Instant),
    Remembered(Arc<Answer>),
}

fn default_timeout(verb: Verb) -> Duration {
    match verb {
        Verb::Create | Verb::Delete | Verb::Initialize => Duration::from_secs(20 * 60),
        Verb::List | Verb::GetStatus | Verb::GetVolumeIds => Duration::from_secs(2 * 60),
    }
}
