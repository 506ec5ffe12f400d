//! Leaving in good order: a driver that drains, and the broker itself.

use std::time::Duration;

use broker_proto::v1::{Drain, DriverState, broker_side::Control, reject::Reason};
use broker_tests::{Driver, Hello, TestBroker, delivery, hello, reason, retry_after};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tonic::Code;

const GRACE: Duration = Duration::from_secs(30);

/// Stops the broker meanwhile; how long it took is the task's result.
fn stopping(broker: &TestBroker) -> JoinHandle<Duration> {
    let broker = broker.broker.clone();
    #[expect(clippy::disallowed_methods, reason = "the test waits for it")]
    tokio::spawn(async move {
        let began = Instant::now();
        broker.stop(GRACE).await;
        began.elapsed()
    })
}

async fn next_drain(driver: &mut Driver) -> Drain {
    match driver.next_control().await {
        (_, Control::Drain(drain)) => drain,
        (_, other) => panic!("not a drain: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_drains_finishes_what_runs_and_what_waits_moves() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut leaving = broker.driver_with(Hello { capacity: 20, ..hello("leaving") }).await;
    let calls: Vec<_> = (0..30).map(|n| controller.creating(&format!("w-{n}"))).collect();
    let operations = leaving.next_operations(20).await;
    operations.iter().for_each(|operation| leaving.accept(operation));
    broker.until_running(30).await;

    let staying = broker.driver_with(Hello { capacity: 50, ..hello("staying") }).await.serve();
    leaving.drain();
    let listed = broker
        .until_drivers_are("draining", |drivers| {
            drivers.iter().any(|driver| driver.state() == DriverState::Draining)
        })
        .await;
    let listed = listed.iter().find(|driver| driver.instance_id == "leaving").unwrap();
    assert_eq!((listed.in_flight, listed.queued), (20, 0));
    assert_ne!(listed.state_reason, "");
    for n in 0..50 {
        controller.create(&format!("new-{n}")).await.expect("the other one does it");
    }
    // Heartbeats go on for as long as it takes.
    leaving.hears_nothing_for(Duration::from_secs(120)).await;
    assert_eq!(broker.drivers().await.len(), 2);
    for operation in &operations {
        leaving.succeed(operation);
    }
    for call in calls {
        call.answer().await.expect("none of the thirty fails");
    }
    assert_eq!(staying.served().len(), 10 + 50);
    leaving.unregister().await.unwrap();
    staying.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn without_another_driver_what_waits_for_one_that_drains_is_told_at_once() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver_with(Hello { capacity: 1, ..hello("a") }).await;
    let running = controller.creating("running");
    let operation = driver.take().await;
    let waiting = controller.creating("waiting");
    broker.until_running(2).await;
    driver.drain();
    let error = waiting.error().await;
    assert_eq!((error.code(), delivery(&error).as_str()), (Code::Unavailable, "NOT_SENT"));
    assert_eq!(reason(&error), "DRIVER_NOT_READY");
    driver.succeed(&operation);
    running.answer().await.unwrap();
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_stops_lets_running_operations_finish_and_takes_no_new_ones() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut drivers = Vec::new();
    for name in ["a", "b", "c"] {
        drivers.push(broker.driver_with(Hello { capacity: 1, ..hello(name) }).await);
    }
    let running = controller.listing();
    broker.until_running(1).await;
    let late = broker.channel().await;
    let stop = stopping(&broker);

    let mut leave_after = Vec::new();
    let mut busy = None;
    for (n, driver) in drivers.iter_mut().enumerate() {
        let mut frame = driver.next_frame().await.unwrap();
        if frame.params.is_some() {
            driver.accept(&frame);
            busy = Some((n, frame));
            frame = driver.next_frame().await.unwrap();
        }
        let Some(Control::Drain(drain)) = frame.control else { panic!("not a drain: {frame:?}") };
        leave_after.push(Duration::try_from(drain.after.unwrap()).unwrap());
    }
    leave_after.sort_unstable();
    leave_after.dedup();
    assert_eq!(leave_after.len(), 3, "not all at once: {leave_after:?}");

    let error = controller.create("new").await.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::Unavailable, "BROKER_STOPPING"));
    assert_eq!(delivery(&error), "NOT_SENT");
    assert!(retry_after(&error).is_some());
    let (reject, status) = Driver::rejected(late, hello("late")).await;
    assert_eq!((reject.reason(), reject.retryable), (Reason::Draining, true));
    assert!(reject.retry_after.is_some() && status.code() == Code::Unavailable);

    sleep(Duration::from_secs(10)).await;
    assert!(!stop.is_finished() && !running.is_answered());
    let (n, operation) = busy.expect("one of them has the list");
    drivers[n].succeed(&operation);
    running.answer().await.expect("it finished in time");
    for driver in drivers {
        driver.unregister().await.expect("they leave by themselves");
    }
    let took = stop.await.unwrap();
    assert!(took < Duration::from_secs(15), "no longer than need be: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_when_the_broker_stops_was_not_sent() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver_with(Hello { capacity: 1, ..hello("a") }).await;
    let running = controller.creating("running");
    let operation = driver.take().await;
    let waiting = controller.creating("waiting");
    broker.until_running(2).await;
    let stop = stopping(&broker);
    let error = waiting.error().await;
    assert_eq!(
        (reason(&error).as_str(), delivery(&error).as_str()),
        ("BROKER_STOPPING", "NOT_SENT")
    );
    next_drain(&mut driver).await;
    driver.succeed(&operation);
    running.answer().await.unwrap();
    driver.unregister().await.unwrap();
    stop.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_stops_on_time_whatever_its_peers_do_and_the_callers_are_told() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut endless = broker.driver("endless").await;
    let create = controller.creating("w");
    endless.take().await;
    let (channel, line) = broker.line().await;
    let unresponsive = Driver::welcomed(channel, hello("unresponsive")).await;
    line.cut();
    let unregistered = Driver::dial(broker.channel().await, broker_tests::Service::Infra).await;

    let stop = stopping(&broker);
    let error = create.error().await;
    assert_eq!((error.code(), delivery(&error).as_str()), (Code::Unknown, "ACCEPTED"));
    let took = stop.await.unwrap();
    assert!(took >= GRACE && took <= GRACE + Duration::from_secs(5), "{took:?}");
    assert_eq!(endless.end().await.unwrap_err().code(), Code::Unavailable, "the driver is told");
    drop((unresponsive, unregistered));
}

#[tokio::test(start_paused = true)]
async fn a_broker_with_nothing_to_do_stops_at_once() {
    let broker = TestBroker::start();
    let driver = broker.historic().await;
    let took = stopping(&broker).await.unwrap();
    assert!(took < Duration::from_secs(5), "{took:?}");
    driver.vanish();
}
