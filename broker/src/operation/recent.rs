//! The operations that ended lately, for operators.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{
    Delivery, Operation, Outcome,
    pace::{Pace, Series},
    shortened,
};
use crate::{
    catalog::Class,
    driver::{Instance, OperationId, SessionId, Verb},
    session::SessionHandle,
};

/// How many finished operations operators can look back on.
const RECENT: usize = 1_000;
/// How much of its message is kept of each.
const MAX_MESSAGE: usize = 512;

#[derive(Debug)]
pub(super) struct Recent {
    started: Instant,
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    /// A ring, once it is full: each operation is then written over the oldest, whose room it takes.
    kept: Vec<Finished>,
    /// Where the next one goes.
    next: usize,
    pace: Pace,
}

impl Default for Recent {
    fn default() -> Self {
        Self { started: Instant::now(), ends: Mutex::default() }
    }
}

impl Recent {
    pub(super) fn push(
        &self,
        operation: &Operation,
        outcome: &Outcome,
        (now, took): (Instant, Duration),
    ) {
        let request = &operation.request;
        let ok = matches!(outcome, Outcome::Answered(answer) if answer.code.is_ok());
        let mut ends = self.ends();
        ends.pace.count(now - self.started, request.verb, &request.class.id.kind, took, ok);
        ends.keep(operation, outcome, took);
    }

    pub(super) fn newest(&self, most: usize) -> Vec<Finished> {
        let ends = self.ends();
        let (newer, older) = ends.kept.split_at(ends.next);
        newer.iter().rev().chain(older.iter().rev()).take(most).cloned().collect()
    }

    pub(super) fn pace(&self) -> Vec<Series> {
        self.ends().pace.series(self.started.elapsed())
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().expect("no panic while locked")
    }
}

impl Ends {
    fn keep(&mut self, operation: &Operation, outcome: &Outcome, took: Duration) {
        match self.kept.get_mut(self.next) {
            Some(oldest) => oldest.turn_into(operation, outcome, took),
            None => self.kept.push(Finished::of(operation, outcome, took)),
        }
        self.next = (self.next + 1) % RECENT;
    }
}

/// A finished operation, for operators.
#[derive(Clone, Debug)]
pub struct Finished {
    pub class: Arc<Class>,
    /// The name of it.
    pub machine: String,
    pub instance: Option<Instance>,
    pub facts: Facts,
    pub message: String,
}

/// What is but numbers and words of ours.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub id: OperationId,
    pub verb: Verb,
    pub session: Option<SessionId>,
    pub delivery: Delivery,
    pub attempt: u32,
    pub sent_after: Option<Duration>,
    pub accepted_after: Option<Duration>,
    pub submitted_at: SystemTime,
    pub took: Duration,
    /// A code's name, or `LOST`.
    pub outcome: &'static str,
}

impl Finished {
    fn of(operation: &Operation, outcome: &Outcome, took: Duration) -> Self {
        Self {
            class: Arc::clone(&operation.request.class),
            machine: operation.request.machine.name.to_string(),
            instance: instance(operation),
            facts: Facts::of(operation, outcome, took),
            message: message(operation, outcome),
        }
    }

    /// Becomes another one. What they have in common, as many do, is left as it is.
    fn turn_into(&mut self, operation: &Operation, outcome: &Outcome, took: Duration) {
        let request = &operation.request;
        if !Arc::ptr_eq(&self.class, &request.class) {
            self.class = Arc::clone(&request.class);
        }
        self.machine.clear();
        self.machine.push_str(&request.machine.name);
        let session = self.facts.session;
        self.facts = Facts::of(operation, outcome, took);
        if self.facts.session != session {
            self.instance = instance(operation);
        }
        self.message = message(operation, outcome);
    }
}

impl Facts {
    #[inline]
    fn of(operation: &Operation, outcome: &Outcome, took: Duration) -> Self {
        Self {
            id: operation.id,
            verb: operation.request.verb,
            session: operation.session_id(),
            delivery: operation.delivery(),
            attempt: operation.request.attempt,
            sent_after: operation.sent_after(),
            accepted_after: operation.accepted_after(),
            submitted_at: operation.submitted_at,
            took,
            outcome: match outcome {
                Outcome::Answered(answer) => answer.code.name(),
                Outcome::Lost => "LOST",
            },
        }
    }
}

fn instance(operation: &Operation) -> Option<Instance> {
    operation.session().map(|session| session.info().instance.clone())
}

fn message(operation: &Operation, outcome: &Outcome) -> String {
    let message = match outcome {
        Outcome::Answered(answer) if answer.message.is_empty() => return String::new(),
        Outcome::Answered(answer) => answer.message.clone(),
        Outcome::Lost => {
            let ended = operation.session().and_then(SessionHandle::ended);
            let why = ended.map(|ended| format!("its session is over: {}", ended.why));
            why.unwrap_or_default()
        }
    };
    shortened(message, MAX_MESSAGE)
}
