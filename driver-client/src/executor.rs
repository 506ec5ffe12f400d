//! Runs the driver's code: one task per execution that takes time, up to the capacity, bounded in time.
//!
//! Shared by all sessions. A session [submits](Executor::submit) what it is asked, has all that came
//! together [begin](Executor::begin) together, and hears of it with its [`Ears`]. What exceeds the
//! capacity, which can only happen with several brokers, waits for [`QUEUE_WAIT`] and is then refused
//! with `RESOURCE_EXHAUSTED`: shorter than a broker waits for Accepted, so that it never takes a full
//! driver for a dead one.

mod call;
mod round;
mod running;
mod trace;

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::yield_now,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

pub(crate) use self::round::Round;
use self::{round::Execution, running::Running};
use crate::{
    Driver,
    answer::{Outcome, bounded},
    error::{Code, Error},
    fleet::Fleet,
    maps::HashMap,
    operation::{Job, Operation},
    operations::{
        AddressId, Begin, ExecutionId, Finished, MachineKey, Orphan, Owed, Recollection, Report,
        Request, Resume, SessionId, Table, Ticket, busy,
    },
};

/// How long an operation waits for a free slot before it is refused.
const QUEUE_WAIT: Duration = Duration::from_secs(3);

/// When a driver that stopped may be there again.
const RETRY_STOPPED: Duration = Duration::from_secs(5);

/// How a session hears of the operations it submitted. Whoever tells holds the executor's lock: what is
/// told of one operation is told in order, and nobody may come back here.
pub(crate) trait Ears: Send + Sync {
    /// What its predecessors left behind, before it hears anything else of it.
    fn takes_over(&self, resume: Resume);
    /// The driver's code is about to run, and may return at once.
    fn started(&self, operation: i32);
    /// It did not.
    fn goes_on(&self, operation: i32);
    /// Without an id it is an operation taken over from an earlier session.
    fn ended(&self, operation: Option<i32>, report: Report) -> Heard;
    fn orphan(&self, orphan: Orphan);
}

/// Whether a session heard of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It is over, and did not.
    No,
    /// It will tell with others.
    Quietly,
    /// Whoever tells the broker was woken.
    Woken,
}

/// What became of a submission.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// The session will hear of it.
    Pending,
    /// It succeeded lately.
    Remembered(Report),
    Refused(Error),
}

pub(crate) struct Executor {
    driver: Arc<dyn Driver>,
    state: Mutex<State>,
    slots: Arc<Semaphore>,
    capacity: usize,
    tasks: TaskTracker,
    cancel_grace: Duration,
    stop: CancellationToken,
    /// Knows which brokers are replicas of one.
    fleet: Arc<Fleet>,
}

struct State {
    table: Table,
    /// What runs, to be steered.
    running: Running,
    sessions: HashMap<SessionId, Seat>,
    next_session: u64,
}

/// A session: with which broker it is, and how it is told.
struct Seat {
    address: AddressId,
    ears: Arc<dyn Ears>,
}

