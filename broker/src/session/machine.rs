//! The driver protocol of one session, as a pure state machine.
//!
//! No task, no channel, no clock: frames and calls go in with the time they came, frames come out
//! of [`Machine::next_frame`] whenever there is room to send one, and what happens to an operation is
//! told to its [`Ticket`]. The task in `session.rs` only moves frames.
//!
//! The life of an operation here:
//!
//! 1. [`Machine::submit`] queues it. Nothing was sent.
//! 2. [`Machine::next_frame`] opens its slot, then gives the frame away: an answer can come at any
//!    moment from then on.
//! 3. A native driver accepts it within a few seconds, or the session turns suspect.
//! 4. The answer settles it. When nobody waits for it any more, a cancel frame goes out and the slot
//!    stays until the driver answers: the driver is still busy with it.

mod answers;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use broker_proto::{
    passing::{BrokerSide, DriverSide, Order, Parts, broker_side::Control, driver_side::Response},
    v1,
};
use bytes::{Bytes, BytesMut};
use prost::Message as _;
use tokio::time::Instant;

use self::answers::Reply;
use super::{Record, Terms, Times};
use crate::{
    driver::Verb,
    maps::Numbered,
    operation::{Answer, Code},
};

/// The id of the first frame of a stream, which is never used for an operation.
pub(super) const REGISTER_ID: i32 = 1;

/// An operation in a session's hands. Dropping it means that no answer will come.
pub trait Ticket {
    /// Whether a caller still waits.
    fn is_wanted(&self) -> bool;
    /// When the last of them gives up.
    fn deadline(&self) -> Instant;
    /// What a driver is told of it.
    fn params(&self, native: bool, now: Instant) -> Parts<'_>;
    fn sent(&self, now: Instant);
    fn accepted(&self, now: Instant);
    fn answered(self, answer: Answer, now: Instant);
    /// The driver gave it back untouched: as good as never sent.
    fn refused(self);
}

/// An operation to be sent.
#[derive(Debug)]
pub struct Call<T> {
    pub ticket: T,
    pub verb: Verb,
}

/// What goes to the driver.
#[derive(Debug)]
pub enum Frame<'a> {
    Operation(Order<'a>),
    Control(BrokerSide),
}

impl Frame<'_> {
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Operation(order) => order.encoded_len(),
            Self::Control(frame) => frame.encoded_len(),
        }
    }

    pub fn encode(&self, to: &mut BytesMut) {
        match self {
            Self::Operation(order) => order.encode(to),
            Self::Control(frame) => frame.encode_raw(to),
        }
    }
}

/// What the driver said that concerns more than one operation.
#[derive(Debug, PartialEq)]
pub enum Notice {
    /// It finishes what it has and leaves.
    Draining,
    /// It left in good order.
    Left,
    /// An operation from an earlier stream still runs, or ended.
    Resumed(Box<v1::Resumed>),
    Pong {
        sequence: u64,
        round_trip: Option<Duration>,
    },
}

/// Frames that made no sense, by kind. Each was dropped; nothing else was disturbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// An answer to an operation that is not, or no longer, running here.
    pub unknown_id: u64,
    /// An answer of another verb than was asked.
    pub wrong_verb: u64,
    /// An answer with nothing in it.
    pub empty: u64,
    /// A frame that has no place at this point, or that this version does not know.
    pub unexpected: u64,
    /// An operation that the driver accepted and then forgot.
    pub forgotten: u64,
}

#[derive(Debug)]
struct Slot<T> {
    ticket: T,
    verb: Verb,
    state: SlotState,
    cancelled: bool,
    /// Until when the driver was told to work.
    told: Instant,
    /// The last ping sent before it was accepted: a later pong must list it.
    accepted_after_ping: u64,
    /// Pages of a list so far.
    pages: Vec<v1::Machine>,
    /// A historic driver answered it with nonsense: it has moved on and takes the next one. The right
    /// answer may still come.
    botched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Sent,
    Accepted,
}

