//! The operations that ended lately, for operators.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{
    Code, Delivery, Operation, Outcome,
    pace::{Pace, Series},
    shortened,
};
use crate::{
    driver::{ClassId, Instance, OperationId, SessionId, Verb},
    session::SessionHandle,
};

/// How many finished operations operators can look back on.
const RECENT: usize = 1_000;
/// How much of its message is kept of each.
const MAX_MESSAGE: usize = 512;

#[derive(Debug)]
pub(super) struct Recent {
    newest: Mutex<VecDeque<Finished>>,
    pace: Mutex<Pace>,
    started: Instant,
}

impl Default for Recent {
    fn default() -> Self {
        Self { newest: Mutex::default(), pace: Mutex::default(), started: Instant::now() }
    }
}

impl Recent {
    pub(super) fn push(&self, finished: Finished, now: Instant) {
        let (kind, ok) = (&finished.class.kind, finished.outcome == Code::OK.name());
        let mut pace = self.pace.lock().expect("no panic while locked");
        pace.count(now - self.started, finished.verb, kind, finished.took, ok);
        drop(pace);
        let mut recent = self.newest.lock().expect("no panic while locked");
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(finished);
    }

    pub(super) fn newest(&self, most: usize) -> Vec<Finished> {
        let recent = self.newest.lock().expect("no panic while locked");
        recent.iter().rev().take(most).cloned().collect()
    }

    pub(super) fn pace(&self) -> Vec<Series> {
        let mut pace = self.pace.lock().expect("no panic while locked");
        pace.series(self.started.elapsed())
    }
}

/// A finished operation, for operators.
#[derive(Clone, Debug)]
pub struct Finished {
    pub id: OperationId,
    pub verb: Verb,
    pub class: ClassId,
    pub machine: Arc<str>,
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
    pub(super) fn of(operation: &Operation, outcome: &Outcome, now: Instant) -> Self {
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
            class: operation.request.class.id.clone(),
            machine: operation.request.machine.name.clone(),
            instance: operation.session().map(|session| session.info().instance.clone()),
            session: operation.session_id(),
            delivery: operation.delivery(),
            attempt: operation.request.attempt,
            sent_after: operation.sent_after(),
            accepted_after: operation.accepted_after(),
            submitted_at: operation.submitted_at,
            took: now - operation.submitted,
            outcome,
            message,
        }
    }
}
