//! One open session: the loop that reads the broker's frames and sees to what it asks for.
//!
//! The loop never waits for the driver's code nor for a slow reader. It reads whenever there is
//! something to read, so that pings are answered and cancellations heard; what there is to say goes into
//! the [mailbox](super::mailbox), from which the transport takes it when it has room. Only a broker that
//! sends and never reads is not read any more either, until one of us gives the other up.

use std::{fmt, future::pending, mem, pin::pin, sync::Arc, time::Duration};

use broker_proto::{
    driving::{Asked, BrokerSide, DriverSide, broker_side::Control},
    v1 as wire,
};
use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    stream::{once, select_all},
};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};
use tracing::{debug, warn};

use super::{
    Shared,
    mailbox::{self, Look},
    outbox::{News, Outbox},
};
use crate::{
    classes::{Classes, Names},
    error::{Code, Error},
    executor::{Round, Submitted},
    fleet::Target,
    operation::{Job, time_left},
    operations::{AddressId, MachineKey, SessionId, Ticket, busy},
    verb::Verb,
};

type Inbound = Streaming<BrokerSide>;
type Received = Result<Option<BrokerSide>, Status>;

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

/// What happens to a session beside its traffic.
enum Seldom {
    /// The driver stops now.
    Stop,
    /// The driver stops when it has finished.
    Drain,
    /// The mailbox wants to be looked at.
    Nudged,
}

/// How much one stream may have outstanding, beyond what any sane broker sends.
const OUTSTANDING_AT_LEAST: usize = 1024;
/// How many frames are dealt with before anything else gets its turn.
const AT_ONCE: usize = 256;
/// So long it takes at most until a broker knows that an operation began: what ends at once is not
/// worth two frames. Code that does not end at once says so itself, unless it blocks its thread.
const HELD_BACK: Duration = Duration::from_millis(5);
/// How long the broker has to close a stream that we left.
const GOODBYE: Duration = Duration::from_secs(2);
/// A broker that drains may keep us for this long.
const LONGEST_STAY: Duration = Duration::from_secs(60 * 60);