#[derive(Debug)]
pub struct Machine<T> {
    terms: Terms,
    times: Times,
    slots: Numbered<Slot<T>>,
    last_id: i32,
    queue: VecDeque<Call<T>>,
    /// Sent, oldest first. The first is not accepted yet; of those behind it some may be. Each with the last
    /// ping that was sent before it.
    unaccepted: VecDeque<(i32, Instant, u64)>,
    /// Goes before any operation.
    control: VecDeque<BrokerSide>,
    heard: Instant,
    next_ping: Instant,
    ping: u64,
    ping_sent: Option<Instant>,
    /// The last ping that was answered.
    pong: u64,
    draining: bool,
    oddities: Oddities,
    record: Record,
}

impl<T: Ticket> Machine<T> {
    pub fn new(terms: Terms, times: Times, now: Instant) -> Self {
        Self {
            next_ping: now + times.ping_every,
            terms,
            times,
            slots: Numbered::default(),
            last_id: REGISTER_ID,
            queue: VecDeque::new(),
            unaccepted: VecDeque::new(),
            control: VecDeque::new(),
            heard: now,
            ping: 0,
            ping_sent: None,
            pong: 0,
            draining: false,
            oddities: Oddities::default(),
            record: Record::default(),
        }
    }

    /// Takes an operation on. How many there may be is the caller's to bound.
    pub fn submit(&mut self, call: Call<T>) {
        self.queue.push_back(call);
    }

    /// Sends a control frame before any operation. A historic driver would not know it.
    pub fn tell(&mut self, operation_type: &'static str, control: Control) {
        if self.terms.native {
            self.control.push_back(BrokerSide {
                operation_type: Bytes::from_static(operation_type.as_bytes()),
                control: Some(control),
                ..Default::default()
            });
        }
    }

    /// Sends a ping now, out of turn. Any pong with this sequence or a later one answers it.
    pub fn ping_now(&mut self, now: Instant) -> u64 {
        self.ping += 1;
        self.ping_sent = Some(now);
        self.tell("ping", Control::Ping(v1::Ping { sequence: self.ping }));
        self.ping
    }

    /// Sends no new operations from now on, and gives back those that were not sent yet.
    pub fn drain(&mut self) {
        self.draining = true;
        self.queue.clear();
    }

    pub fn hear(&mut self, frame: DriverSide, now: Instant) -> Option<Notice> {
        self.heard = now;
        let id = frame.operation_id;
        match frame.response {
            Some(Response::Pong(pong)) if self.terms.native => return Some(self.pong(pong, now)),
            Some(Response::Resumed(resumed)) if self.terms.native => {
                return Some(Notice::Resumed(resumed));
            }
            Some(Response::Drain(_)) if self.terms.native => {
                self.drain();
                return Some(Notice::Draining);
            }
            Some(Response::Accepted(_)) if self.terms.native => self.accepted(id, now),
            Some(response) => match Reply::read(response, self.terms.native) {
                Some(reply) => self.answered(id, &frame.operation_type, reply, now),
                None => self.oddities.unexpected += 1,
            },
            None if frame.operation_type == b"unregister"[..] => return Some(Notice::Left),
            None => self.empty(id),
        }
        None
    }

    /// Looks for operations whose callers changed. When nobody waits any more, unsent ones go and sent
    /// ones are cancelled; when somebody waits longer, the driver is told.
    pub fn sweep(&mut self, now: Instant) {
        self.queue.retain(|call| call.ticket.is_wanted());
        let terms = self.terms;
        let control = &mut self.control;
        self.slots.retain(|id, slot| {
            let mut tell = |what| {
                control.push_back(BrokerSide {
                    operation_id: *id,
                    operation_type: operation_type(slot.verb),
                    control: Some(what),
                    ..Default::default()
                });
            };
            if slot.ticket.is_wanted() {
                if terms.native && !slot.cancelled && slot.ticket.deadline() > slot.told {
                    slot.told = slot.ticket.deadline();
                    tell(Control::Extend(v1::Extend { time_left: time_left(slot.told, now) }));
                }
                return true;
            }
            if terms.cancel && !slot.cancelled {
                tell(Control::Cancel(v1::Cancel {}));
            }
            slot.cancelled = true;
            !slot.botched
        });
    }

