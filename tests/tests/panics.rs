//! What a bug inside one driver's session costs: that session, and nothing else.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use broker_tests::{TestBroker, delivery, reason};
use tracing_subscriber::{
    Layer, Registry,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

/// Panics when the session of this driver does something for which it enters its span, as it does when it hears of
/// an operation from an earlier stream: so the panic comes inside the task that the broker spawned, amid the
/// frames that it reads.
#[derive(Clone, Default)]
struct Trap {
    victim: Arc<Mutex<Option<String>>>,
}

/// Which driver a span is about.
#[derive(Default)]
struct DriverName(String);

impl tracing::field::Visit for DriverName {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        if field.name() == "driver" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn fmt::Debug) {}
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Trap {
    fn on_record(
        &self,
        id: &tracing::span::Id,
        values: &tracing::span::Record<'_>,
        context: Context<'_, S>,
    ) {
        let mut name = DriverName::default();
        values.record(&mut name);
        if let Some(span) = context.span(id).filter(|_| !name.0.is_empty()) {
            span.extensions_mut().replace(name);
        }
    }

    fn on_enter(&self, id: &tracing::span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(|span| span.name() == "session") else { return };
        let Some(name) = span.extensions().get::<DriverName>().map(|name| name.0.clone()) else {
            return;
        };
        let mut victim = self.victim.lock().expect("no panic while locked");
        if victim.as_ref() == Some(&name) {
            // Once: it dials again, and that session is to live.
            *victim = None;
            drop(victim);
            panic!("a bug in the session of {name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_inside_a_session_ends_its_operations_and_disturbs_nobody_else() {
    let trap = Trap::default();
    let _logging = tracing::subscriber::set_default(Registry::default().with(trap.clone()));
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut doomed = broker.driver("doomed").await;
    // Until the other one comes all of them are for this one: four run, and the rest waits.
    let calls: Vec<_> = (0..8).map(|number| controller.creating(&format!("m-{number}"))).collect();
    for operation in doomed.next_operations(4).await {
        doomed.accept(&operation);
    }
    broker.until_running(8).await;
    let mut other = broker.driver("other").await;
    let theirs = controller.listing();
    let listed = other.take().await;

    *trap.victim.lock().expect("no panic while locked") = Some("doomed".to_owned());
    doomed.still_runs("create", "from-before");
    let left = broker.until_drivers(1).await;
    assert_eq!(left[0].instance_id, "other");
    doomed.end().await.expect("its stream ends, so that it can dial again");

    other.succeed(&listed);
    theirs.answer().await.expect("the other session goes on");
    let other = other.serve();
    let mut lost = 0;
    for call in calls {
        match call.answer().await {
            // It was not sent before, so it could go to the other one.
            Ok(_) => {}
            Err(error) => {
                lost += 1;
                assert_eq!(
                    (reason(&error).as_str(), delivery(&error).as_str()),
                    ("DRIVER_LOST", "ACCEPTED")
                );
            }
        }
    }
    assert_eq!(lost, 4, "those that were accepted, and no others");
    assert_eq!(other.served().len(), 4);

    // It comes back as after any other end.
    doomed = broker.driver("doomed").await;
    doomed.vanish();
    other.vanish();
    broker.at_rest().await;
}
