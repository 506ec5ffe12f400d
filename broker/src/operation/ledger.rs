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

mod pages;
mod resumed;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

pub(super) use self::pages::Page;
use self::pages::{Notes, Pages, Served, Work};
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
    /// The number of the first operation, and of the next. So many began as lie in between.
    first_id: u64,
    next_id: AtomicU64,
    /// How many ended.
    ended: AtomicU64,
    idle: Notify,
    /// What runs and changes nothing; what does is on the page of its machine.
    reading: SharedMap<OperationId, Arc<Operation>>,
    pages: Pages,
    recent: Recent,
    metrics: Metrics,
    audit: Audit,
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
        Self::knowing(MOST_SERVED, metrics, audit)
    }

    /// Knows of so many machines at most who changed them last.
    fn knowing(most_served: usize, metrics: Metrics, audit: Audit) -> Self {
        // A random start keeps the ids of two broker processes apart in logs.
        let first_id = rand::random();
        Self(Arc::new(Books {
            first_id,
            next_id: AtomicU64::new(first_id),
            ended: AtomicU64::new(0),
            idle: Notify::new(),
            reading: SharedMap::default(),
            pages: Pages::new(most_served),
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
        let operation = self.record(request, (now, deadline), None, None);
        self.0.reading.insert(operation.id, Arc::clone(&operation));
        operation
    }

    /// Opens, joins or remembers a mutating operation.
    pub fn claim(
        &self,
        request: Request,
        (now, deadline): (Instant, Instant),
    ) -> Result<Claim, Conflict> {
        let page = self.0.pages.of(&request.machine);
        let mut notes = page.notes();
        let hold = match notes.work() {
            Some(Work::Running(running)) if request.repeats(&running.request) => {
                running.extend(deadline);
                return Ok(Claim::Join(Arc::clone(running)));
            }
            Some(Work::Running(running)) => {
                return Err(Conflict {
                    running: running.id,
                    verb: running.request.verb,
                    class: running.request.class.id.clone(),
                });
            }
            Some(Work::Answered(kept))
                if request.repeats(&kept.request) && now < kept.at + KEEP_ANSWERS =>
            {
                return Ok(Claim::Remembered(Arc::clone(&kept.answer)));
            }
            Some(Work::MayRun(hold)) => Some(hold.clone()),
            Some(Work::Answered(_)) | None => None,
        };
        let operation = self.record(request, (now, deadline), hold, Some(Arc::clone(&page)));
        self.0.pages.put(&mut notes, Some(Work::Running(Arc::clone(&operation))));
        Ok(Claim::Start(operation))
    }

    fn record(
        &self,
        request: Request,
        times: (Instant, Instant),
        hold: Option<Box<Hold>>,
        page: Option<Arc<Page>>,
    ) -> Arc<Operation> {
        let id = OperationId(self.0.next_id.fetch_add(1, Ordering::AcqRel));
        Operation::new(self.clone(), id, request, times, hold, page)
    }

    /// Takes an ended operation off the books. Called once per operation, by its settling.
    pub(super) fn close(
        &self,
        operation: &Operation,
        outcome: &Outcome,
        (now, took): (Instant, Duration),
    ) {
        if let Some(page) = &operation.page {
            self.release(operation, page, outcome, now);
        } else {
            self.0.reading.remove(&operation.id);
            if self.0.pages.kept() > 0
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
        // Of several that end at once, the last one finds that as many ended as began.
        if self.0.ended.fetch_add(1, Ordering::AcqRel) + 1 == self.began() {
            self.0.idle.notify_waiters();
        }
    }

    fn began(&self) -> u64 {
        self.0.next_id.load(Ordering::Acquire).wrapping_sub(self.0.first_id)
    }

    fn is_idle(&self) -> bool {
        // In this order: nothing can end that has not begun.
        let ended = self.0.ended.load(Ordering::Acquire);
        ended == self.began()
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
        let notes = operation.page.as_ref().map(|page| page.notes());
        let served = notes.as_ref().and_then(|notes| notes.served());
        let alone = served.filter(|served| served.instance == *instance);
        Some(alone.map_or(Duration::ZERO, |alone| now.saturating_duration_since(alone.since)))
    }

    fn note_served(&self, operation: &Operation, notes: &mut Notes, now: Instant) {
        let Some(session) = operation.session() else { return };
        if operation.delivery() == Delivery::NotSent {
            return;
        }
        let (instance, until) = (&session.info().instance, now + REMEMBERED_FOR);
        match notes.served_mut() {
            Some(served) if served.instance == *instance => served.until = until,
            _ => self.0.pages.put_served(notes, || Served {
                instance: instance.clone(),
                since: operation.submitted,
                until,
            }),
        }
    }

    /// Frees the machine, or leaves on it what a retry has to know.
    fn release(&self, operation: &Operation, page: &Arc<Page>, outcome: &Outcome, now: Instant) {
        let mut notes = page.notes();
        self.note_served(operation, &mut notes, now);
        if !matches!(notes.work(), Some(Work::Running(running)) if running.id == operation.id) {
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
                    key: DriverKey::clone(&operation.request.key),
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
        self.0.pages.put(&mut notes, left);
        // There was no room for who served it. The map is not to grow until somebody tidies up.
        if notes.say_nothing() {
            drop(notes);
            self.0.pages.let_go(&operation.request.machine, page);
        }
    }

    /// Keeps a success that nobody heard for the retry, unless the machine has new work by now.
    pub(super) fn keep(&self, operation: &Operation, answer: &Arc<Answer>) {
        let full = self.0.pages.kept() >= MOST_KEPT;
        if !operation.request.verb.is_mutation() || !answer.code.is_ok() || full {
            return;
        }
        // Not the operation's own page, which may have been let go when the operation ended.
        let page = self.0.pages.of(&operation.request.machine);
        let mut notes = page.notes();
        if notes.work().is_none() {
            let kept = Kept {
                request: operation.request.clone(),
                answer: Arc::new(answer.detached()),
                at: Instant::now(),
            };
            self.0.pages.put(&mut notes, Some(Work::Answered(Box::new(kept))));
        }
    }

    /// Forgets kept answers about machines that a status or list answer no longer shows: a create
    /// that is asked for again must then be executed again.
    fn forget_absent(&self, operation: &Operation, answer: &Answer) {
        let (request, pages) = (&operation.request, &self.0.pages);
        let forget = |notes: &mut Notes, is_absent: &dyn Fn(&str) -> bool| {
            if let Some(Work::Answered(kept)) = notes.work()
                && kept.request.class.id == request.class.id
                && kept.at <= operation.submitted
                && is_absent(&kept.request.machine.name)
            {
                pages.put(notes, None);
            }
        };
        match (request.verb, &answer.payload) {
            (Verb::GetStatus, _) if answer.code == Code::NOT_FOUND => {
                let Some(page) = pages.known(&request.machine) else { return };
                let mut notes = page.notes();
                forget(&mut notes, &|_| true);
                if notes.say_nothing() {
                    drop(notes);
                    pages.let_go(&request.machine, &page);
                }
            }
            (Verb::List, Payload::List(machines))
                if answer.code.is_ok() && request.words.provider_id.is_empty() =>
            {
                let shown: HashSet<&str> =
                    machines.iter().map(|machine| machine.machine_name.as_str()).collect();
                pages.tidy(|notes| forget(notes, &|machine| !shown.contains(machine)));
            }
            _ => {}
        }
    }

    /// Who changed the operation's machine last, as far as we know, if it was another than `instance`.
    pub fn last_served_by_another(
        &self,
        operation: &Operation,
        instance: &Instance,
    ) -> Option<Instance> {
        let notes = operation.page.as_ref()?.notes();
        let another = notes.served().filter(|served| served.instance != *instance)?;
        Some(another.instance.clone())
    }

    /// The machines that are held for what may still run.
    pub fn holds(&self) -> Vec<(MachineId, Hold)> {
        if self.0.pages.held() == 0 {
            return Vec::new();
        }
        self.0.pages.all(|machine, notes| match notes.work() {
            Some(Work::MayRun(hold)) => Some((machine.clone(), Hold::clone(hold))),
            Some(Work::Running(_) | Work::Answered(_)) | None => None,
        })
    }

    pub fn running(&self) -> Vec<Arc<Operation>> {
        // There may be very many pages to look at.
        if self.is_idle() {
            return Vec::new();
        }
        let mut running = self.0.pages.all(|_, notes| match notes.work() {
            Some(Work::Running(operation)) => Some(Arc::clone(operation)),
            Some(Work::MayRun(_) | Work::Answered(_)) | None => None,
        });
        running.extend(self.0.reading.iter().map(|entry| Arc::clone(entry.value())));
        running
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
            if self.is_idle() {
                return;
            }
            idle.as_mut().await;
            idle.set(self.0.idle.notified());
        }
    }

    /// Drops what is too old to matter, so that machines that never come back cost nothing.
    pub fn forget_old(&self) {
        let (now, pages) = (Instant::now(), &self.0.pages);
        pages.tidy(|notes| {
            pages.forget_served(notes, now);
            let is_old = match notes.work() {
                Some(Work::MayRun(hold)) => now >= hold.until,
                Some(Work::Answered(kept)) => now >= kept.at + KEEP_ANSWERS,
                Some(Work::Running(_)) | None => false,
            };
            if is_old {
                pages.put(notes, None);
            }
        });
    }
}