    /// Does what is due by the clock.
    pub fn tick(&mut self, now: Instant) {
        if !self.terms.native {
            return;
        }
        if now >= self.suspect_at() {
            // Nothing goes to a driver in doubt, and another one may be well.
            self.queue.clear();
        }
        if now >= self.next_ping {
            // On its own clock: traffic never defers it, and a late tick does not cause a burst.
            self.next_ping = now + self.times.ping_every;
            self.ping_now(now);
        }
    }

    /// Whether the driver was silent for too long. Of a historic one only the transport can tell: it is
    /// silent while it works.
    pub fn is_dead(&self, now: Instant) -> bool {
        self.terms.native && now >= self.heard + self.times.dead_after
    }

    /// When [`Machine::tick`] has something to do next.
    pub fn wake_at(&self, now: Instant) -> Instant {
        if !self.terms.native {
            return now + Duration::from_secs(3600);
        }
        let wake = self.next_ping.min(self.heard + self.times.dead_after);
        if self.queue.is_empty() { wake } else { wake.min(self.suspect_at()) }
    }

    /// Whether [`Machine::next_frame`] would give one.
    pub fn has_frame(&self, now: Instant) -> bool {
        !self.control.is_empty() || self.may_send(now)
    }

    /// Whether an operation may go out: the driver has room for it and is not in doubt.
    fn may_send(&self, now: Instant) -> bool {
        !self.queue.is_empty()
            && self.busy() < self.terms.capacity
            && (!self.terms.native || now < self.suspect_at())
    }

    /// How many operations the driver is at.
    fn busy(&self) -> usize {
        if self.terms.native {
            self.slots.len()
        } else {
            self.slots.values().filter(|slot| !slot.botched).count()
        }
    }