pub(super) struct Session<'a> {
    shared: &'a Shared,
    address: AddressId,
    target: &'a Target,
    id: SessionId,
    classes: Arc<Classes>,
    /// Of the classes that it has named.
    names: Names,
    /// To put the texts of an operation together in.
    scratch: String,
    mailbox: mailbox::Owned,
    most_outstanding: usize,
    /// What came together and is to begin together.
    round: Arc<Round>,
    /// What began lately, and may run without the broker knowing it.
    begun: Vec<Arc<Round>>,
    heard: Instant,
    dead_after: Duration,
    /// We announced that we stop.
    stopping: bool,
    /// The broker wants us to leave at this time.
    leave_at: Option<Instant>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        address: AddressId,
        target: &'a Target,
        classes: Arc<Classes>,
        mailbox: mailbox::Owned,
        dead_after: Duration,
    ) -> Self {
        let capacity = shared.executor.capacity();
        mailbox.with(|outbox| outbox.set_dead_after(dead_after));
        let id = shared.executor.join(address, mailbox.ears());
        Self {
            shared,
            address,
            target,
            id,
            classes,
            names: Names::default(),
            scratch: String::new(),
            mailbox,
            most_outstanding: capacity.saturating_mul(4).max(OUTSTANDING_AT_LEAST),
            round: Arc::default(),
            begun: Vec::new(),
            heard: Instant::now(),
            dead_after,
            stopping: false,
            leave_at: None,
        }
    }

    /// Serves until the stream breaks, or one side wants to leave and nothing is left to do.
    pub(super) async fn run(mut self, mut inbound: Inbound) -> End {
        let end = match self.serve(&mut inbound).await {
            Ok(why) => End::Left { why, clean: self.goodbye(inbound).await },
            Err(end) => end,
        };
        // Nobody looks after them any more.
        self.scatter();
        // From here on the executor keeps answers for the next session itself.
        let (sent, mut lost) = self.mailbox.close();
        let told = match end {
            End::Left { why: Why::Stopping, clean: true } => Vec::new(),
            // A broker that asked us to leave has read all, and forgets it when it stops.
            End::Left { why: Why::Drained, clean: true } => sent,
            _ => {
                lost.splice(..0, sent);
                Vec::new()
            }
        };
        self.shared.executor.leave(self.address, self.id, lost, told);
        end
    }

    /// `Ok` when it is time to say goodbye.
    async fn serve(&mut self, inbound: &mut Inbound) -> Result<Why, End> {
        let shared = self.shared;
        let mut alarm = pin!(sleep_until(self.heard + self.dead_after));
        let mut release = pin!(sleep_until(self.heard));
        // Looked at when it happens, and not whenever a frame comes.
        let mut seldom = select_all([
            once(shared.stop.cancelled()).map(|()| Seldom::Stop).boxed(),
            once(shared.drain.cancelled()).map(|()| Seldom::Drain).boxed(),
            self.mailbox.nudges().map(|()| Seldom::Nudged).boxed(),
        ]);
        loop {
            let wants_to_leave = self.stopping || self.leave_at.is_some();
            let has_room = match self.mailbox.look(self.most_outstanding * 4, wants_to_leave) {
                Look::Stuck => return Err(End::Closed),
                Look::Full => false,
                Look::HasRoom => true,
            };
            if let Some(why) = self.may_leave() {
                return Ok(why);
            }
            // Every branch is cancel safe: the ones that lose the race lose nothing.
            tokio::select! {
                biased;
                Some(what) = seldom.next() => match what {
                    Seldom::Stop => return Err(End::Stopped),
                    Seldom::Drain => {
                        self.stopping = true;
                        self.mailbox.with(|outbox| outbox.drain("the driver is stopping"));
                    }
                    Seldom::Nudged => {}
                },
                () = &mut release, if !self.begun.is_empty() => {
                    self.scatter();
                    self.mailbox.with(Outbox::release);
                }
                frame = inbound.message(), if has_room => {
                    self.heard = Instant::now();
                    self.mailbox.flush();
                    let is_armed = !self.begun.is_empty();
                    let read = self.receive_all(frame, inbound);
                    self.begin();
                    read?;
                    if !is_armed && !self.begun.is_empty() {
                        release.as_mut().reset(self.heard + HELD_BACK);
                    }
                }
                () = &mut alarm => {
                    let dead_at = self.heard + self.dead_after;
                    if Instant::now() >= dead_at {
                        return Err(End::Silent(self.dead_after));
                    }
                    // Something was heard since it was set, which is not worth setting it anew each time.
                    alarm.as_mut().reset(dead_at);
                }
                () = at(self.leave_at), if self.is_waiting_to_leave() => {}
            }
        }
    }

    /// What came with a frame goes with it: a turn of the loop costs more than a frame.
    fn receive_all(&mut self, first: Received, inbound: &mut Inbound) -> Result<(), End> {
        let mut next = Some(first);
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
        Ok(())
    }

    /// Has what was submitted begin.
    fn begin(&mut self) {
        if !self.round.is_over() {
            let round = mem::take(&mut self.round);
            self.begun.push(Arc::clone(&round));
            self.shared.executor.begin(round);
        }
    }

    /// Lets nothing wait any longer for what began before it.
    fn scatter(&mut self) {
        for round in self.begun.drain(..) {
            self.shared.executor.scatter(&round);
        }
    }

    fn receive(&mut self, frame: BrokerSide) {
        let id = frame.operation_id;
        match frame.control {
            Some(Control::Ping(ping)) => self.pong(ping.sequence),
            Some(Control::Cancel(_)) => self.shared.executor.cancel(self.id, id),
            Some(Control::Extend(extend)) => self.extend(id, extend),
            Some(Control::Drain(drain)) => {
                let after = drain.after.and_then(|after| after.try_into().ok());
                let after: Duration = after.unwrap_or(Duration::ZERO);
                self.leave_at = Some(Instant::now() + after.min(LONGEST_STAY));
            }
            Some(Control::Peers(peers)) => {
                self.shared.fleet.tell(self.address, self.target, &peers);
            }
            Some(Control::SecretChanged(_)) => self.classes.secret_changed(),
            Some(Control::Forget(forget)) => {
                self.shared.executor.forget(&MachineKey::from_wire(forget));
            }
            None if is_operation(&frame) => self.operation(&frame),
            Some(Control::Welcome(_) | Control::Reject(_)) | None => {
                debug!(kind = ?frame.operation_type, "ignoring a frame");
            }
        }
    }

    fn extend(&self, id: i32, extend: wire::Extend) {
        // A time that is over, or none, extends nothing.
        if let Some(left) = extend.time_left.and_then(time_left) {
            self.shared.executor.extend(self.id, id, Instant::now() + left);
        }
    }

    fn operation(&mut self, frame: &BrokerSide) {
        let id = frame.operation_id;
        let Some(expected) = self.expect(frame) else {
            // Answering would end the first one; not answering harms only who broke the rules.
            warn!(id, "the broker used the id of a running operation again");
            return;
        };
        let news = match expected.and_then(|verb| self.submit(verb, frame)) {
            Ok(Submitted::Pending) => return,
            Ok(Submitted::Remembered(report)) => News::Remembered(report),
            Ok(Submitted::Refused(error)) | Err(error) => News::Refused(Err(error)),
        };
        self.mailbox.with(|outbox| outbox.answer(id, frame.operation_type.clone(), news));
    }

    /// Makes room for an operation before it can begin, and be told to have. `None`: its id is taken.
    fn expect(&self, frame: &BrokerSide) -> Option<Result<Verb, Error>> {
        let id = frame.operation_id;
        let verb = Verb::named(&frame.operation_type)
            .filter(|verb| self.shared.executor.driver().verbs().contains(verb));
        self.mailbox.quietly(|outbox| match verb {
            _ if outbox.is_outstanding(id) => None,
            None => {
                let message = "this driver does not implement the operation";
                Some(Err(Error::new(Code::Unimplemented, message)))
            }
            Some(_) if outbox.outstanding() >= self.most_outstanding => Some(Err(busy())),
            Some(verb) => {
                outbox.expect(id, verb);
                Some(Ok(verb))
            }
        })
    }

    fn submit(&mut self, verb: Verb, frame: &BrokerSide) -> Result<Submitted, Error> {
        let asked = Asked::read(&frame.params)
            .map_err(|error| Error::invalid_argument(format!("the operation: {error}")))?;
        let query = self.names.read(asked.class, asked.machine_class)?;
        let (classes, scratch) = (self.classes.clone(), &mut self.scratch);
        let job = Job::from_wire(verb, &asked, query, classes, self.heard, scratch)?;
        let operation = Some(frame.operation_id);
        let ticket = Ticket { address: self.address, session: Some(self.id), operation };
        Ok(self.shared.executor.submit(ticket, job, self.heard, &self.round))
    }

    fn pong(&self, sequence: u64) {
        let free_slots = self.shared.executor.free_slots();
        self.mailbox.with(|outbox| outbox.pong(sequence, free_slots));
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
        // The mailbox last: an execution leaves the table and puts its answer there under one lock.
        let idle = !self.shared.executor.waits(self.id) && self.mailbox.is_done();
        idle.then_some(wanted)
    }

    /// Says goodbye and waits for the broker to close the stream, which proves that it read all.
    async fn goodbye(&self, mut inbound: Inbound) -> bool {
        let operation_type = Bytes::from_static(b"unregister");
        self.mailbox.leave(DriverSide { operation_type, ..Default::default() });
        let closed = async {
            loop {
                match inbound.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            }
        };
        timeout(GOODBYE, closed).await.unwrap_or(false)
    }
}

/// Whether a frame without a control message asks for something; else it is one that we do not know.
fn is_operation(frame: &BrokerSide) -> bool {
    !frame.params.is_empty() || Verb::named(&frame.operation_type).is_some()
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
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
