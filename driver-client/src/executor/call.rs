//! One call into the driver's code.

use std::{any::Any, panic::AssertUnwindSafe};

use futures::FutureExt as _;
use tracing::Instrument as _;

use super::trace;
use crate::{
    Driver,
    answer::{Outcome, Payload},
    error::Error,
    machine::Machine,
    operation::Operation,
    verb::Verb,
};

/// Calls the verb's method. A panic becomes an `INTERNAL` answer.
pub(super) async fn call(driver: &dyn Driver, operation: &Operation) -> Outcome {
    // Safe to assert: after a panic nothing but the driver itself is used again, whose author has
    // to expect that a method may end early anyway.
    let span = tracing::debug_span!(
        "operation",
        otel.kind = tracing::field::Empty,
        verb = %operation.verb(),
        class = %operation.class_ref(),
        machine = operation.machine_name(),
        traceparent = operation.traceparent()
    );
    trace::join(&span, operation);
    let call = dispatch(driver, operation).instrument(span.clone());
    let outcome = match AssertUnwindSafe(call).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => {
            let text = panic_text(&*panic);
            tracing::error!(verb = %operation.verb(), machine = operation.machine_name(), text, "the driver panicked");
            Err(Error::internal(format!("the driver panicked: {text}")))
        }
    };
    trace::ended(&span, &outcome);
    outcome
}

async fn dispatch(driver: &dyn Driver, operation: &Operation) -> Outcome {
    match operation.verb() {
        Verb::Create => driver.create(operation).await.map(Payload::machine),
        Verb::Initialize => driver.initialize(operation).await.map(Payload::machine),
        Verb::Delete => {
            driver.delete(operation).await.map(|()| Payload::machine(Machine::default()))
        }
        Verb::GetStatus => driver.get_status(operation).await.map(Payload::machine),
        Verb::List => driver.list(operation).await.map(Payload::List),
        Verb::GetVolumeIds => driver.get_volume_ids(operation).await.map(Payload::VolumeIds),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        (None, None) => "no message",
    }
}
