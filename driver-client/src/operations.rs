//! The table of operations: what runs now, what succeeded lately, and what no broker was told yet.
//!
//! One table serves all sessions, so that a request that comes again, after a broken stream or
//! through another broker, meets the first one. It is a pure state machine: time comes in as
//! `now`, nothing is spawned or sent here. The [executor](crate::executor) does that around it.
//!
//! The rules:
//!
//! 1. At most one mutating operation runs per machine. An identical request joins it and gets its
//!    answer, a different one is `ABORTED`.
//! 2. Successful mutations are remembered for a while ([`memory`]); an identical request gets the
//!    first answer without being executed, unless the broker says that another instance may have
//!    changed the machine since. Failures are not remembered.
//! 3. Mutations outlive the session they came on. What ends, or still runs, without its session is
//!    handed to the next session of the same broker address ([`Table::resume`]).
//!    Meanwhile every other replica of that broker hears of it as an [`Orphan`]: who waited there may ask
//!    elsewhere.
//! 4. Reads run freely, and are given up together with their session: their caller asks again.

mod key;
mod line;
mod machines;
mod memory;
#[cfg(test)]
mod tests;
mod unreported;

use std::{collections::BTreeSet, time::Duration};

use slab::Slab;
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

pub use self::key::ClassRef;
pub(crate) use self::key::{Fingerprint, MachineKey, Report, Request};
use self::{machines::Place, memory::Memory, unreported::Unreported};
use crate::{
    answer::Outcome,
    error::{Code, Error},
};

/// One broker address that we dial, by the order in which we came to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AddressId(pub(crate) usize);

/// Some brokers, mostly one or none.
pub(crate) type Addresses = SmallVec<[AddressId; 1]>;

/// One session, over all addresses and the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionId(pub(crate) u64);

/// One execution of the driver's code. When it has ended, another may have its id: nobody names one that
/// is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExecutionId(pub(crate) usize);

/// Who waits for an execution's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) address: AddressId,
    /// `None` once the session broke and no other has taken over.
    pub(crate) session: Option<SessionId>,
    /// The id on that session's stream; `None` after a resume, where the key names the operation.
    pub(crate) operation: Option<i32>,
}

/// What was asked for by a broker that we have lost, and that may be asked for through others.
#[derive(Clone, Debug)]
pub(crate) enum Orphan {
    Runs(Request),
    Ended(Report),
}

/// An execution that is over, and who has to hear of it.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) report: Report,
    pub(crate) waiters: Waiters,
    /// The brokers that did not ask, and were told that it runs: they keep others from the machine.
    pub(crate) told: Addresses,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Begin {
    /// Nothing of the kind runs: execute it.
    Start(ExecutionId),
    /// It runs already; the answer will come with that one's.
    Joined { execution: ExecutionId, started: bool, deadline: Instant },
    /// It succeeded lately: this was the answer.
    Remembered(Report),
    /// It is not executed, and this is why.
    Refused(Error),
}

/// What a fresh session has to report.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    pub(crate) ended: Vec<Report>,
    pub(crate) running: Vec<Request>,
}

/// What a broker should know before it decides anything: what runs for it, and the latest end of each
/// machine, well or not.
#[derive(Debug, Default)]
pub(crate) struct Recollection {
    pub(crate) running: Vec<(Request, Elsewhere)>,
    /// The newest first.
    pub(crate) ended: Vec<(Report, Elsewhere)>,
}

/// Whether only other brokers asked for it.
pub(crate) type Elsewhere = bool;

/// What a broker has not been told yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    Nothing,
    /// Only answers of operations that ended.
    Reports,
    /// Answers of operations that still run.
    Running,
}

#[derive(Debug)]
pub(crate) struct Table {
    executions: Slab<Execution>,
    /// A page for each machine: what runs there, and what did.
    memory: Memory,
    unreported: Unreported,
    /// How many executions there may be, running and queued together.
    room: usize,
    /// Draining: nothing new starts.
    closed: bool,
}

#[derive(Debug)]
struct Execution {
    request: Request,
    /// Its machine's page, if it changes the machine: at the end nothing need be looked up.
    page: Option<Place>,
    began: Instant,
    /// The latest of all that wait.
    deadline: Instant,
    /// Has its slot: the driver's code runs.
    started: bool,
    /// Told to stop: whoever joins now would get the answer of someone who gave up.
    stopping: bool,
    waiters: Waiters,
    /// Who was told that it runs for another broker, and has to hear its end whoever waits by then.
    told: Addresses,
}

