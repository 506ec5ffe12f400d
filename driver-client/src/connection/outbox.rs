//! What a session has to say, and which of the broker's operations it still has to answer.
//!
//! Control frames go first, then answers, page by page, then what nobody waits for.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, mem, time::Duration};

use broker_proto::{
    driving::{DriverSide, driver_side::Response},
    v1 as wire,
};
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::{
    answer::{Outcome, Pages, bytes_of},
    maps::HashMap,
    operations::{Orphan, Report, Request},
    verb::Verb,
};

/// How many written successes are kept for the case that the stream breaks: seldom are so many on their way.
/// All of them are cold when they go, in each session. Of others the next Hello says that they ended, and
/// whoever asks again gets the answer from memory.
const KEPT_SENT: usize = 1024;
/// How many operations of lost brokers wait to be told. What is lost is no harm: a retry only costs more.
const MOST_ORPHANS: usize = 4096;
/// So many answers are worth a write of their own.
const TOGETHER: usize = 128;
/// So many bytes are no wait worth mentioning.
const LITTLE: usize = 64 * 1024;

/// Holds at most two frames per outstanding operation, one pong, and answers to what was refused: the
/// session stops reading before these become too many. Besides, what the session took over when it began,
/// two frames for each at most.
#[derive(Default)]
pub(super) struct Outbox {
    pong: Option<DriverSide>,
    control: VecDeque<DriverSide>,
    /// The operations that began since the last [`release`](Outbox::release): they may end this very
    /// moment, and many have.
    begun: Vec<i32>,
    /// How many of them have neither ended nor been told of.
    untold: usize,
    answers: VecDeque<Answer>,
    /// About how long the answers are together.
    answer_bytes: usize,
    /// What answers are encoded in.
    encoded: BytesMut,
    orphans: VecDeque<Orphan>,
    /// The operations of this stream without an answer.
    outstanding: HashMap<i32, Outstanding>,
    /// Successes that were written lately, and may not have been read when the stream breaks.
    sent: VecDeque<(Instant, Report)>,
    /// When what was written must have been read.
    certain_after: Duration,
}

struct Outstanding {
    verb: Verb,
    accepted: Accepted,
}

/// Whether the broker knows that an operation began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accepted {
    /// It waits for a slot.
    NotYet,
    Untold,
    /// Or its answer says so.
    Told,
}

struct Answer {
    /// With an id it is a result, without one the end of a resumed operation.
    operation: Option<i32>,
    verb: Bytes,
    news: News,
    pages: Pages,
    bytes: usize,
}

/// What an answer tells.
pub(super) enum News {
    /// The end of an execution, for which the broker has to hear of it.
    Ended(Report),
    /// Of an earlier one. If it is lost, so be it.
    Remembered(Report),
    /// That there is none, likewise.
    Refused(Outcome),
}

impl Outbox {
    /// For a broker that gives up a driver which it has not heard of for `dead_after`.
    pub(super) fn set_dead_after(&mut self, dead_after: Duration) {
        self.certain_after = dead_after * 2;
    }

    /// Whether a frame may go out now.
    pub(super) fn has_frame(&self) -> bool {
        self.pong.is_some()
            || !self.control.is_empty()
            || !self.answers.is_empty()
            || !self.orphans.is_empty()
    }

    /// Whether all was said, and every operation has its answer.
    pub(super) fn is_done(&self) -> bool {
        self.len() == 0 && self.outstanding.is_empty()
    }

    /// Without the orphans, which nobody waits for.
    pub(super) fn len(&self) -> usize {
        usize::from(self.pong.is_some()) + self.control.len() + self.answers.len()
    }

