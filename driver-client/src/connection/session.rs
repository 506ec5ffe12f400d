//! One open session: the loop that reads the broker's frames and writes ours.
//!
//! The loop never waits for the driver's code nor for a slow reader. It reads whenever there is
//! something to read, so that pings are answered and cancellations heard, and it takes a frame from
//! the [`Outbox`] only when the transport has room for it. Only a broker that sends and never reads
//! is not read any more either, until one of us gives the other up.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use broker_proto::driving::{self as wire, broker_side::Control};
use bytes::Bytes;
use futures::FutureExt as _;
use tokio::{
    sync::mpsc::{self, Permit},
    time::{Instant, sleep_until, timeout},
};
use tonic::{Status, Streaming};
use tracing::{debug, warn};

use super::{
    Shared,
    outbox::{Answered, Outbox},
};
use crate::{
    classes::{Classes, Names},
    error::{Code, Error},
    executor::{Ears, Event, Submitted},
    fleet::Target,
    operation::{Job, time_left},
    operations::{AddressId, MachineKey, Orphan, Report, SessionId, Ticket, busy},
    verb::Verb,
};

type Inbound = Streaming<wire::BrokerSide>;
type Outbound = mpsc::Sender<wire::DriverSide>;

/// Why a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// We left, with nothing unfinished. `clean`: the broker read our last frame.
    Left {
        why: Why,
        clean: bool,
    },
    /// The driver stops now, finished or not.
    Stopped,
    /// No frame came for too long.
    Silent(Duration),
    Closed,
    Failed(Status),
}

/// What made us leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The driver stops.
    Stopping,
    /// The broker asked for it.
    Drained,
}

/// How much one stream may have outstanding, beyond what any sane broker sends.
const OUTSTANDING_AT_LEAST: usize = 1024;
/// How many frames or events are dealt with before anything else gets its turn.
const AT_ONCE: usize = 64;
/// How long the broker has to close a stream that we left.
const GOODBYE: Duration = Duration::from_secs(2);
/// A broker that drains may keep us for this long.
const LONGEST_STAY: Duration = Duration::from_secs(60 * 60);
/// How many written successes are kept for the case that the stream breaks.
const KEPT_SENT: usize = 4096;
/// How many operations of lost brokers wait to be told.
const MOST_ORPHANS: usize = 4096;

pub(super) struct Session<'a> {
    shared: &'a Shared,
    address: AddressId,
    target: &'a Target,
    id: SessionId,
    classes: Arc<Classes>,
    /// Of the classes that it has named.
    names: Names,
    events: mpsc::Receiver<Event>,
    orphans: mpsc::Receiver<Orphan>,
    outbox: Outbox,
    /// The operations of this stream without an answer.
    outstanding: HashMap<i32, Outstanding>,
    most_outstanding: usize,
    /// Successes that were written lately, and may not have been read when the stream breaks.
    sent: VecDeque<(Instant, Report)>,
    heard: Instant,
    dead_after: Duration,
    /// We announced that we stop.
    stopping: bool,
    /// The broker wants us to leave at this time.
    leave_at: Option<Instant>,
}