/// Which brokers know of an operation that ended.
#[derive(Debug)]
struct Known {
    asked: Addresses,
    /// They were told that it ran.
    told: Addresses,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    cancelled: bool,
}

/// Mostly there is one.
pub(crate) type Waiters = SmallVec<[Waiter; 1]>;

impl Table {
    pub(crate) fn new(room: usize) -> Self {
        Self {
            executions: Slab::new(),
            memory: Memory::default(),
            unreported: Unreported::default(),
            room,
            closed: false,
        }
    }

    /// Decides what becomes of a request.
    pub(crate) fn begin(
        &mut self,
        request: Request,
        ticket: Ticket,
        deadline: Instant,
        now: Instant,
    ) -> Begin {
        let mutates = request.verb.mutates();
        let found = if mutates { self.memory.find(&request.machine) } else { None };
        if let Some((_, page)) = found {
            if let Some(execution) = page.running() {
                return self.join(execution, &request, ticket, deadline);
            }
            if let Some(report) = page.recall(&request, now) {
                return Begin::Remembered(report);
            }
        }
        let found = found.map(|(place, _)| place);
        if self.closed {
            return Begin::Refused(Error::unavailable("the driver is stopping"));
        }
        if self.executions.len() >= self.room {
            return Begin::Refused(busy());
        }
        let vacant = self.executions.vacant_entry();
        let execution = ExecutionId(vacant.key());
        let page = mutates.then(|| self.memory.began(found, &request, execution));
        vacant.insert(Execution {
            request,
            page,
            began: now,
            deadline,
            started: false,
            stopping: false,
            waiters: smallvec![Waiter { ticket, cancelled: false }],
            told: Addresses::new(),
        });
        Begin::Start(execution)
    }

    fn join(
        &mut self,
        id: ExecutionId,
        request: &Request,
        ticket: Ticket,
        deadline: Instant,
    ) -> Begin {
        let execution = self.executions.get_mut(id.0).expect("a machine's page names an execution");
        let running = execution.request.verb;
        if !request.repeats(&execution.request) {
            let message =
                format!("another {running} of machine {} is running", request.machine.name());
            return Begin::Refused(Error::new(Code::Aborted, message));
        }
        if execution.stopping {
            let message =
                format!("the {running} of machine {} is being stopped", request.machine.name());
            let error = Error::new(Code::Aborted, message).with_retry_after(RETRY_STOPPING);
            return Begin::Refused(error);
        }
        execution.waiters.push(Waiter { ticket, cancelled: false });
        execution.deadline = execution.deadline.max(deadline);
        Begin::Joined { execution: id, started: execution.started, deadline: execution.deadline }
    }

    /// The execution got its slot. Tells everyone who has to hear that it was accepted.
    pub(crate) fn started(&mut self, id: ExecutionId, mut tell: impl FnMut(Ticket)) {
        let Some(execution) = self.executions.get_mut(id.0) else { return };
        execution.started = true;
        execution.waiters.iter().for_each(|waiter| tell(waiter.ticket));
    }

    /// Withdraws one waiter. Returns the execution to stop when that was the last one interested.
    pub(crate) fn cancel(&mut self, session: SessionId, operation: i32) -> Option<ExecutionId> {
        let (id, execution) = self.asked_as(session, operation)?;
        for waiter in execution.asked_as(session, operation) {
            waiter.cancelled = true;
        }
        let abandoned = execution.waiters.iter().all(|waiter| waiter.cancelled);
        (abandoned && !std::mem::replace(&mut execution.stopping, true)).then_some(id)
    }

    /// Someone who waits until `deadline` joined an operation at its broker. Returns what is run
    /// for it, and until when; nothing if that is being stopped already.
    pub(crate) fn extend(
        &mut self,
        session: SessionId,
        operation: i32,
        deadline: Instant,
    ) -> Option<(ExecutionId, Instant)> {
        let (id, execution) = self.asked_as(session, operation)?;
        if execution.stopping {
            return None;
        }
        for waiter in execution.asked_as(session, operation) {
            // Whoever cancelled, it is wanted again.
            waiter.cancelled = false;
        }
        execution.deadline = execution.deadline.max(deadline);
        Some((id, execution.deadline))
    }

    /// The execution behind an operation of a session.
    fn asked_as(
        &mut self,
        session: SessionId,
        operation: i32,
    ) -> Option<(ExecutionId, &mut Execution)> {
        self.executions
            .iter_mut()
            .find(|(_, execution)| {
                execution.waiters.iter().any(|waiter| waiter.ticket.is(session, operation))
            })
            .map(|(id, execution)| (ExecutionId(id), execution))
    }