impl Executor {
    pub(crate) fn new(
        driver: Arc<dyn Driver>,
        capacity: usize,
        cancel_grace: Duration,
        stop: CancellationToken,
        fleet: Arc<Fleet>,
    ) -> Self {
        let state = State {
            // As many again may queue.
            table: Table::new(capacity.saturating_mul(2)),
            running: Running::default(),
            sessions: HashMap::default(),
            next_session: 0,
        };
        Self {
            driver,
            state: Mutex::new(state),
            slots: Arc::new(Semaphore::new(capacity)),
            capacity,
            tasks: TaskTracker::new(),
            cancel_grace,
            stop,
            fleet,
        }
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn free_slots(&self) -> usize {
        self.slots.available_permits()
    }

    /// Seats a session: gives it an id and what its predecessors at this address left behind.
    pub(crate) fn join(&self, address: AddressId, ears: Arc<dyn Ears>) -> SessionId {
        let mut state = self.lock();
        let session = SessionId(state.next_session);
        state.next_session += 1;
        ears.takes_over(state.table.resume(address, session));
        state.sessions.insert(session, Seat { address, ears });
        session
    }

    /// Unseats a session. `lost` are the answers it could not, or may not have, delivered.
    pub(crate) fn leave(
        &self,
        address: AddressId,
        session: SessionId,
        lost: Vec<Report>,
        told: Vec<Report>,
    ) {
        let kin = self.fleet.kin(address);
        let mut state = self.lock();
        state.sessions.remove(&session);
        for report in told {
            state.table.told(address, report);
        }
        let (reads, orphaned) = state.table.leave(session);
        for read in reads {
            state.cancel(read);
        }
        for (id, request) in orphaned {
            let told = state.tell(&Orphan::Runs(request), |other| kin.contains(&other));
            state.table.told_of(id, told);
        }
        for report in lost {
            if report.request().verb.mutates() {
                state.tell(&Orphan::Ended(report.clone()), |other| kin.contains(&other));
            }
            state.table.undelivered(address, report);
        }
    }

    /// Takes an operation on. What is executed is put into `round`, to [begin](Executor::begin).
    pub(crate) fn submit(
        self: &Arc<Self>,
        ticket: Ticket,
        job: Job,
        now: Instant,
        round: &Round,
    ) -> Submitted {
        // Nearly always there is a free one.
        let slot = self.slots.clone().try_acquire_owned().ok();
        let mut state = self.lock();
        let State { table, running, sessions, .. } = &mut *state;
        match table.begin(job.request.clone(), ticket, job.deadline, now) {
            Begin::Start(id) => {
                let operation = Operation::new(job);
                running.put(id, operation.clone());
                if slot.is_some() {
                    table.started(id, |ticket| tell(sessions, ticket, |e, id| e.started(id)));
                }
                drop(state);
                round.push(Execution { id, operation, slot });
                Submitted::Pending
            }
            Begin::Joined { execution, started, deadline } => {
                state.postpone(execution, deadline);
                if started {
                    tell(&state.sessions, ticket, |ears, operation| ears.started(operation));
                    tell(&state.sessions, ticket, |ears, operation| ears.goes_on(operation));
                }
                Submitted::Pending
            }
            Begin::Remembered(report) => Submitted::Remembered(report),
            Begin::Refused(error) => Submitted::Refused(error),
        }
    }

    /// Has all in this round begin, one after the other for as long as that takes no time.
    pub(crate) fn begin(self: &Arc<Self>, round: Arc<Round>) {
        // In a box, since the runtime moves what it spawns, and more than once.
        self.tasks.spawn(Box::pin(self.clone().go_round(round)));
    }

    /// Has those begin by themselves that have not begun yet: whoever is before them takes time.
    pub(crate) fn scatter(self: &Arc<Self>, round: &Round) {
        // Those that were taken are still to be waited for.
        let _token = self.tasks.token();
        for execution in round.take() {
            let executor = self.clone();
            self.tasks.spawn(async move { executor.execute(execution).await });
        }
    }

    async fn go_round(self: Arc<Self>, round: Arc<Round>) {
        while let Some(execution) = round.next() {
            let mut execution = pin!(self.execute(execution));
            let polled = futures::poll!(execution.as_mut());
            // The transport, or whoever waits for a slot, may have been woken, to run next on this very
            // thread. Let them: driver code that blocks would keep them, and the heartbeat with
            // them, from running at all.
            match polled {
                Poll::Ready(true) if !round.is_over() => yield_now().await,
                Poll::Ready(_) => {}
                Poll::Pending => {
                    yield_now().await;
                    // What was polled cannot be moved to another task, so the others are.
                    if !round.is_over() {
                        self.begin(round);
                    }
                    execution.await;
                    return;
                }
            }
        }
    }

    /// One of those who asked has someone with them now who waits until `deadline`.
    pub(crate) fn extend(&self, session: SessionId, operation: i32, deadline: Instant) {
        let mut state = self.lock();
        if let Some((execution, deadline)) = state.table.extend(session, operation, deadline) {
            state.postpone(execution, deadline);
        }
    }

    /// One of those who asked does not want the answer any more.
    pub(crate) fn cancel(&self, session: SessionId, operation: i32) {
        let mut state = self.lock();
        if let Some(abandoned) = state.table.cancel(session, operation) {
            state.cancel(abandoned);
        }
    }

    pub(crate) fn recollect(&self, address: AddressId) -> Recollection {
        let kin = self.fleet.kin(address);
        self.lock().table.recollect(address, &kin, Instant::now())
    }

    pub(crate) fn forget(&self, machine: &MachineKey) {
        self.lock().table.forget(machine);
    }

    pub(crate) fn abandon(&self, address: AddressId) {
        self.lock().table.abandon(address);
    }

    pub(crate) fn owes(&self, address: AddressId) -> Owed {
        self.lock().table.owes(address)
    }

    pub(crate) fn waits(&self, session: SessionId) -> bool {
        self.lock().table.waits(session)
    }

    /// Starts nothing new from now on.
    pub(crate) fn close(&self) {
        self.lock().table.close();
    }

    /// Tells everything that runs to stop.
    pub(crate) fn cancel_all(&self) {
        let mut state = self.lock();
        for id in state.table.stop_all() {
            state.cancel(id);
        }
    }

    /// Waits until no driver code runs any more. Drops what still does if `stop` is cancelled.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Says whether somebody was woken by its end.
    async fn execute(&self, execution: Execution) -> bool {
        let Execution { id, operation, slot } = execution;
        let outcome = match slot {
            Some(slot) => self.call(id, &operation, slot).await,
            // In a box, as all that is rare: a task that is small is made quickly.
            None => Box::pin(self.queue(id, &operation)).await,
        };
        // None is left: its slot may have gone to one that waited for it, who was woken.
        let was_awaited = self.slots.available_permits() == 0;
        self.finish(id, bounded(outcome)) | was_awaited
    }

    async fn queue(&self, id: ExecutionId, operation: &Operation) -> Outcome {
        let slot = tokio::select! {
            biased;
            () = operation.cancellation().cancelled() => return Err(cancelled()),
            slot = timeout(QUEUE_WAIT, self.slots.clone().acquire_owned()) => match slot {
                Ok(Ok(slot)) => slot,
                Ok(Err(_)) | Err(_) => return Err(busy()),
            },
        };
        self.started(id);
        self.goes_on(id).await;
        self.call(id, operation, slot).await
    }

    async fn call(
        &self,
        id: ExecutionId,
        operation: &Operation,
        _slot: OwnedSemaphorePermit,
    ) -> Outcome {
        if self.stop.is_cancelled() {
            return Err(stopped());
        }
        if operation.is_cancelled() {
            return Err(cancelled());
        }
        let mut call = pin!(call::call(self.driver(), operation));
        // What ends at once needs no clock and nobody to stop it, and its answer says that it began.
        if let Poll::Ready(outcome) = futures::poll!(call.as_mut()) {
            return outcome;
        }
        self.goes_on(id).await;
        let call = async {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => Err(stopped()),
                outcome = call => outcome,
                code = self.overdue(id, operation) => {
                    Err(Error::new(code, format!("the {} did not end in time", operation.verb())))
                }
            }
        };
        Box::pin(call).await
    }

