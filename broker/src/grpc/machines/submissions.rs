//! Many operations over one stream.
//!
//! The answers are the stream: no task of its own, so a caller that leaves takes everything that waits
//! for it along, and one that reads slowly is sent no more than it reads. Nor is there a task for each
//! operation, or a timer: those that are over ring a [`Bell`], and one alarm is set for whichever is
//! due first.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use broker_proto::passing::{
    SubmitRequest, SubmitResponse, submit_request::Operation, submit_response::Outcome,
};
use futures::{
    FutureExt as _, Stream, StreamExt as _, future::BoxFuture, stream::FuturesUnordered,
};
use slab::Slab;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{Status, Streaming};

use super::{Machines, list, machine, payload, volume_ids};
use crate::{
    dispatch::{Answered, Ask, Begun, Error, Origin, Waiting},
    driver::Verb,
    operation::{Bell, duration},
};

/// How many operations of one stream run at once; beyond that it is not read.
const AT_ONCE: usize = 10_000;

pub(super) struct Submissions {
    door: Machines,
    origin: Origin,
    /// `None` once the caller has said all.
    requests: Option<Streaming<SubmitRequest>>,
    waiting: Slab<Submitted>,
    bell: Arc<Bell>,
    /// Those of `waiting` that are over, or were when the bell was rung.
    over: Vec<usize>,
    /// When they were found to be: their time ends there, however slowly the caller reads.
    over_at: Instant,
    /// What takes more than one attempt.
    later: FuturesUnordered<BoxFuture<'static, SubmitResponse>>,
    /// When one of `waiting` may be due. Never later than that.
    alarm: Pin<Box<Sleep>>,
    /// The alarm or `later` has to be looked at once more before this can wait.
    is_new: bool,
}

struct Submitted {
    tag: u64,
    verb: Verb,
    waiting: Waiting,
}

impl Submissions {
    pub(super) fn new(door: Machines, origin: Origin, requests: Streaming<SubmitRequest>) -> Self {
        let now = Instant::now();
        Self {
            door,
            origin,
            requests: Some(requests),
            waiting: Slab::new(),
            bell: Arc::default(),
            over: Vec::new(),
            over_at: now,
            later: FuturesUnordered::new(),
            alarm: Box::pin(sleep_until(now)),
            is_new: false,
        }
    }

    /// Begins an operation. What is over at once is answered at once.
    fn submit(&mut self, request: SubmitRequest, now: Instant) -> Option<SubmitResponse> {
        let SubmitRequest { tag, operation, timeout } = request;
        let begun = self.ask(operation).and_then(|ask| {
            let verb = ask.verb;
            let (ask, timeout) = self.door.admit(ask, timeout.map(positive).transpose())?;
            Ok((verb, self.door.dispatcher.begin(ask, timeout, now)))
        });
        match begun {
            Ok((verb, begun)) => self.go_on(tag, verb, begun),
            Err(error) => Some(refusal(tag, error.into())),
        }
    }

    fn ask(&self, operation: Option<Operation>) -> Result<Box<Ask>, Error> {
        let names = &self.door.names;
        let (verb, request) = match operation {
            Some(Operation::Create(request)) => (Verb::Create, request),
            Some(Operation::Initialize(request)) => (Verb::Initialize, request),
            Some(Operation::Delete(request)) => (Verb::Delete, request),
            Some(Operation::GetStatus(request)) => (Verb::GetStatus, request),
            Some(Operation::List(request)) => {
                return Ok(Ask::list(request, names)?.by(self.origin.clone()));
            }
            Some(Operation::GetVolumeIds(request)) => {
                return Ok(Ask::volume_ids(request, names)?.by(self.origin.clone()));
            }
            None => return Err(Error::invalid("operation", "one must be set")),
        };
        Ok(Ask::passed_on(verb, *request, names)?.by(self.origin.clone()))
    }

    fn go_on(&mut self, tag: u64, verb: Verb, begun: Begun) -> Option<SubmitResponse> {
        match begun {
            Begun::Over(result) => return Some(response(tag, verb, result)),
            Begun::Waiting(waiting) => {
                if self.waiting.is_empty() || waiting.deadline() < self.alarm.deadline() {
                    self.alarm.as_mut().reset(waiting.deadline());
                    self.is_new = true;
                }
                let entry = self.waiting.vacant_entry();
                waiting.listen(Arc::clone(&self.bell), entry.key());
                entry.insert(Submitted { tag, verb, waiting });
            }
            Begun::Later(later) => {
                self.is_new = true;
                self.later.push(later.map(move |result| response(tag, verb, result)).boxed());
            }
        }
        None
    }

