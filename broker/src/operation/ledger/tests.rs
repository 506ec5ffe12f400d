//! The books under arbitrary orders of events, with a model beside them.

mod model;
mod stage;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use proptest::prelude::*;
use tokio::{
    runtime,
    time::{Instant, advance},
};

use self::stage::Stage;
use super::{Answer, Claim, Ledger, Payload};
use crate::{audit::Audit, driver::Verb, metrics::Metrics, operation::Ticket};

/// What may happen. Machines, drivers and operations are named by number.
#[derive(Clone, Debug)]
enum Event {
    /// A caller asks. What starts goes to this driver; `None`: no driver takes it.
    Ask {
        machine: usize,
        verb: Verb,
        request_id: &'static str,
        to: Option<usize>,
    },
    /// All callers of an operation give up.
    Leave(usize),
    Sent(usize),
    Accepted(usize),
    Answer(usize, Success),
    /// The driver gives it back untouched.
    Refuse(usize),
    /// Its session ends.
    Lose(usize),
    Resume(Telling),
    Pass(Duration),
    Tidy,
}

type Success = bool;

/// What a driver tells of a machine.
#[derive(Clone, Debug)]
struct Telling {
    driver: usize,
    machine: usize,
    verb: Verb,
    /// `None` while it runs.
    end: Option<Success>,
    age: Duration,
    stranger: bool,
}

const MACHINES: usize = 2;
const DRIVERS: usize = 3;

fn event() -> impl Strategy<Value = Event> {
    let machine = || 0..MACHINES;
    let driver = || 0..DRIVERS;
    let operation = || 0..4_usize;
    let verb = || prop_oneof![Just(Verb::Create), Just(Verb::Create), Just(Verb::Delete)];
    let request_id = prop_oneof![Just(""), Just(""), Just("one"), Just("other")];
    let to = prop_oneof![9 => driver().prop_map(Some), 1 => Just(None)];
    let time = prop_oneof![4 => 0_u64..120, 1 => 0_u64..2_000].prop_map(Duration::from_secs);
    let telling = (driver(), machine(), verb(), any::<Option<bool>>(), 0_u64..120, any::<bool>())
        .prop_map(|(driver, machine, verb, end, age, stranger)| {
            let age = Duration::from_secs(if end.is_some() { age } else { 0 });
            Event::Resume(Telling { driver, machine, verb, end, age, stranger })
        });
    prop_oneof![
        6 => (machine(), verb(), request_id, to)
            .prop_map(|(machine, verb, request_id, to)| Event::Ask { machine, verb, request_id, to }),
        1 => operation().prop_map(Event::Leave),
        4 => operation().prop_map(Event::Sent),
        3 => operation().prop_map(Event::Accepted),
        4 => (operation(), any::<bool>()).prop_map(|(at, success)| Event::Answer(at, success)),
        1 => operation().prop_map(Event::Refuse),
        3 => operation().prop_map(Event::Lose),
        4 => telling,
        4 => time.prop_map(Event::Pass),
        1 => Just(Event::Tidy),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_happens_the_books_say_what_the_model_says(
        // How many machines it may be known of who changed them last.
        most_served in 0..=MACHINES,
        events in prop::collection::vec(event(), 1..60),
    ) {
        let clock = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        clock.expect("a runtime without threads").block_on(async {
            // Ends may be older than the broker, and monotonic clocks begin somewhere.
            advance(Duration::from_secs(10_000)).await;
            let mut stage = Stage::new(most_served);
            for event in events {
                stage.happens(event).await;
                stage.agrees();
            }
            stage.ends().await;
        });
    }
}

/// Nothing is kept of the machine, so that its page goes with each operation while others come for it.
#[test]
fn at_most_one_operation_runs_on_a_machine_whose_page_comes_and_goes() {
    const THREADS: usize = 4;
    const TRIES: usize = 2_000;
    let ledger = Ledger::knowing(0, Metrics::default(), Audit::default());
    let (running, started) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let claims = |verb: Verb| {
        for number in 0..TRIES {
            let request = stage::request(verb, "worker-0", "");
            let times = (now(), now() + Duration::from_secs(60));
            let Ok(Claim::Start(operation)) = ledger.claim(request, times) else { continue };
            started.fetch_add(1, Ordering::AcqRel);
            assert_eq!(running.fetch_add(1, Ordering::AcqRel), 0, "it runs twice");
            let waiter = (number % 2 == 0).then(|| operation.wait());
            let mut ticket = Ticket::new(Arc::clone(&operation));
            if number % 16 == 0 {
                ledger.forget_old();
            }
            assert_eq!(running.fetch_sub(1, Ordering::AcqRel), 1);
            // What nobody heard is kept for the next one of this verb.
            match number % 3 {
                0 => ticket.answered(Answer::ok(Payload::None), now()),
                _ => drop(ticket),
            }
            drop(waiter);
        }
    };
    thread::scope(|threads| {
        for number in 0..THREADS {
            let verb = if number % 2 == 0 { Verb::Create } else { Verb::Delete };
            threads.spawn(move || claims(verb));
        }
    });
    assert!(started.load(Ordering::Acquire) >= THREADS);
    assert!(ledger.is_idle());
    // Of those that came and went at once, a page may be left until somebody tidies up.
    ledger.forget_old();
    let kept = ledger.0.pages.kept();
    assert_eq!(ledger.0.pages.counted(), kept);
}

/// In both the stage and the model.
fn now() -> Instant {
    Instant::now()
}
