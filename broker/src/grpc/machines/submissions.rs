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

use broker_proto::{
    passing::{Submission, Submitted, Unreadable},
    v1::{MachineResponse, SubmitResponse, submit_response::Outcome},
};
use bytes::{Bytes, BytesMut};
use futures::{
    FutureExt as _, Stream, StreamExt as _, future::BoxFuture, stream::FuturesUnordered,
};
use slab::Slab;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::{Machines, list, payload, volume_ids};
use crate::{
    dispatch::{Answered, Ask, Begun, Error, Origin, Waiting},
    driver::Verb,
    grpc::messages::{self, Messages, SEND_AT},
    operation::{Bell, Payload, duration},
    turns::turn,
};

/// How many operations of one stream run at once; beyond that it is not read.
const AT_ONCE: usize = 10_000;

pub(super) struct Submissions {
    door: Machines,
    origin: Origin,
    /// `None` once the caller has said all.
    requests: Option<Messages>,
    /// Those that are to be sent next, each with its prefix.
    answers: BytesMut,
    waiting: Slab<Waits>,
    bell: Arc<Bell>,
    /// Those of `waiting` that are over, or were when the bell was rung.
    over: Vec<usize>,
    /// When they were found to be: their time ends there, however slowly the caller reads.
    over_at: Instant,
    /// What takes more than one attempt.
    later: FuturesUnordered<BoxFuture<'static, (u64, Verb, Answer)>>,
    /// When one of `waiting` may be due. Never later than that.
    alarm: Pin<Box<Sleep>>,
    /// The alarm or `later` has to be looked at once more before this can wait.
    is_new: bool,
    /// Why there is nothing more to read, to be told behind the answers that are there.
    broken: Option<Status>,
}

type Answer = Result<Answered, Error>;

struct Waits {
    tag: u64,
    verb: Verb,
    waiting: Waiting,
}

impl Submissions {
    pub(super) fn new(door: Machines, origin: Origin, requests: Messages) -> Self {
        let now = Instant::now();
        Self {
            door,
            origin,
            requests: Some(requests),
            answers: BytesMut::new(),
            waiting: Slab::new(),
            bell: Arc::default(),
            over: Vec::new(),
            over_at: now,
            later: FuturesUnordered::new(),
            alarm: Box::pin(sleep_until(now)),
            is_new: false,
            broken: None,
        }
    }

    /// Begins an operation. What is over at once is answered at once.
    fn submit(&mut self, message: &[u8], now: Instant) -> Result<(), Status> {
        // As tonic says it: whoever sent this does not speak our language.
        let wrong = |error: Unreadable| Status::internal(error.to_string());
        let Submission { tag, operation, timeout } = Submission::read(message).map_err(wrong)?;
        let begun = self.ask(operation).and_then(|(verb, ask)| {
            let (ask, timeout) = self.door.admit(ask, timeout.map(positive).transpose())?;
            Ok((verb, self.door.dispatcher.begin(ask, timeout, now)))
        });
        match begun {
            Ok((verb, begun)) => self.go_on(tag, verb, begun),
            Err(error) => self.refuse(tag, error.into()),
        }
        Ok(())
    }

    fn ask(&self, operation: Option<Submitted<'_>>) -> Result<(Verb, Box<Ask>), Error> {
        let (verb, request) = match operation {
            Some(Submitted::Create(request)) => (Verb::Create, request),
            Some(Submitted::Initialize(request)) => (Verb::Initialize, request),
            Some(Submitted::Delete(request)) => (Verb::Delete, request),
            Some(Submitted::GetStatus(request)) => (Verb::GetStatus, request),
            Some(Submitted::List(request)) => (Verb::List, request),
            Some(Submitted::GetVolumeIds(request)) => (Verb::GetVolumeIds, request),
            None => return Err(Error::invalid("operation", "one must be set")),
        };
        Ok((verb, Ask::read(verb, request, &self.door.names)?.by(self.origin.clone())))
    }

    fn go_on(&mut self, tag: u64, verb: Verb, begun: Begun) {
        match begun {
            Begun::Over(result) => self.answer(tag, verb, result),
            Begun::Waiting(waiting) => {
                if self.waiting.is_empty() || waiting.deadline() < self.alarm.deadline() {
                    self.alarm.as_mut().reset(waiting.deadline());
                    self.is_new = true;
                }
                let entry = self.waiting.vacant_entry();
                waiting.listen(Arc::clone(&self.bell), entry.key());
                entry.insert(Waits { tag, verb, waiting });
            }
            Begun::Later(later) => {
                self.is_new = true;
                self.later.push(later.map(move |result| (tag, verb, result)).boxed());
            }
        }
    }