struct Outstanding {
    verb: Verb,
    accepted: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        address: AddressId,
        target: &'a Target,
        classes: Arc<Classes>,
        dead_after: Duration,
    ) -> Self {
        let capacity = shared.executor.capacity();
        let most_outstanding = capacity.saturating_mul(4).max(OUTSTANDING_AT_LEAST);
        // Two events for each operation of this stream, one for each that it takes over.
        let (sender, events) = mpsc::channel(most_outstanding * 2 + capacity * 2);
        let (orphaned, orphans) = mpsc::channel(MOST_ORPHANS);
        let ears = Ears { events: sender, orphans: orphaned };
        let (id, resume) = shared.executor.join(address, ears);
        let mut outbox = Outbox::default();
        for report in resume.ended {
            outbox.report(None, report);
        }
        for request in &resume.running {
            outbox.still_runs(request);
        }
        Self {
            shared,
            address,
            target,
            id,
            classes,
            names: Names::default(),
            events,
            orphans,
            outbox,
            outstanding: HashMap::new(),
            most_outstanding,
            sent: VecDeque::new(),
            heard: Instant::now(),
            dead_after,
            stopping: false,
            leave_at: None,
        }
    }

    /// Serves until the stream breaks, or one side wants to leave and nothing is left to do.
    pub(super) async fn run(mut self, mut inbound: Inbound, outbound: Outbound) -> End {
        let end = match self.serve(&mut inbound, &outbound).await {
            Ok(why) => End::Left { why, clean: goodbye(inbound, outbound).await },
            Err(end) => end,
        };
        // From here on the executor keeps answers for the next session itself.
        self.events.close();
        let mut lost = Vec::new();
        let sent = self.sent.drain(..).map(|(_, report)| report);
        let told = match end {
            End::Left { why: Why::Stopping, clean: true } => Vec::new(),
            // A broker that asked us to leave has read all, and forgets it when it stops.
            End::Left { why: Why::Drained, clean: true } => sent.collect(),
            _ => {
                lost.extend(sent);
                Vec::new()
            }
        };
        lost.extend(std::mem::take(&mut self.outbox).into_unsent());
        while let Ok(event) = self.events.try_recv() {
            if let Event::Ended { report, .. } = event {
                lost.push(report);
            }
        }
        self.shared.executor.leave(self.address, self.id, lost, told);
        end
    }

    /// `Ok` when it is time to say goodbye.
    async fn serve(&mut self, inbound: &mut Inbound, outbound: &Outbound) -> Result<Why, End> {
        let mut alarm = pin!(sleep_until(self.heard + self.dead_after));
        loop {
            if let Some(why) = self.may_leave() {
                return Ok(why);
            }
            let has_room = self.outbox.len() < self.most_outstanding * 4;
            let is_waiting = self.is_waiting_to_leave();
            // Every branch is cancel safe: the ones that lose the race lose nothing.
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return Err(End::Stopped),
                () = self.shared.drain.cancelled(), if !self.stopping => {
                    self.stopping = true;
                    self.outbox.drain("the driver is stopping");
                }
                permit = outbound.reserve(), if !self.outbox.is_empty() => {
                    let Ok(permit) = permit else { return Err(End::Closed) };
                    self.write(permit);
                    while !self.outbox.is_empty() && let Ok(permit) = outbound.try_reserve() {
                        self.write(permit);
                    }
                }
                frame = inbound.message(), if has_room => {
                    self.heard = Instant::now();
                    let mut next = Some(frame);
                    // What came with it goes with it: a turn of the loop costs more than a frame.
                    let mut room = AT_ONCE;
                    while let Some(frame) = next {
                        match frame {
                            Ok(Some(frame)) => self.receive(frame),
                            Ok(None) => return Err(End::Closed),
                            Err(status) => return Err(End::Failed(status)),
                        }
                        room -= 1;
                        next = if room > 0 { inbound.message().now_or_never() } else { None };
                    }
                }
                Some(event) = self.events.recv() => {
                    self.tell(event);
                    for _ in 0..AT_ONCE {
                        let Ok(event) = self.events.try_recv() else { break };
                        self.tell(event);
                    }
                }
                // Behind all else: nobody waits for it yet.
                Some(orphan) = self.orphans.recv(), if self.outbox.len() < AT_ONCE => {
                    self.outbox.orphan(&orphan);
                }
                () = &mut alarm => {
                    let dead_at = self.heard + self.dead_after;
                    if Instant::now() >= dead_at {
                        return Err(End::Silent(self.dead_after));
                    }
                    // Something was heard since it was set, which is not worth setting it anew each time.
                    alarm.as_mut().reset(dead_at);
                }
                () = sleep_until(self.leave_at.unwrap_or(self.heard)), if is_waiting => {}
            }
        }
    }

    fn write(&mut self, room: Permit<'_, wire::DriverSide>) {
        if let Some((frame, answered)) = self.outbox.next() {
            room.send(frame);
            if let Some(answered) = answered {
                self.answered(answered);
            }
        }
    }

    fn receive(&mut self, frame: wire::BrokerSide) {
        let id = frame.operation_id;
        match (frame.control, frame.params) {
            (Some(Control::Ping(ping)), _) => self.pong(ping.sequence),
            (Some(Control::Cancel(_)), _) => self.shared.executor.cancel(self.id, id),
            (Some(Control::Extend(extend)), _) => self.extend(id, extend),
            (Some(Control::Drain(drain)), _) => {
                let after = drain.after.and_then(|after| after.try_into().ok());
                let after: Duration = after.unwrap_or(Duration::ZERO);
                self.leave_at = Some(Instant::now() + after.min(LONGEST_STAY));
            }
            (Some(Control::Peers(peers)), _) => {
                self.shared.fleet.tell(self.address, self.target, &peers);
            }
            (Some(Control::SecretChanged(_)), _) => self.classes.secret_changed(),
            (Some(Control::Forget(forget)), _) => {
                self.shared.executor.forget(&MachineKey::from_wire(forget));
            }
            (None, Some(params)) => self.operation(id, &frame.operation_type, params),
            (Some(Control::Welcome(_) | Control::Reject(_)), _) | (None, None) => {
                debug!(kind = ?frame.operation_type, "ignoring a frame");
            }
        }
    }

    fn extend(&self, id: i32, extend: broker_proto::v1::Extend) {
        // A time that is over, or none, extends nothing.
        if let Some(left) = extend.time_left.and_then(time_left) {
            self.shared.executor.extend(self.id, id, Instant::now() + left);
        }
    }

    fn operation(&mut self, id: i32, kind: &Bytes, params: wire::OperationParams) {
        if self.outstanding.contains_key(&id) {
            // Answering would end the first one; not answering harms only who broke the rules.
            warn!(id, "the broker used the id of a running operation again");
            return;
        }
        match self.admit(id, kind, params) {
            Ok((verb, Submitted::Pending { started })) => {
                self.outstanding.insert(id, Outstanding { verb, accepted: started });
                if started {
                    self.outbox.accepted(id, verb);
                }
            }
            Ok((_, Submitted::Answered(outcome))) => {
                self.outbox.answer(id, kind.clone(), outcome);
            }
            Err(error) => self.outbox.answer(id, kind.clone(), Arc::new(Err(error))),
        }
    }

    fn admit(
        &mut self,
        id: i32,
        kind: &Bytes,
        params: wire::OperationParams,
    ) -> Result<(Verb, Submitted), Error> {
        let verb = std::str::from_utf8(kind)
            .ok()
            .and_then(|kind| kind.parse().ok())
            .filter(|verb| self.shared.executor.driver().verbs().contains(verb))
            .ok_or_else(|| {
                Error::new(Code::Unimplemented, "this driver does not implement the operation")
            })?;
        if self.outstanding.len() >= self.most_outstanding {
            return Err(busy());
        }
        let query = self.names.read(&params.class, &params.machine_class)?;
        let job = Job::from_wire(verb, params, query, self.classes.clone(), self.heard)?;
        let ticket = Ticket { address: self.address, session: Some(self.id), operation: Some(id) };
        Ok((verb, self.shared.executor.submit(ticket, job)))
    }

    fn pong(&mut self, sequence: u64) {
        let accepted = self.outstanding.iter().filter(|(_, operation)| operation.accepted);
        self.outbox.pong(broker_proto::v1::Pong {
            sequence,
            in_flight: accepted.map(|(id, _)| *id).collect(),
            free_slots: self.shared.executor.free_slots().try_into().unwrap_or(u32::MAX),
        });
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Started { operation } => {
                if let Some(outstanding) = self.outstanding.get_mut(&operation)
                    && !std::mem::replace(&mut outstanding.accepted, true)
                {
                    self.outbox.accepted(operation, outstanding.verb);
                }
            }
            Event::Ended { operation, report } => self.outbox.report(operation, report),
        }
    }

    /// An answer went out in full. It still has to arrive: HTTP/2 does not tell us that it did. A
    /// success is kept until the broker must have read it, because it gives up a driver that it
    /// has not heard of for `dead_after`. Telling it twice does no harm. Failures are not kept:
    /// the operation may have been tried again since.
    fn answered(&mut self, answered: Answered) {
        if let Some(id) = answered.operation {
            self.outstanding.remove(&id);
        }
        let now = Instant::now();
        let certain = self.dead_after * 2;
        while self.sent.len() >= KEPT_SENT
            || self.sent.front().is_some_and(|(at, _)| now.duration_since(*at) > certain)
        {
            self.sent.pop_front();
        }
        if let Some(report) = answered.report
            && report.request.verb.mutates()
            && report.outcome.is_ok()
        {
            self.sent.push_back((now, report));
        }
    }

    fn is_waiting_to_leave(&self) -> bool {
        self.leave_at.is_some_and(|at| at > Instant::now())
    }

    /// Whether it is time to go, and nothing runs, waits or is unsent.
    fn may_leave(&self) -> Option<Why> {
        let wanted = if self.stopping {
            Why::Stopping
        } else if self.leave_at.is_some() && !self.is_waiting_to_leave() {
            Why::Drained
        } else {
            return None;
        };
        // The events last: an execution sends its own before it leaves the table.
        let idle = self.outbox.is_empty()
            && self.outstanding.is_empty()
            && !self.shared.executor.waits(self.id)
            && self.events.is_empty();
        idle.then_some(wanted)
    }
}

/// Says goodbye and waits for the broker to close the stream, which proves that it read all.
async fn goodbye(mut inbound: Inbound, outbound: Outbound) -> bool {
    let farewell = async {
        let kind = Bytes::from_static(b"unregister");
        let unregister = wire::DriverSide { operation_type: kind, ..Default::default() };
        outbound.send(unregister).await.ok();
        // The half-close.
        drop(outbound);
        loop {
            match inbound.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        }
    };
    timeout(GOODBYE, farewell).await.unwrap_or(false)
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Left { why: Why::Stopping, .. } => f.write_str("the driver stops"),
            End::Left { why: Why::Drained, .. } => f.write_str("the broker asked us to leave"),
            End::Stopped => f.write_str("the driver stops at once"),
            End::Silent(time) => write!(f, "nothing heard for {time:?}"),
            End::Closed => f.write_str("the broker closed the stream"),
            End::Failed(status) => {
                write!(f, "the stream broke: {:?} {}", status.code(), status.message())
            }
        }
    }
}