    /// Whether answers that are ready may wait for those of operations that began with them, and have most
    /// likely ended when they have been polled once. For no longer than until the next
    /// [`release`](Outbox::release).
    pub(super) fn is_gathering(&self) -> bool {
        self.untold > 0 && self.answers.len() < TOGETHER && self.answer_bytes < LITTLE
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    pub(super) fn is_outstanding(&self, operation: i32) -> bool {
        self.outstanding.contains_key(&operation)
    }

    /// An operation is about to be submitted.
    pub(super) fn expect(&mut self, operation: i32, verb: Verb) {
        self.outstanding.insert(operation, Outstanding { verb, accepted: Accepted::NotYet });
    }

    /// Tells of all that began, has not ended, and of which nobody knows whether it goes on.
    pub(super) fn release(&mut self) {
        for id in mem::take(&mut self.begun) {
            self.goes_on(id);
        }
    }

    /// A pong that has not left yet is replaced: only the newest is of use.
    pub(super) fn pong(&mut self, sequence: u64, free_slots: usize) {
        let running = self.outstanding.iter().filter(|(_, one)| one.accepted != Accepted::NotYet);
        let in_flight = running.map(|(id, _)| *id).collect();
        let free_slots = free_slots.try_into().unwrap_or(u32::MAX);
        let pong = wire::Pong { sequence, in_flight, free_slots };
        self.pong = Some(named(0, "pong", Response::Pong(pong)));
    }

    /// It began, and may end at once: then its answer says both.
    pub(super) fn started(&mut self, operation: i32) {
        if let Some(outstanding) = self.outstanding.get_mut(&operation)
            && outstanding.accepted == Accepted::NotYet
        {
            outstanding.accepted = Accepted::Untold;
            self.untold += 1;
            self.begun.push(operation);
        }
    }

    /// It began and takes its time, which the broker should know.
    pub(super) fn goes_on(&mut self, operation: i32) {
        if let Some(outstanding) = self.outstanding.get_mut(&operation)
            && outstanding.accepted == Accepted::Untold
        {
            outstanding.accepted = Accepted::Told;
            self.untold -= 1;
            let accepted = Response::Accepted(wire::Accepted {});
            self.control.push_back(named(operation, outstanding.verb.as_str(), accepted));
        }
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
    pub(super) fn orphan(&mut self, orphan: Orphan) {
        // Whoever is too far behind has to do without.
        if self.orphans.len() < MOST_ORPHANS {
            self.orphans.push_back(orphan);
        }
    }

    /// An answer without an execution.
    pub(super) fn answer(&mut self, operation: i32, verb: Bytes, news: News) {
        self.forget(operation);
        self.push(Some(operation), verb, news);
    }

    /// The end of an execution. A success says as well that it was begun, so that no Accepted need go out
    /// before it, unless long answers do. A failure does not: it could be
    /// a refusal. A list is answered in pages, and who waits for the last of them wants to know that it
    /// was begun.
    pub(super) fn report(&mut self, operation: Option<i32>, report: Report) {
        let verb = report.request().verb;
        let says_so = report.outcome().is_ok() && verb != Verb::List && self.answer_bytes < LITTLE;
        if let Some(id) = operation {
            match self.outstanding.get_mut(&id) {
                Some(outstanding) if says_so => {
                    self.untold -= usize::from(outstanding.accepted == Accepted::Untold);
                    outstanding.accepted = Accepted::Told;
                }
                _ => self.goes_on(id),
            }
        }
        let verb = Bytes::from_static(verb.as_str().as_bytes());
        self.push(operation, verb, News::Ended(report));
    }

    fn push(&mut self, operation: Option<i32>, verb: Bytes, news: News) {
        let bytes = bytes_of(news.outcome());
        self.answer_bytes += bytes;
        self.answers.push_back(Answer { operation, verb, news, pages: Pages::new(), bytes });
    }

    /// The next frame. The operation whose last one it is is off the table.
    pub(super) fn next(&mut self) -> Option<DriverSide> {
        self.pong
            .take()
            .or_else(|| self.control.pop_front())
            .or_else(|| self.next_answer())
            .or_else(|| self.next_orphan())
    }

    fn next_answer(&mut self) -> Option<DriverSide> {
        let mut answer = self.answers.pop_front()?;
        let frame = match (answer.operation, &answer.news) {
            (Some(id), news) => {
                let result = answer.pages.next_encoded(news.outcome(), &mut self.encoded)?;
                frame(id, answer.verb.clone(), Response::Result(result))
            }
            (None, News::Ended(report)) => {
                let resumed = wire::Resumed {
                    result: Some(answer.pages.next(report.outcome())?),
                    age: report.ended().elapsed().try_into().ok(),
                    ..resumed(report.request())
                };
                named(0, "resumed", Response::Resumed(resumed.into()))
            }
            (None, News::Remembered(_) | News::Refused(_)) => return None,
        };
        if answer.pages.is_done() {
            self.answered(answer);
        } else {
            // To the end of the line: a long list must not hold up the others.
            self.answers.push_back(answer);
        }
        Some(frame)
    }

    /// An answer went out in full. It still has to arrive: HTTP/2 does not tell us that it did. A
    /// success is kept until the broker must have read it, because it gives up a driver that it
    /// has not heard of for a while. Telling it twice does no harm. Failures are not kept:
    /// the operation may have been tried again since.
    fn answered(&mut self, answer: Answer) {
        self.answer_bytes -= answer.bytes;
        if let Some(id) = answer.operation {
            self.forget(id);
        }
        let now = Instant::now();
        while self.sent.len() >= KEPT_SENT
            || self.sent.front().is_some_and(|(at, _)| now.duration_since(*at) > self.certain_after)
        {
            self.sent.pop_front();
        }
        if let News::Ended(report) = answer.news
            && report.request().verb.mutates()
            && report.outcome().is_ok()
        {
            self.sent.push_back((now, report));
        }
    }

    fn forget(&mut self, operation: i32) {
        let gone = self.outstanding.remove(&operation);
        self.untold -= usize::from(gone.is_some_and(|gone| gone.accepted == Accepted::Untold));
    }

    fn next_orphan(&mut self) -> Option<DriverSide> {
        let resumed = match self.orphans.pop_front()? {
            Orphan::Runs(request) => resumed(&request),
            Orphan::Ended(report) => ended(&report),
        };
        let resumed = wire::Resumed { elsewhere: true, ..resumed };
        Some(named(0, "resumed", Response::Resumed(resumed.into())))
    }

    /// The reports that may not have been read, and those that never left in full.
    pub(super) fn into_reports(self) -> (Vec<Report>, Vec<Report>) {
        let sent = self.sent.into_iter().map(|(_, report)| report).collect();
        let unsent = self.answers.into_iter().filter_map(|answer| match answer.news {
            News::Ended(report) => Some(report),
            News::Remembered(_) | News::Refused(_) => None,
        });
        (sent, unsent.collect())
    }
}

impl News {
    fn outcome(&self) -> &Outcome {
        match self {
            News::Ended(report) | News::Remembered(report) => report.outcome(),
            News::Refused(outcome) => outcome,
        }
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
        request_id: request.request_id().to_owned(),
        ..Default::default()
    }
}

/// One that is over, and of its result the code alone.
pub(super) fn ended(report: &Report) -> wire::Resumed {
    let code = report.outcome().as_ref().map_or_else(|error| error.code() as i32, |_| 0);
    wire::Resumed {
        result: Some(wire::OperationResult { code, ..Default::default() }),
        age: report.ended().elapsed().try_into().ok(),
        ..resumed(report.request())
    }
}
