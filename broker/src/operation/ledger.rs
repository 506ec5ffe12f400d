//! All operations, and which machine each of them works on.
//!
//! At most one mutating operation runs per machine. The ledger decides what a new request meets:
//!
//! 1. nothing: it starts;
//! 2. the same request, running: it joins and gets the same answer;
//! 3. another one, running: it conflicts;
//! 4. the same request, answered when nobody waited any more: it gets that answer;
//! 5. an operation that was lost with its driver and may still run there: it starts, but may only go
//!    to that driver instance, whose own table of operations takes it from there.

mod resumed;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::Entry;
use tokio::{sync::Notify, time::Instant};

use super::{
    Answer, Code, Delivery, Finished, Operation, Outcome, Payload, Request, pace::Series,
    recent::Recent,
};
use crate::{
    audit::{self, Audit},
    auth::Identity,
    driver::{ClassId, DriverKey, Instance, MachineId, OperationId, SessionId, Verb},
    maps::SharedMap,
    metrics::Metrics,
    session,
};

/// How long an answer that nobody heard is kept for the retry.
const KEEP_ANSWERS: Duration = Duration::from_secs(15 * 60);
/// How many such answers are kept at most.
const MOST_KEPT: usize = 10_000;
/// How long drivers remember a success.
const REMEMBERED_FOR: Duration = Duration::from_secs(15 * 60);
/// Of how many machines it is known at most who changed them last. Others are executed anew.
const MOST_SERVED: usize = 100_000;
/// How long past its deadline a lost operation may still be running in the driver.
const DRIVER_GRACE: Duration = Duration::from_secs(60);
/// How long an operation that a driver resumed keeps its machine: as long as the longest default
/// deadline, unless its end is heard.
const RESUMED_FOR: Duration = Duration::from_secs(20 * 60);

/// Cheap to clone: every clone is the same ledger.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Books>);

#[derive(Debug)]
struct Books {
    next_id: AtomicU64,
    /// What runs and changes nothing; what does is in `machines`.
    reading: SharedMap<OperationId, Arc<Operation>>,
    /// How many run, of both.
    running_count: AtomicUsize,
    idle: Notify,
    machines: SharedMap<MachineId, Work>,
    served: SharedMap<MachineId, Arc<Page>>,
    /// How many these are, about: the map would have to count.
    served_count: AtomicUsize,
    /// How many answers are kept that nobody heard: mostly none.
    kept: AtomicUsize,
    recent: Recent,
    metrics: Metrics,
    audit: Audit,
}

/// Where it is written down who changed a machine last; empty when that is too long ago to matter.
///
/// An operation looks it up when it begins, and keeps it. It stays in the map while one does, so that
/// what is written on it is found.
pub(super) type Page = Mutex<Option<Served>>;

/// Who changed a machine last, and since when nobody else has.
#[derive(Debug)]
pub(super) struct Served {
    instance: Instance,
    since: Instant,
    /// By then it has forgotten.
    until: Instant,
}

/// What is known of the work on one machine. It is small, since every operation moves one in and out.
#[derive(Debug)]
enum Work {
    Running(Arc<Operation>),
    MayRun(Box<Hold>),
    /// With nobody there to hear it.
    Answered(Box<Kept>),
}

/// An answer that is kept for the retry.
#[derive(Debug)]
struct Kept {
    request: Request,
    answer: Arc<Answer>,
    at: Instant,
}

/// An operation that was lost with its session and may still run in that driver instance.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Unknown for one that was started by an earlier broker process.
    pub operation: Option<OperationId>,
    pub verb: Verb,
    pub delivery: Delivery,
    /// It succeeded, as the instance told later. To ask that one is best, but no duty.
    pub is_over: bool,
    /// Under which the instance served it.
    pub key: DriverKey,
    pub instance: Instance,
    /// Who it proved to be: an instance id is anybody's to say.
    pub identity: Identity,
    /// Whether the instance answers a repeated request from its own table after a reconnect.
    pub resumes: bool,
    pub session: SessionId,
    pub since: Instant,
    pub until: Instant,
}

impl Hold {
    /// Whether this session is of the very process that has it.
    pub fn belongs_to(&self, driver: &session::Info) -> bool {
        self.instance == driver.instance && self.identity == driver.identity
    }
}

/// What a new mutating request met.
#[derive(Debug)]
pub enum Claim {
    Start(Arc<Operation>),
    Join(Arc<Operation>),
    Remembered(Arc<Answer>),
}

/// Another operation runs on the same machine.
#[derive(Clone, Debug)]
pub struct Conflict {
    pub running: OperationId,
    pub verb: Verb,
    pub class: ClassId,
}