    /// Whether the time of everyone who waits is over; from then on nobody joins any more.
    pub(crate) fn expire(&mut self, id: ExecutionId, now: Instant) -> bool {
        let Some(execution) = self.executions.get_mut(id.0) else { return true };
        let expired = now >= execution.deadline;
        execution.stopping |= expired;
        expired
    }

    /// Ends an execution: remembers and forgets what follows from its outcome, and returns who has
    /// to be told.
    pub(crate) fn finish(
        &mut self,
        id: ExecutionId,
        outcome: Outcome,
        now: Instant,
    ) -> Option<Finished> {
        let execution = self.executions.try_remove(id.0)?;
        let waiters = execution.waiters;
        let report = Report::new(execution.request, outcome, now);
        if let Some(page) = execution.page {
            let asked = waiters.iter().map(|waiter| waiter.ticket.address).collect();
            let known = Known { asked, told: execution.told.clone() };
            self.memory.ended(page, &report, known);
        } else {
            self.memory.learn(&report, execution.began);
        }
        Some(Finished { report, waiters, told: execution.told })
    }

    /// A session is over. Its mutations run on, without an owner; returns the reads to stop, and these.
    pub(crate) fn leave(
        &mut self,
        session: SessionId,
    ) -> (Vec<ExecutionId>, Vec<(ExecutionId, Request)>) {
        let (mut abandoned, mut orphaned) = (Vec::new(), Vec::new());
        for (id, execution) in &mut self.executions {
            if execution.request.verb.mutates() {
                let mut asked = false;
                for waiter in &mut execution.waiters {
                    if waiter.ticket.session == Some(session) {
                        waiter.ticket.session = None;
                        waiter.ticket.operation = None;
                        asked = true;
                    }
                }
                if asked {
                    orphaned.push((ExecutionId(id), execution.request.clone()));
                }
                execution.merge_orphans();
            } else {
                execution.waiters.retain(|waiter| waiter.ticket.session != Some(session));
                if execution.waiters.is_empty() && !std::mem::replace(&mut execution.stopping, true)
                {
                    abandoned.push(ExecutionId(id));
                }
            }
        }
        (abandoned, orphaned)
    }

    /// These brokers were told that it runs, for another.
    pub(crate) fn told_of(&mut self, id: ExecutionId, told: impl IntoIterator<Item = AddressId>) {
        if let Some(execution) = self.executions.get_mut(id.0) {
            told.into_iter().for_each(|address| execution.tells(address));
        }
    }

    /// Keeps an answer that did not reach its broker, for the next session to it.
    pub(crate) fn undelivered(&mut self, address: AddressId, report: Report) {
        if report.request().verb.mutates() {
            self.unreported.push(address, report, false);
        }
    }

    /// Keeps an answer that a broker read which is about to forget it. The next one should hear of it,
    /// but nobody has to wait for that.
    pub(crate) fn told(&mut self, address: AddressId, report: Report) {
        if report.request().verb.mutates() {
            self.unreported.push(address, report, true);
        }
    }

    /// Nothing will ever be told to this address any more. What runs for it goes on: others may ask for it.
    pub(crate) fn abandon(&mut self, address: AddressId) {
        self.unreported.forget(address);
        for (_, execution) in &mut self.executions {
            execution.waiters.retain(|waiter| waiter.ticket.address != address);
        }
    }

    /// Makes `session` the owner of all that its address has without one.
    ///
    /// Only what came through this address: a broker can match nothing else to a caller.
    pub(crate) fn resume(&mut self, address: AddressId, session: SessionId) -> Resume {
        // A newer operation of the machine makes the old answer worthless, and so does whatever made us
        // forget a success: a broker that still has such a request open has a later one, and must
        // not take this for its answer.
        let is_true = |report: &Report| match self.memory.find(&report.request().machine) {
            Some((_, page)) if page.running().is_some() => false,
            page => report.outcome().is_err() || page.is_some_and(|(_, page)| page.holds(report)),
        };
        let ended = self.unreported.take(address).filter(is_true).collect();
        let mut running = Vec::new();
        for (_, execution) in &mut self.executions {
            let mut found = false;
            for waiter in &mut execution.waiters {
                if waiter.ticket.address == address && waiter.ticket.session.is_none() {
                    waiter.ticket.session = Some(session);
                    found = true;
                }
            }
            if found {
                running.push(execution.request.clone());
            }
        }
        Resume { ended, running }
    }