    /// The next frame to send, control frames first. The slot of an operation is open before its
    /// frame is given away.
    pub fn next_frame(&mut self, now: Instant) -> Option<Frame<'_>> {
        if let Some(frame) = self.control.pop_front() {
            if self.control.is_empty() {
                // Most sessions are idle and say nothing but a ping now and then.
                self.control = VecDeque::new();
            }
            return Some(Frame::Control(frame));
        }
        if !self.may_send(now) {
            return None;
        }
        let call = self.queue.pop_front()?;
        let id = self.free_id();
        let told = call.ticket.deadline();
        let state = if self.terms.native {
            self.unaccepted.push_back((id, now, self.ping));
            call.ticket.sent(now);
            SlotState::Sent
        } else {
            // It says nothing before it answers.
            call.ticket.accepted(now);
            SlotState::Accepted
        };
        let slot = Slot {
            ticket: call.ticket,
            verb: call.verb,
            state,
            cancelled: false,
            told,
            accepted_after_ping: u64::MAX,
            pages: Vec::new(),
            botched: false,
        };
        let slot = self.slots.entry(id).insert_entry(slot).into_mut();
        let params = slot.ticket.params(self.terms.native, now);
        Some(Frame::Operation(Order::new(id, slot.verb.as_str(), params)))
    }

    /// An id that no running operation has, and that is not the register frame's, however often they
    /// wrapped around.
    fn free_id(&mut self) -> i32 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(REGISTER_ID + 1);
            if !self.slots.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    pub fn heard(&self) -> Instant {
        self.heard
    }

    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }

    /// How many control frames wait to be sent.
    pub fn control_frames(&self) -> usize {
        self.control.len()
    }

    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    pub fn is_draining(&self) -> bool {
        self.draining
    }

    pub fn oddities(&self) -> Oddities {
        self.oddities
    }

    /// What it has done so far.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// When the driver will be in doubt unless it says something before.
    fn suspect_at(&self) -> Instant {
        let silent = self.heard + self.times.suspect_after;
        self.accept_due().map_or(silent, |due| due.min(silent))
    }

    /// When the driver will be too slow to accept an operation it was sent, if one is outstanding.
    pub fn accept_due(&self) -> Option<Instant> {
        let (_, sent, ping) = self.unaccepted.front()?;
        // The pong to a later ping comes after the acceptance. Until one came, a line that is full of
        // other answers may hold them both up.
        let passed = self.pong > *ping;
        let since = if passed { *sent } else { self.heard.max(*sent) };
        Some(since + self.times.accept_within)
    }

    /// An operation was accepted or answered. If it is the one that was waited for, it is the next one's
    /// turn that was not.
    fn was_accepted(&mut self, id: i32) {
        if self.unaccepted.front().is_some_and(|(waited_for, ..)| *waited_for == id) {
            self.wait_for_next();
        }
    }

    fn wait_for_next(&mut self) {
        while let Some((id, ..)) = self.unaccepted.front()
            && self.slots.get(id).is_none_or(|slot| slot.state != SlotState::Sent)
        {
            self.unaccepted.pop_front();
        }
    }

    fn accepted(&mut self, id: i32, now: Instant) {
        match self.slots.get_mut(&id) {
            Some(slot) if slot.state == SlotState::Sent => {
                slot.state = SlotState::Accepted;
                slot.accepted_after_ping = self.ping;
                slot.ticket.accepted(now);
                self.was_accepted(id);
            }
            Some(_) => self.oddities.unexpected += 1,
            None => self.oddities.unknown_id += 1,
        }
    }

    fn answered(&mut self, id: i32, operation_type: &[u8], reply: Reply, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else {
            self.oddities.unknown_id += 1;
            return;
        };
        if !reply.fits(slot.verb) || operation_type != slot.verb.as_str().as_bytes() {
            slot.botched = !self.terms.native;
            self.oddities.wrong_verb += 1;
            return;
        }
        match reply.into_answer(&mut slot.pages) {
            // More pages follow.
            None => {}
            Some(answer) => {
                let slot = self.slots.remove(&id).expect("looked up above");
                self.was_accepted(id);
                // It crossed the driver's drain on the wire and was not begun.
                if self.draining
                    && slot.state == SlotState::Sent
                    && answer.code == Code::UNAVAILABLE
                {
                    slot.ticket.refused();
                } else {
                    self.record.note(&answer);
                    slot.ticket.answered(answer, now);
                }
            }
        }
    }

    fn empty(&mut self, id: i32) {
        self.oddities.empty += 1;
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.botched = !self.terms.native;
        }
    }

    fn pong(&mut self, pong: v1::Pong, now: Instant) -> Notice {
        // A driver sends the answer before it forgets an operation, and the stream keeps order: what
        // it accepted before this ping and does not list now will never be answered.
        let before = self.slots.len();
        let listed: HashSet<i32> = pong.in_flight.into_iter().collect();
        self.slots
            .retain(|id, slot| slot.accepted_after_ping >= pong.sequence || listed.contains(id));
        self.oddities.forgotten += (before - self.slots.len()) as u64;
        self.pong = self.pong.max(pong.sequence);
        let latest = pong.sequence == self.ping;
        Notice::Pong {
            sequence: pong.sequence,
            round_trip: self.ping_sent.filter(|_| latest).map(|sent| now - sent),
        }
    }
}

fn operation_type(verb: Verb) -> Bytes {
    Bytes::from_static(verb.as_str().as_bytes())
}

fn time_left(deadline: Instant, now: Instant) -> Option<prost_types::Duration> {
    deadline.saturating_duration_since(now).try_into().ok()
}
