//! An operation that a session has taken on.

use broker_proto::passing::Parts;
use tokio::time::Instant;

use super::{SessionHandle, Ticket};
use crate::operation::{self, Answer};

/// A place among the operations a session may have; given back when the operation is settled.
#[derive(Debug)]
pub(super) struct Place(pub(super) SessionHandle);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// An operation's ticket with its place in the session.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) ticket: operation::Ticket,
    pub(super) place: Place,
}

impl Ticket for Admitted {
    fn is_wanted(&self) -> bool {
        self.ticket.is_wanted()
    }

    fn deadline(&self) -> Instant {
        self.ticket.deadline()
    }

    fn params(&self, native: bool, now: Instant) -> Parts<'_> {
        self.ticket.params(native, now)
    }

    fn sent(&self, now: Instant) {
        self.ticket.sent(now);
    }

    fn accepted(&self, now: Instant) {
        self.ticket.accepted(now);
    }

    fn answered(self, answer: Answer, now: Instant) {
        self.place.0.note_answer(&answer);
        // The place first: a caller that hears the answer may submit the next operation at once.
        drop(self.place);
        self.ticket.answered(answer, now);
    }

    fn refused(self) {
        drop(self.place);
        self.ticket.refused();
    }
}
