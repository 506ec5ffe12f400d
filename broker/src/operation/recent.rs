//! The operations that ended lately, for operators.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{
    Code, Delivery, Operation, Outcome,
    pace::{Pace, Series},
    shortened,
};
use crate::{
    catalog::Class,
    driver::{Instance, MachineId, OperationId, SessionId, Verb},
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
    newest: VecDeque<Finished>,
    pace: Pace,
}

impl Default for Recent {
    fn default() -> Self {
        Self { started: Instant::now(), ends: Mutex::default() }
    }
}

impl Recent {
    pub(super) fn push(&self, finished: Finished, now: Instant) {
        let mut ends = self.ends();
        ends.pace.count(
            now - self.started,
            finished.verb,
            &finished.class.id.kind,
            finished.took,
            finished.outcome == Code::OK.name(),
        );
        if ends.newest.len() == RECENT {
            ends.newest.pop_front();
        }
        ends.newest.push_back(finished);
    }

    pub(super) fn newest(&self, most: usize) -> Vec<Finished> {
        self.ends().newest.iter().rev().take(most).cloned().collect()
    }

    pub(super) fn pace(&self) -> Vec<Series> {
        self.ends().pace.series(self.started.elapsed())
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().expect("no panic while locked")
    }
}

/// A finished operation, for operators.
#[derive(Clone, Debug)]
pub struct Finished {
    pub id: OperationId,
    pub verb: Verb,
    pub class: Arc<Class>,
    pub machine: MachineId,
    pub instance: Option<Instance>,
    pub session: Option<SessionId>,
    pub delivery: Delivery,
    pub attempt: u32,
    pub sent_after: Option<Duration>,
    pub accepted_after: Option<Duration>,
    pub submitted_at: SystemTime,
    pub took: Duration,
    /// A code's name, or `LOST`.
    pub outcome: &'static str,
    pub message: String,
}

impl Finished {
    pub(super) fn of(operation: &Operation, outcome: &Outcome, took: Duration) -> Self {
        let (outcome, message) = match outcome {
            Outcome::Answered(answer) => {
                let message = shortened(answer.message.clone(), MAX_MESSAGE);
                (answer.code.name(), message)
            }
            Outcome::Lost => {
                let ended = operation.session().and_then(SessionHandle::ended);
                let why = ended.map(|ended| format!("its session is over: {}", ended.why));
                ("LOST", shortened(why.unwrap_or_default(), MAX_MESSAGE))
            }
        };
        Self {
            id: operation.id,
            verb: operation.request.verb,
            class: Arc::clone(&operation.request.class),
            machine: operation.request.machine.clone(),
            instance: operation.session().map(|session| session.info().instance.clone()),
            session: operation.session_id(),
            delivery: operation.delivery(),
            attempt: operation.request.attempt,
            sent_after: operation.sent_after(),
            accepted_after: operation.accepted_after(),
            submitted_at: operation.submitted_at,
            took,
            outcome,
            message,
        }
    }
}