    /// Takes one off that is over, or due.
    fn conclude(&mut self, number: usize, now: Instant) {
        let Waits { tag, verb, waiting } = self.waiting.remove(number);
        let begun = self.door.dispatcher.conclude(waiting, now);
        self.go_on(tag, verb, begun);
    }

    fn answer(&mut self, tag: u64, verb: Verb, result: Answer) {
        // Nearly all are of this kind, and it is passed on as it came.
        if let Ok(Answered { answer, .. }) = &result
            && answer.code.is_ok()
            && let Payload::Machine(machine) = &answer.payload
        {
            let length = machine.submitted_len(tag);
            messages::put(length, &mut self.answers, |to| machine.submitted(tag, to));
            return;
        }
        let outcome = match (verb, payload(result)) {
            (Verb::List, Ok(payload)) => Outcome::List(list(payload)),
            (Verb::GetVolumeIds, Ok(payload)) => Outcome::VolumeIds(volume_ids(payload)),
            (_, Ok(_)) => Outcome::Machine(MachineResponse::default()),
            (_, Err(status)) => return self.refuse(tag, status),
        };
        self.put(tag, outcome);
    }

    fn refuse(&mut self, tag: u64, status: Status) {
        self.put(tag, Outcome::Error(to_message(status)));
    }

    fn put(&mut self, tag: u64, outcome: Outcome) {
        let response = SubmitResponse { tag, outcome: Some(outcome) };
        messages::put_message(&response, &mut self.answers);
    }

    /// Answers those that are over, or due.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            while let Some(number) = self.over.pop() {
                let now = self.over_at;
                // Another one may have its number by now.
                let is_over = self
                    .waiting
                    .get(number)
                    .is_some_and(|one| one.waiting.is_over() || one.waiting.deadline() <= now);
                if is_over {
                    self.conclude(number, now);
                }
                if self.answers.len() >= SEND_AT {
                    return Poll::Ready(());
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

    /// Begins what has come, as long as there is room for it in this turn. Ready when all was said.
    fn poll_requests(&mut self, context: &mut Context<'_>, room: &mut usize) -> Poll<()> {
        // Those that came together came now.
        let now = Instant::now();
        while *room > 0
            && self.waiting.len() + self.later.len() < AT_ONCE
            && self.answers.len() < SEND_AT
            && let Some(requests) = &mut self.requests
        {
            let begun = match requests.poll_next_of_stream(context) {
                Poll::Ready(Some(request)) => request.and_then(|it| self.submit(&it, now)),
                Poll::Ready(None) => {
                    self.requests = None;
                    break;
                }
                Poll::Pending => return Poll::Pending,
            };
            if let Err(status) = begun {
                self.broken = Some(status);
                break;
            }
            *room -= 1;
            if *room == 0 {
                context.waker().wake_by_ref();
            }
        }
        if self.requests.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Each item is as many answers as there are.
impl Stream for Submissions {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut room = turn(this.waiting.len());
        let is_over = loop {
            this.is_new = false;
            if this.poll_over(context).is_ready() {
                break false;
            }
            while this.answers.len() < SEND_AT
                && let Poll::Ready(Some((tag, verb, result))) = this.later.poll_next_unpin(context)
            {
                this.answer(tag, verb, result);
            }
            let all_said =
                this.broken.is_none() && this.poll_requests(context, &mut room).is_ready();
            if this.broken.is_some() || all_said && this.waiting.is_empty() && this.later.is_empty()
            {
                break true;
            }
            // What is new was not looked at, and so would wake nobody.
            if !this.is_new {
                break false;
            }
        };
        if !this.answers.is_empty() {
            return Poll::Ready(Some(Ok(this.answers.split().freeze())));
        }
        if is_over { Poll::Ready(this.broken.take().map(Err)) } else { Poll::Pending }
    }
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

fn positive(timeout: Result<prost_types::Duration, Unreadable>) -> Result<Duration, Error> {
    let timeout = timeout.map_err(|error| Error::invalid("timeout", error.to_string()))?;
    let positive = duration(timeout).filter(|timeout| !timeout.is_zero());
    positive.ok_or_else(|| Error::invalid("timeout", "must be more than zero"))
}
