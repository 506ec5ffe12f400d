//! An ask on its way, and the line in the audit log that it ends with, however it ends.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use tokio::time::Instant;
use tracing::{Span, field::display};

use super::{Answered, Ask, Error};
use crate::{
    audit::{Audit, Class, Event, Machine, Outcome, Record},
    operation::{Delivery, Operation},
};

/// Dropped without its end it says that the caller left.
pub(super) struct Account {
    audit: Audit,
    pub(super) ask: Box<Ask>,
    pub(super) span: Span,
    pub(super) began: Instant,
    /// Counted from 1.
    pub(super) attempt: u32,
    /// What the latest attempt started or joined.
    pub(super) operation: Option<Arc<Operation>>,
    is_closed: bool,
}

impl Account {
    pub(super) fn open(audit: Audit, ask: Box<Ask>, span: Span, began: Instant) -> Self {
        Self { audit, ask, span, began, attempt: 1, operation: None, is_closed: false }
    }

    /// The attempt has become this operation.
    pub(super) fn meets(&mut self, operation: &Arc<Operation>) {
        if !self.span.is_disabled() {
            self.span
                .record("id", display(operation.id))
                .record("class", display(&operation.request.class.id))
                .record("machine", &*operation.request.machine.name);
        }
        self.operation = Some(Arc::clone(operation));
    }

    pub(super) fn close(mut self, result: Result<&Answered, &Error>, now: Instant) {
        self.is_closed = true;
        if let Some(session) = self.operation.as_ref().and_then(|operation| operation.session()) {
            self.span.record("driver", display(&session.info().instance));
        }
        let (outcome, code, delivery) = match result {
            Ok(Answered { answer, .. }) if answer.code.is_ok() => {
                (Outcome::Ok, answer.code.name(), Delivery::Answered)
            }
            Ok(Answered { answer, .. }) => {
                (Outcome::Failed, answer.code.name(), Delivery::Answered)
            }
            Err(error @ Error::Denied(_)) => (Outcome::Denied, error.reason(), Delivery::NotSent),
            Err(error) if error.delivery() == Delivery::NotSent => {
                (Outcome::Refused, error.reason(), Delivery::NotSent)
            }
            Err(error) => (Outcome::Unknown, error.reason(), error.delivery()),
        };
        tracing::debug!(code, delivery = delivery.as_str(), "operation over");
        self.write(outcome, code, Some(delivery), now, || match result {
            Ok(Answered { answer, .. }) => answer.message.as_str().into(),
            Err(error) => error.to_string().into(),
        });
    }

    fn write<'a>(
        &'a self,
        outcome: Outcome,
        code: &'static str,
        delivery: Option<Delivery>,
        now: Instant,
        message: impl FnOnce() -> Cow<'a, str>,
    ) {
        broker_otlp::ended(&self.span, code, outcome == Outcome::Ok);
        self.audit.write(|| {
            let time = self.operation.as_ref().map(|operation| operation.wall_clock_at(now));
            let time = time.unwrap_or_else(SystemTime::now);
            let mut record = Record::at(time, Event::Operation, outcome);
            match &self.operation {
                Some(operation) => record.on(operation),
                None => self.as_asked(&mut record),
            }
            record.caller = self.ask.caller.as_deref();
            record.message = Some(message()).filter(|message| !message.is_empty());
            record.code = Some(code);
            record.delivery = delivery.or(record.delivery).or(Some(Delivery::NotSent));
            record.duration = Some(now - self.began);
            record.attempts = Some(self.attempt);
            record
        });
    }

    /// Nothing was found out about it: the caller's own words.
    fn as_asked<'a>(&'a self, record: &mut Record<'a>) {
        let class = &self.ask.class;
        let class = Class::new(&class.api_version, &class.kind, &class.namespace, &class.name);
        record.verb = Some(self.ask.verb);
        record.class = Some(Cow::Owned(class));
        let machine = &*self.ask.machine;
        record.machine = (!machine.is_empty()).then_some(Machine::Said(machine));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if !self.is_closed {
            let now = Instant::now();
            self.write(Outcome::Abandoned, "CALLER_GONE", None, now, || "".into());
        }
    }
}