    /// Returns when the driver has had its chance: the grace time after the cancellation, or after
    /// the deadline, which cancels as well.
    async fn overdue(&self, id: ExecutionId, operation: &Operation) -> Code {
        let code = loop {
            tokio::select! {
                biased;
                () = operation.cancellation().cancelled() => break Code::Cancelled,
                () = sleep_until(operation.deadline()) => {
                    // Someone may have joined at this very moment, with a later deadline.
                    if self.lock().table.expire(id, Instant::now()) {
                        operation.cancellation().cancel();
                        break Code::DeadlineExceeded;
                    }
                }
            }
        };
        sleep(self.cancel_grace).await;
        code
    }

    fn started(&self, id: ExecutionId) {
        let State { table, sessions, .. } = &mut *self.lock();
        table.started(id, |ticket| tell(sessions, ticket, |ears, id| ears.started(id)));
    }

    async fn goes_on(&self, id: ExecutionId) {
        {
            let State { table, sessions, .. } = &mut *self.lock();
            table.started(id, |ticket| tell(sessions, ticket, |ears, id| ears.goes_on(id)));
        }
        // The transport was just woken: as in a round, it goes first.
        yield_now().await;
    }

    /// Says whether somebody was woken by it.
    fn finish(&self, id: ExecutionId, outcome: Outcome) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        let State { table, running, sessions, .. } = &mut *state;
        running.remove(id);
        let Some(finished) = table.finish(id, outcome, now) else { return false };
        let Finished { report, mut waiters, told } = finished;
        let outcome = report.outcome().as_ref().map_or_else(|e| e.code().as_str(), |_| "OK");
        let Request { verb, machine, .. } = report.request();
        debug!(%verb, machine = machine.name(), outcome, "operation ended");
        let (mut may_ask, mut has_woken) = (told, false);
        waiters.retain(|waiter| {
            let Ticket { address, session, operation } = waiter.ticket;
            let seat = session.and_then(|session| sessions.get(&session));
            let heard = seat.map_or(Heard::No, |seat| seat.ears.ended(operation, report.clone()));
            has_woken |= heard == Heard::Woken;
            if heard == Heard::No {
                may_ask.extend(self.fleet.kin(address));
                table.undelivered(address, report.clone());
            }
            heard != Heard::No
        });
        if report.request().verb.mutates() && !may_ask.is_empty() {
            let has_heard = |address| waiters.iter().any(|waiter| waiter.ticket.address == address);
            state.tell(&Orphan::Ended(report), |address| {
                !has_heard(address) && may_ask.contains(&address)
            });
            has_woken = true;
        }
        has_woken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can leave the table half-changed and panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the session of a ticket something. If it is gone, nobody needs to hear it.
fn tell(sessions: &HashMap<SessionId, Seat>, ticket: Ticket, what: impl Fn(&dyn Ears, i32)) {
    if let Some(operation) = ticket.operation
        && let Some(seat) = ticket.session.and_then(|session| sessions.get(&session))
    {
        what(&*seat.ears, operation);
    }
}

fn cancelled() -> Error {
    Error::cancelled("cancelled before it started")
}

/// The answer when the driver stops in the middle of an operation.
///
/// Not `UNAVAILABLE`: gRPC clients take that for "not begun" and send the call again by themselves,
/// perhaps to another driver, while nobody knows how far this one came. `ABORTED` leaves it to the
/// caller, who asks again later and meets an idempotent create or delete.
fn stopped() -> Error {
    Error::new(Code::Aborted, "the driver stopped before the operation ended")
        .with_retry_after(RETRY_STOPPED)
}

impl State {
    fn cancel(&mut self, id: ExecutionId) {
        if let Some(operation) = self.running.get(id) {
            operation.cancellation().cancel();
        }
    }

    fn postpone(&self, id: ExecutionId, deadline: Instant) {
        if let Some(operation) = self.running.get(id) {
            operation.postpone(deadline);
        }
    }

    /// Tells the brokers that `may_know`, and returns which these are.
    fn tell(&self, orphan: &Orphan, may_know: impl Fn(AddressId) -> bool) -> Vec<AddressId> {
        let seats = self.sessions.values().filter(|seat| may_know(seat.address));
        seats
            .map(|seat| {
                seat.ears.orphan(orphan.clone());
                seat.address
            })
            .collect()
    }
}
