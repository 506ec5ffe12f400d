//! Processes that stand still for a while and then go on as if nothing had happened.

use broker_proto::v1::DriverState;
use broker_tests::{
    caller::Ask,
    history::{Delivery, End, Verb},
    process::PATIENCE,
    story::{QUICK, Story, ask, insist, stop, until_says},
};
use tokio::task::JoinSet;

/// Long enough for a create to be still running when its driver stops.
const SPEC: &str = "createDelay: 2s";
const ACCEPTED: &str = "machine_broker_pending{delivery=\"accepted\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_stood_still_for_too_long_is_given_up_and_returns_with_nothing_done_twice() {
    let story = Story::with(SPEC);
    let broker = story.broker(QUICK);
    let descriptors = broker.descriptors();
    let driver = story.driver(broker.drivers, "sim-0");
    let first = broker.until_listed("there", |drivers| drivers.len() == 1).await.remove(0);
    let caller = story.caller(broker.channel().await);
    let mut running = JoinSet::new();
    running.spawn({
        let caller = caller.clone();
        async move { ask(&caller, &Ask::new(Verb::Create, "running", PATIENCE)).await }
    });
    broker.until_metric(ACCEPTED, |pending| pending == 1).await;

    driver.signal("-STOP");
    let in_doubt = |drivers: &[broker_proto::v1::Driver]| {
        drivers.iter().all(|driver| driver.state() == DriverState::Suspect)
    };
    broker.until_listed("in doubt", in_doubt).await;
    // Nothing is sent to one in doubt, nor to one that is gone.
    let refused = ask(&caller, &Ask::new(Verb::Create, "new", PATIENCE)).await;
    let End::Failed { delivery: Delivery::NotSent, .. } = refused else {
        panic!("it must not be sent: {refused:?}");
    };
    broker.until_listed("given up", <[_]>::is_empty).await;
    let told = running.join_next().await.expect("there is one").expect("no panic");
    let End::Failed { delivery: Delivery::Accepted, .. } = told else {
        panic!("its outcome is not known: {told:?}");
    };

    // What it still says on the old stream, the end of its create, goes nowhere: the callers heard all.
    driver.signal("-CONT");
    let back = broker.until_listed("back", |drivers| drivers.len() == 1).await.remove(0);
    assert_ne!(back.session_id, first.session_id, "a session of its own");
    assert_eq!(back.boot_id, first.boot_id, "and the same process");
    for machine in ["running", "new"] {
        insist(&caller, &Ask::new(Verb::Create, machine, PATIENCE)).await;
    }
    stop(driver).await;
    assert_eq!(story.verdict(&broker, descriptors).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stood_still_for_too_long_is_found_again_by_its_drivers() {
    let story = Story::with(SPEC);
    let broker = story.broker(QUICK);
    let descriptors = broker.descriptors();
    let driver = story.driver(broker.drivers, "sim-0");
    let first = broker.until_listed("there", |drivers| drivers.len() == 1).await.remove(0);
    let caller = story.caller(broker.channel().await);

    broker.process.signal("-STOP");
    // The driver hears nothing for as long as it was told to wait, and dials again.
    until_says(&driver, "nothing heard for");
    broker.process.signal("-CONT");

    let anew = |drivers: &[broker_proto::v1::Driver]| {
        drivers.len() == 1 && drivers[0].session_id != first.session_id
    };
    let back = broker.until_listed("there anew", anew).await.remove(0);
    assert_eq!((&back.instance_id, &back.boot_id), (&first.instance_id, &first.boot_id));
    insist(&caller, &Ask::new(Verb::Create, "m", PATIENCE)).await;
    stop(driver).await;
    assert_eq!(story.verdict(&broker, descriptors).await, 1);
}