impl Ledger {
    /// Every operation that ends is told to `metrics`.
    pub fn new(metrics: Metrics, audit: Audit) -> Self {
        Self(Arc::new(Books {
            // A random start keeps the ids of two broker processes apart in logs.
            next_id: AtomicU64::new(rand::random()),
            reading: SharedMap::default(),
            running_count: AtomicUsize::new(0),
            idle: Notify::new(),
            machines: SharedMap::default(),
            served: SharedMap::default(),
            served_count: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            recent: Recent::default(),
            metrics,
            audit,
        }))
    }

    pub(super) fn unheard(&self, operation: &Operation, outcome: &Outcome) {
        let audit = &self.0.audit;
        if operation.session().is_none() {
            return;
        }
        audit.write(|| {
            let (end, code, message) = match outcome {
                Outcome::Answered(answer) if answer.code.is_ok() => (audit::Outcome::Ok, "OK", ""),
                Outcome::Answered(answer) => {
                    (audit::Outcome::Failed, answer.code.name(), &*answer.message)
                }
                Outcome::Lost => (audit::Outcome::Unknown, "DRIVER_LOST", ""),
            };
            let mut record = audit::Record {
                code: Some(code),
                duration: Some(operation.submitted.elapsed()),
                ..audit::Record::new(audit::Event::OperationUnheard, end)
            };
            record.on(operation);
            record.saying(message)
        });
    }

    /// Opens an operation that changes nothing: any number of them may run on a machine.
    pub fn open(&self, request: Request, (now, deadline): (Instant, Instant)) -> Arc<Operation> {
        let operation = self.record(request, (now, deadline), None);
        self.0.reading.insert(operation.id, Arc::clone(&operation));
        operation
    }

    /// Opens, joins or remembers a mutating operation.
    pub fn claim(
        &self,
        request: Request,
        (now, deadline): (Instant, Instant),
    ) -> Result<Claim, Conflict> {
        match self.0.machines.entry(request.machine.clone()) {
            Entry::Vacant(free) => {
                let operation = self.record(request, (now, deadline), None);
                free.insert(Work::Running(Arc::clone(&operation)));
                Ok(Claim::Start(operation))
            }
            Entry::Occupied(mut work) => {
                let hold = match work.get() {
                    Work::Running(running) if request.repeats(&running.request) => {
                        running.extend(deadline);
                        return Ok(Claim::Join(Arc::clone(running)));
                    }
                    Work::Running(running) => {
                        return Err(Conflict {
                            running: running.id,
                            verb: running.request.verb,
                            class: running.request.class.id.clone(),
                        });
                    }
                    Work::Answered(kept)
                        if request.repeats(&kept.request) && now < kept.at + KEEP_ANSWERS =>
                    {
                        return Ok(Claim::Remembered(Arc::clone(&kept.answer)));
                    }
                    Work::Answered(_) => {
                        self.0.kept.fetch_sub(1, Ordering::AcqRel);
                        None
                    }
                    Work::MayRun(hold) => Some(hold.clone()),
                };
                let operation = self.record(request, (now, deadline), hold);
                work.insert(Work::Running(Arc::clone(&operation)));
                Ok(Claim::Start(operation))
            }
        }
    }

    fn record(
        &self,
        request: Request,
        times: (Instant, Instant),
        hold: Option<Box<Hold>>,
    ) -> Arc<Operation> {
        let id = OperationId(self.0.next_id.fetch_add(1, Ordering::Relaxed));
        let changes = request.verb.is_mutation();
        let page = changes.then(|| self.0.served.get(&request.machine)).flatten();
        let page = page.map(|page| Arc::clone(&page));
        let operation = Operation::new(self.clone(), id, request, times, hold, page);
        self.0.running_count.fetch_add(1, Ordering::AcqRel);
        operation
    }

    /// Takes an ended operation off the books. Called once per operation, by its settling.
    pub(super) fn close(
        &self,
        operation: &Operation,
        outcome: &Outcome,
        (now, took): (Instant, Duration),
    ) {
        if operation.request.verb.is_mutation() {
            self.release(operation, outcome, now);
        } else {
            self.0.reading.remove(&operation.id);
            if self.0.kept.load(Ordering::Acquire) > 0
                && let Outcome::Answered(answer) = outcome
            {
                self.forget_absent(operation, answer);
            }
        }
        // A caller that waits for a driver to come tries again and again; that is nothing to look at.
        if operation.session().is_some() {
            self.0.metrics.operation_ended(operation, outcome, took);
            self.0.recent.push(operation, outcome, (now, took));
        }
        if self.0.running_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }

    /// For how long nobody but `instance` has changed the machine, as far as we know: what it remembers
    /// of that time is still true. `None` for ever.
    pub(crate) fn unchanged_for(
        &self,
        operation: &Operation,
        instance: &Instance,
        now: Instant,
    ) -> Option<Duration> {
        // An earlier broker process gave it to this instance, and we are told of no later one. But who
        // changed the machine after it may be gone. A machine that is deleted twice is no harm, one
        // that is left standing is.
        let resumed = operation.hold.as_ref().is_some_and(|hold| {
            let doubtful = hold.is_over && operation.request.verb == Verb::Delete;
            hold.operation.is_none() && hold.instance == *instance && !doubtful
        });
        if resumed {
            return None;
        }
        let alone = self.on_page(operation, |served| {
            served.as_ref().filter(|served| served.instance == *instance).map(|served| served.since)
        });
        let since = alone.flatten();
        Some(since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)))
    }

    /// Looks at the page of the operation's machine, if there is one by now.
    fn on_page<T>(
        &self,
        operation: &Operation,
        look: impl FnOnce(&mut Option<Served>) -> T,
    ) -> Option<T> {
        match &operation.page {
            Some(page) => Some(look(&mut lock(page))),
            None => {
                let page = self.0.served.get(&operation.request.machine)?;
                Some(look(&mut lock(&page)))
            }
        }
    }

    /// The page of a machine, or a new one, unless there are too many.
    fn new_page(&self, machine: &MachineId) -> Option<Arc<Page>> {
        let full = self.0.served_count.load(Ordering::Acquire) >= MOST_SERVED;
        match self.0.served.entry(machine.clone()) {
            Entry::Occupied(page) => Some(Arc::clone(page.get())),
            Entry::Vacant(_) if full => None,
            Entry::Vacant(free) => {
                self.0.served_count.fetch_add(1, Ordering::AcqRel);
                Some(Arc::clone(&free.insert(Arc::default())))
            }
        }
    }

    fn note_served(&self, operation: &Operation, now: Instant) {
        let Some(session) = operation.session() else { return };
        if operation.delivery() == Delivery::NotSent {
            return;
        }
        let instance = &session.info().instance;
        let first = || Served {
            instance: instance.clone(),
            since: operation.submitted,
            until: now + REMEMBERED_FOR,
        };
        let write = |served: &mut Option<Served>| match served {
            Some(served) if served.instance == *instance => served.until = now + REMEMBERED_FOR,
            other => *other = Some(first()),
        };
        if self.on_page(operation, write).is_none()
            && let Some(page) = self.new_page(&operation.request.machine)
        {
            write(&mut lock(&page));
        }
    }

    /// Frees the machine, or leaves on it what a retry has to know.
    fn release(&self, operation: &Operation, outcome: &Outcome, now: Instant) {
        self.note_served(operation, now);
        let Entry::Occupied(mut work) = self.0.machines.entry(operation.request.machine.clone())
        else {
            return;
        };
        if !matches!(work.get(), Work::Running(running) if running.id == operation.id) {
            return;
        }
        let left = match outcome {
            // It was turned away, perhaps because the earlier one is still at it.
            Outcome::Answered(answer) if !answer.code.is_ok() && !operation.was_begun() => {
                operation.hold.clone().map(Work::MayRun)
            }
            Outcome::Answered(_) => None,
            // Nothing new happened: what was true before still is.
            Outcome::Lost if operation.delivery() == Delivery::NotSent => {
                operation.hold.clone().map(Work::MayRun)
            }
            Outcome::Lost => operation.session().map(|session| {
                let info = session.info();
                Work::MayRun(Box::new(Hold {
                    operation: Some(operation.id),
                    verb: operation.request.verb,
                    delivery: operation.delivery(),
                    is_over: false,
                    key: operation.request.key.clone(),
                    instance: info.instance.clone(),
                    identity: info.identity.clone(),
                    resumes: info.resumes,
                    session: info.id,
                    since: now,
                    // A historic driver knows of no deadline.
                    until: match session.is_native() {
                        true => operation.deadline() + DRIVER_GRACE,
                        false => now + RESUMED_FOR,
                    },
                }))
            }),
        };
        match left {
            Some(left) => drop(work.insert(left)),
            None => drop(work.remove()),
        }
    }

    /// Keeps a success that nobody heard for the retry, unless the machine has new work by now.
    pub(super) fn keep(&self, operation: &Operation, answer: &Arc<Answer>) {
        let full = self.0.kept.load(Ordering::Acquire) >= MOST_KEPT;
        if !operation.request.verb.is_mutation() || !answer.code.is_ok() || full {
            return;
        }
        if let Entry::Vacant(free) = self.0.machines.entry(operation.request.machine.clone()) {
            self.0.kept.fetch_add(1, Ordering::AcqRel);
            free.insert(Work::Answered(Box::new(Kept {
                request: operation.request.clone(),
                answer: Arc::new(answer.detached()),
                at: Instant::now(),
            })));
        }
    }

    /// Forgets kept answers about machines that a status or list answer no longer shows: a create
    /// that is asked for again must then be executed again.
    fn forget_absent(&self, operation: &Operation, answer: &Answer) {
        let request = &operation.request;
        let absent: Box<dyn Fn(&str) -> bool> = match (request.verb, &answer.payload) {
            (Verb::GetStatus, _) if answer.code == Code::NOT_FOUND => {
                Box::new(|machine| machine == &*request.machine.name)
            }
            (Verb::List, Payload::List(machines))
                if answer.code.is_ok() && request.words.provider_id.is_empty() =>
            {
                let shown: HashSet<&str> =
                    machines.iter().map(|machine| machine.machine_name.as_str()).collect();
                Box::new(move |machine| !shown.contains(machine))
            }
            _ => return,
        };
        let forget = |kept: &Request, at: Instant| {
            kept.class.id == request.class.id
                && at <= operation.submitted
                && absent(&kept.machine.name)
        };
        self.retain(|work| match work {
            Work::Answered(kept) => !forget(&kept.request, kept.at),
            Work::Running(_) | Work::MayRun(_) => true,
        });
    }

    /// Who changed the operation's machine last, as far as we know, if it was another than `instance`.
    pub fn last_served_by_another(
        &self,
        operation: &Operation,
        instance: &Instance,
    ) -> Option<Instance> {
        let another = |served: &mut Option<Served>| {
            let other = served.as_ref().filter(|served| served.instance != *instance);
            other.map(|served| served.instance.clone())
        };
        self.on_page(operation, another).flatten()
    }

    /// The machines that are held for what may still run.
    pub fn holds(&self) -> Vec<(MachineId, Hold)> {
        let held = self.0.machines.iter().filter_map(|entry| match entry.value() {
            Work::MayRun(hold) => Some((entry.key().clone(), Hold::clone(hold))),
            Work::Running(_) | Work::Answered(_) => None,
        });
        held.collect()
    }

    pub fn running(&self) -> Vec<Arc<Operation>> {
        let changing = self.0.machines.iter().filter_map(|entry| match entry.value() {
            Work::Running(operation) => Some(Arc::clone(operation)),
            Work::MayRun(_) | Work::Answered(_) => None,
        });
        let reading = self.0.reading.iter().map(|entry| Arc::clone(entry.value()));
        changing.chain(reading).collect()
    }

    /// The newest `most` finished operations, newest first.
    pub fn recent(&self, most: usize) -> Vec<Finished> {
        self.0.recent.newest(most)
    }

    /// How many operations ended within the last minutes, and how long they took.
    pub fn pace(&self) -> Vec<Series> {
        self.0.recent.pace()
    }

    /// Returns once no operation runs.
    pub async fn idle(&self) {
        let mut idle = std::pin::pin!(self.0.idle.notified());
        loop {
            idle.as_mut().enable();
            if self.0.running_count.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.as_mut().await;
            idle.set(self.0.idle.notified());
        }
    }

    /// Drops what is too old to matter, so that machines that never come back cost nothing.
    pub fn forget_old(&self) {
        let now = Instant::now();
        self.0.served.retain(|_, page| {
            let mut served = lock(page);
            served.take_if(|served| now >= served.until);
            served.is_some() || Arc::strong_count(page) > 1
        });
        self.0.served_count.store(self.0.served.len(), Ordering::Release);
        self.retain(|work| match work {
            Work::Running(_) => true,
            Work::MayRun(hold) => now < hold.until,
            Work::Answered(kept) => now < kept.at + KEEP_ANSWERS,
        });
    }

    fn retain(&self, keep: impl Fn(&Work) -> bool) {
        self.0.machines.retain(|_, work| {
            let keep = keep(work);
            if !keep && matches!(work, Work::Answered(_)) {
                self.0.kept.fetch_sub(1, Ordering::AcqRel);
            }
            keep
        });
    }
}

fn lock(page: &Page) -> MutexGuard<'_, Option<Served>> {
    page.lock().expect("no panic while locked")
}
