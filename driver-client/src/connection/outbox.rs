//! What a session has to say: control frames first, then answers, page by page.

use std::{collections::VecDeque, sync::Arc};

use broker_proto::{
    driving::{DriverSide, driver_side::Response},
    v1 as wire,
};
use bytes::Bytes;

use crate::{
    answer::{Outcome, Pages},
    operations::{Orphan, Report, Request},
    verb::Verb,
};

/// Holds at most two frames per outstanding operation, one pong, and answers to what was refused: the
/// session stops reading before these become too many. Besides, what the session took over when it began,
/// two frames for each at most; and a few orphans, which come in only while there is little else.
#[derive(Default)]
pub(super) struct Outbox {
    pong: Option<DriverSide>,
    control: VecDeque<DriverSide>,
    answers: VecDeque<Answer>,
}

struct Answer {
    /// With an id it is a result, without one the end of a resumed operation.
    operation: Option<i32>,
    verb: Bytes,
    report: Option<Report>,
    pages: Pages,
}

/// The last frame of an answer: from here on the operation is off the table.
pub(super) struct Answered {
    pub(super) operation: Option<i32>,
    pub(super) report: Option<Report>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.pong.is_some()) + self.control.len() + self.answers.len()
    }

    /// A pong that has not left yet is replaced: only the newest is of use.
    pub(super) fn pong(&mut self, pong: wire::Pong) {
        self.pong = Some(named(0, "pong", Response::Pong(pong)));
    }

    pub(super) fn accepted(&mut self, operation: i32, verb: Verb) {
        let accepted = Response::Accepted(wire::Accepted {});
        self.control.push_back(named(operation, verb.as_str(), accepted));
    }

    pub(super) fn drain(&mut self, reason: &str) {
        let drain = wire::Drain { reason: reason.to_owned(), after: None };
        self.control.push_back(named(0, "drain", Response::Drain(drain)));
    }

    /// An operation of an earlier session that still runs.
    pub(super) fn still_runs(&mut self, request: &Request) {
        self.control.push_back(named(0, "resumed", Response::Resumed(resumed(request).into())));
    }

    /// An operation that another broker asked for, and whose callers may come to this one.
    pub(super) fn orphan(&mut self, orphan: &Orphan) {
        let resumed = match orphan {
            Orphan::Runs(request) => resumed(request),
            Orphan::Ended(report) => ended(report),
        };
        let resumed = wire::Resumed { elsewhere: true, ..resumed };
        self.control.push_back(named(0, "resumed", Response::Resumed(resumed.into())));
    }

    /// An answer without an execution, a refusal or a remembered one: if it is lost, so be it.
    pub(super) fn answer(&mut self, operation: i32, verb: Bytes, outcome: Arc<Outcome>) {
        let pages = Pages::new(outcome);
        self.answers.push_back(Answer { operation: Some(operation), verb, report: None, pages });
    }

    /// The end of an execution. A success says as well that it was begun, so that an Accepted that is
    /// still here need not go out before it, unless other answers do. A failure does not: it could be a
    /// refusal. A list is answered in pages, and who waits for the last of them wants to know that it
    /// was begun.
    pub(super) fn report(&mut self, operation: Option<i32>, report: Report) {
        if let Some(id) = operation
            && report.outcome.is_ok()
            && report.request.verb != Verb::List
            && self.answers.is_empty()
        {
            let is_its_own = |frame: &DriverSide| {
                frame.operation_id == id && matches!(frame.response, Some(Response::Accepted(_)))
            };
            if let Some(at) = self.control.iter().position(is_its_own) {
                self.control.remove(at);
            }
        }
        let pages = Pages::new(report.outcome.clone());
        let verb = Bytes::from_static(report.request.verb.as_str().as_bytes());
        self.answers.push_back(Answer { operation, verb, report: Some(report), pages });
    }

    /// The next frame, and whose last one it is.
    pub(super) fn next(&mut self) -> Option<(DriverSide, Option<Answered>)> {
        if let Some(frame) = self.pong.take().or_else(|| self.control.pop_front()) {
            return Some((frame, None));
        }
        let mut answer = self.answers.pop_front()?;
        let result = answer.pages.next()?;
        let frame = match (answer.operation, &answer.report) {
            (Some(id), _) => frame(id, answer.verb.clone(), Response::Result(result)),
            (None, Some(report)) => {
                let resumed = wire::Resumed {
                    result: Some(result),
                    age: report.ended.elapsed().try_into().ok(),
                    ..resumed(&report.request)
                };
                named(0, "resumed", Response::Resumed(resumed.into()))
            }
            (None, None) => return None,
        };
        if !answer.pages.is_done() {
            // To the end of the line: a long list must not hold up the others.
            self.answers.push_back(answer);
            return Some((frame, None));
        }
        let Answer { operation, report, .. } = answer;
        Some((frame, Some(Answered { operation, report })))
    }

    /// The reports that never left in full.
    pub(super) fn into_unsent(self) -> impl Iterator<Item = Report> {
        self.answers.into_iter().filter_map(|answer| answer.report)
    }
}

fn frame(id: i32, kind: Bytes, response: Response) -> DriverSide {
    DriverSide { operation_id: id, operation_type: kind, response: Some(response) }
}

pub(super) fn named(id: i32, kind: &'static str, response: Response) -> DriverSide {
    frame(id, Bytes::from_static(kind.as_bytes()), response)
}

/// An operation as the broker knows it from an earlier stream.
pub(super) fn resumed(request: &Request) -> wire::Resumed {
    wire::Resumed {
        verb: request.verb.as_str().to_owned(),
        class: Some(request.class().to_wire()),
        machine_name: request.machine.name().to_owned(),
        request_id: request.request_id.clone(),
        ..Default::default()
    }
}

/// One that is over, and of its result the code alone.
pub(super) fn ended(report: &Report) -> wire::Resumed {
    let code = report.outcome.as_ref().as_ref().map_or_else(|error| error.code() as i32, |_| 0);
    wire::Resumed {
        result: Some(wire::OperationResult { code, ..Default::default() }),
        age: report.ended.elapsed().try_into().ok(),
        ..resumed(&report.request)
    }
}
