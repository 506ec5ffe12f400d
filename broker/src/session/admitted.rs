//! An operation that a session has taken on.

use std::mem;

use broker_proto::passing::Parts;
use tokio::time::Instant;

use super::{SessionHandle, Ticket};
use crate::operation::{self, Answer};

/// An operation's ticket, with its place among those that the session may have: that is given back when
/// the operation is settled.
#[derive(Debug)]
pub(super) struct Admitted {
    ticket: operation::Ticket,
    has_place: bool,
}

impl Admitted {
    /// The session has made a place for it.
    pub(super) fn to(session: &SessionHandle, ticket: operation::Ticket) -> Self {
        ticket.operation().assign(session.clone());
        Self { ticket, has_place: true }
    }

    /// The place goes first: a caller that hears the answer may submit the next operation at once.
    fn leave(&mut self) {
        if mem::take(&mut self.has_place)
            && let Some(session) = self.ticket.operation().session()
        {
            session.give_back();
        }
    }
}

/// Also before the ticket is dropped, which says that no answer will come.
impl Drop for Admitted {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Ticket for Admitted {
    fn is_wanted(&self) -> bool {
        self.ticket.operation().is_wanted()
    }

    fn deadline(&self) -> Instant {
        self.ticket.operation().deadline()
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

    fn answered(mut self, answer: Answer, now: Instant) {
        self.leave();
        self.ticket.answered(answer, now);
    }

    fn refused(mut self) {
        self.leave();
        self.ticket.refused();
    }
}