    /// Tells a broker what we know, whether or not it knows it already: also what we run for another that
    /// is gone. `kin` are the other replicas of it: of what concerns other brokers it hears nothing.
    pub(crate) fn recollect(
        &mut self,
        address: AddressId,
        kin: &BTreeSet<AddressId>,
        now: Instant,
    ) -> Recollection {
        let mut running = Vec::new();
        let executions = self.executions.iter_mut().map(|(_, execution)| execution);
        for execution in executions.filter(|execution| execution.request.verb.mutates()) {
            let mut tickets = execution.waiters.iter().map(|waiter| waiter.ticket);
            let is_its_own = tickets.clone().any(|ticket| ticket.address == address);
            let mut is_lost =
                |ticket: Ticket| ticket.session.is_none() && kin.contains(&ticket.address);
            if is_its_own || tickets.any(&mut is_lost) {
                running.push((execution.request.clone(), !is_its_own));
                if !is_its_own {
                    execution.tells(address);
                }
            }
        }
        let recall = |(report, known): &(Report, Known)| {
            let is_its_own = known.asked.contains(&address);
            let concerns_it = is_its_own
                || known.told.contains(&address)
                || known.asked.iter().any(|asked| kin.contains(asked));
            (!report.is_old(now) && concerns_it).then(|| (report.clone(), !is_its_own))
        };
        let ended = self.memory.ends().take(MOST_ENDS).filter_map(recall).collect();
        Recollection { running, ended }
    }

    /// Another instance has changed the machine, and has more to tell of it than we.
    pub(crate) fn forget(&mut self, machine: &MachineKey) {
        self.memory.forget(machine);
    }

    /// What a new session of this address would have to report, now or later.
    pub(crate) fn owes(&self, address: AddressId) -> Owed {
        let running = self.executions.iter().any(|(_, execution)| {
            execution.request.verb.mutates()
                && execution.waiters.iter().any(|waiter| waiter.ticket.address == address)
        });
        match running {
            true => Owed::Running,
            false if self.unreported.owes(address) => Owed::Reports,
            false => Owed::Nothing,
        }
    }

    /// Whether `session` still waits for an answer.
    pub(crate) fn waits(&self, session: SessionId) -> bool {
        self.executions.iter().any(|(_, execution)| {
            execution.waiters.iter().any(|w| w.ticket.session == Some(session))
        })
    }

    /// Lets nothing new start: the driver stops.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Gives everything up: returns all executions that have not been told to stop yet.
    pub(crate) fn stop_all(&mut self) -> Vec<ExecutionId> {
        self.executions
            .iter_mut()
            .filter_map(|(id, execution)| {
                (!std::mem::replace(&mut execution.stopping, true)).then_some(ExecutionId(id))
            })
            .collect()
    }
}

impl Ticket {
    fn is(&self, session: SessionId, operation: i32) -> bool {
        self.session == Some(session) && self.operation == Some(operation)
    }
}

impl Execution {
    fn asked_as(
        &mut self,
        session: SessionId,
        operation: i32,
    ) -> impl Iterator<Item = &mut Waiter> {
        self.waiters.iter_mut().filter(move |waiter| waiter.ticket.is(session, operation))
    }

    /// A broker is told that it runs, for another.
    fn tells(&mut self, address: AddressId) {
        if !self.told.contains(&address) {
            self.told.push(address);
        }
    }

    /// Several orphans of one address need one report only. Who cancelled before the stream broke
    /// has cancelled, but one of them may not have.
    fn merge_orphans(&mut self) {
        let mut merged = Waiters::with_capacity(self.waiters.len());
        for waiter in self.waiters.drain(..) {
            let twin = merged
                .iter_mut()
                .find(|other| waiter.ticket.session.is_none() && other.ticket == waiter.ticket);
            match twin {
                Some(twin) => twin.cancelled &= waiter.cancelled,
                None => merged.push(waiter),
            }
        }
        self.waiters = merged;
    }
}

/// How many ends a broker is told of when it asks: the newest matter most, and a Hello is bounded.
const MOST_ENDS: usize = 4096;
const RETRY_STOPPING: Duration = Duration::from_secs(5);

/// The answer when there is no room for one more operation.
pub(crate) fn busy() -> Error {
    Error::resource_exhausted("the driver runs as many operations as it can")
        .with_retry_after(Duration::from_secs(1))
}
