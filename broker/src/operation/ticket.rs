//! A session's hold on an operation.

use std::sync::{Arc, atomic::Ordering};

use broker_proto::passing::Parts;
use tokio::time::Instant;

use super::{Answer, Delivery, Operation, Outcome};

/// Obliges its holder to settle the operation. Dropped unsettled, as when a session ends or its task
/// panics, it settles the operation as lost.
#[derive(Debug)]
#[must_use = "dropping a ticket settles its operation as lost"]
pub struct Ticket(Option<Arc<Operation>>);

impl Ticket {
    pub fn new(operation: Arc<Operation>) -> Self {
        Self(Some(operation))
    }

    pub fn operation(&self) -> &Operation {
        self.0.as_deref().expect("taken only when the ticket is used up")
    }

    /// What a driver is told of it.
    pub fn params(&self, native: bool, now: Instant) -> Parts<'_> {
        let operation = self.operation();
        let time_left = operation.deadline().saturating_duration_since(now);
        // A change is answered from memory only if nobody else changed the machine since.
        let session = operation.session().filter(|_| operation.request.verb.is_mutation());
        let recall =
            session.and_then(|session| operation.unchanged_for(&session.info().instance, now));
        operation.request.params(native, time_left, recall)
    }

    pub fn sent(&self, now: Instant) {
        let operation = self.operation();
        operation.advance(Delivery::Sent, now - operation.submitted);
    }

    pub fn accepted(&self, now: Instant) {
        let operation = self.operation();
        operation.begun.store(true, Ordering::Release);
        operation.advance(Delivery::Accepted, now - operation.submitted);
    }

    /// The driver answered. It is used up by that.
    pub fn answered(&mut self, answer: Answer, now: Instant) {
        if let Some(operation) = self.0.take() {
            operation.settle(Outcome::Answered(Arc::new(answer)), now);
        }
    }

    /// The driver gave it back untouched: as good as never sent. It is used up by that.
    pub fn refused(&mut self) {
        if let Some(operation) = self.0.take() {
            operation.delivery.store(Delivery::NotSent as u8, Ordering::Release);
            operation.settle(Outcome::Lost, Instant::now());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(operation) = self.0.take() {
            operation.settle(Outcome::Lost, Instant::now());
        }
    }
}