    /// Takes one off that is over, or due.
    fn conclude(&mut self, number: usize, now: Instant) -> Option<SubmitResponse> {
        let Submitted { tag, verb, waiting } = self.waiting.remove(number);
        let begun = self.door.dispatcher.conclude(waiting, now);
        self.go_on(tag, verb, begun)
    }

    /// The answer to one of those that are over, or due.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<SubmitResponse> {
        loop {
            while let Some(number) = self.over.pop() {
                let now = self.over_at;
                // Another one may have its number by now.
                let is_over = self
                    .waiting
                    .get(number)
                    .is_some_and(|one| one.waiting.is_over() || one.waiting.deadline() <= now);
                if is_over && let Some(response) = self.conclude(number, now) {
                    return Poll::Ready(response);
                }
            }
            if self.bell.poll(&mut self.over, context).is_ready() {
                self.over_at = Instant::now();
                // Taken from the end: whoever was over first is answered first.
                self.over.reverse();
            } else if self.poll_alarm(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Puts those whose time is over to those that are over.
    fn poll_alarm(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while !self.waiting.is_empty() {
            ready!(self.alarm.poll_unpin(context));
            let now = Instant::now();
            let mut next = None;
            for (number, one) in &self.waiting {
                let deadline = one.waiting.deadline();
                if deadline <= now {
                    self.over.push(number);
                } else {
                    next = Some(next.map_or(deadline, |next: Instant| next.min(deadline)));
                }
            }
            self.alarm.as_mut().reset(next.unwrap_or(now));
            if !self.over.is_empty() {
                self.over_at = now;
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// An answer to what was just read, or `None` when all was said.
    fn poll_requests(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<SubmitResponse, Status>>> {
        // Those that came together came now.
        let now = Instant::now();
        while self.waiting.len() + self.later.len() < AT_ONCE
            && let Some(requests) = &mut self.requests
        {
            match requests.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(request))) => {
                    if let Some(response) = self.submit(request, now) {
                        return Poll::Ready(Some(Ok(response)));
                    }
                }
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(None) => self.requests = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.requests.is_none() { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl Stream for Submissions {
    type Item = Result<SubmitResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            this.is_new = false;
            if let Poll::Ready(response) = this.poll_over(context) {
                return Poll::Ready(Some(Ok(response)));
            }
            if let Poll::Ready(Some(response)) = this.later.poll_next_unpin(context) {
                return Poll::Ready(Some(Ok(response)));
            }
            match this.poll_requests(context) {
                Poll::Ready(Some(response)) => return Poll::Ready(Some(response)),
                Poll::Ready(None) if this.waiting.is_empty() && this.later.is_empty() => {
                    return Poll::Ready(None);
                }
                // What is new was not looked at, and so would wake nobody.
                Poll::Ready(None) | Poll::Pending if this.is_new => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn response(tag: u64, verb: Verb, result: Result<Answered, Error>) -> SubmitResponse {
    let outcome = payload(result).map(|payload| match verb {
        Verb::List => Outcome::List(list(payload)),
        Verb::GetVolumeIds => Outcome::VolumeIds(volume_ids(payload)),
        Verb::Create | Verb::Initialize | Verb::Delete | Verb::GetStatus => {
            Outcome::Machine(machine(payload))
        }
    });
    match outcome {
        Ok(outcome) => SubmitResponse { tag, outcome: Some(outcome) },
        Err(status) => refusal(tag, status),
    }
}

fn refusal(tag: u64, status: Status) -> SubmitResponse {
    SubmitResponse { tag, outcome: Some(Outcome::Error(to_message(status))) }
}

fn to_message(status: Status) -> tonic_types::Status {
    // The details of a status are an encoded google.rpc.Status.
    prost::Message::decode(status.details())
        .ok()
        .filter(|_| !status.details().is_empty())
        .unwrap_or(tonic_types::Status {
            code: status.code().into(),
            message: status.message().to_owned(),
            details: Vec::new(),
        })
}

fn positive(timeout: prost_types::Duration) -> Result<Duration, Error> {
    let positive = duration(timeout).filter(|timeout| !timeout.is_zero());
    positive.ok_or_else(|| Error::invalid("timeout", "must be more than zero"))
}
