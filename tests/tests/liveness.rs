//! Drivers that fall silent, get stuck, or only seem to.

use std::time::Duration;

use broker_proto::v1::{Driver as Listed, DriverState, broker_side::Control};
use broker_tests::{Controller, Driver, Hello, TestBroker, delivery, hello, page, reason};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Code;

async fn the_only(broker: &TestBroker) -> Listed {
    let mut drivers = broker.drivers().await;
    assert_eq!(drivers.len(), 1, "{drivers:?}");
    drivers.remove(0)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_silent_driver_is_suspect_after_12_seconds_and_dead_after_30() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver("a").await;
    let running = controller.creating("running");
    driver.take().await;
    sleep(Duration::from_millis(10)).await;
    let silent = Instant::now();
    driver.fall_silent();

    sleep_until(silent + Duration::from_millis(11_900)).await;
    assert_eq!(the_only(&broker).await.state(), DriverState::Ready);
    sleep_until(silent + seconds(12)).await;
    let listed = the_only(&broker).await;
    assert_eq!(listed.state(), DriverState::Suspect);
    assert!(listed.state_reason.contains("heard"), "{}", listed.state_reason);
    assert!(listed.last_heard.unwrap().seconds >= 11);

    let error = controller.create("new").await.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::Unavailable, "DRIVER_NOT_READY"));
    assert_eq!(delivery(&error), "NOT_SENT");

    let error = running.error().await;
    assert!(silent.elapsed() <= seconds(30), "after {:?}", silent.elapsed());
    assert!(silent.elapsed() > seconds(29), "after {:?}", silent.elapsed());
    assert_eq!((error.code(), delivery(&error).as_str()), (Code::Unknown, "ACCEPTED"));
    assert_eq!(broker.drivers().await, []);
    assert_eq!(driver.end().await.unwrap_err().code(), Code::DeadlineExceeded, "it is told, too");
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_line_that_drops_everything_is_noticed_in_the_same_time_in_either_direction() {
    for direction in ["to the broker", "from the broker", "both"] {
        let broker = TestBroker::start();
        let controller = broker.controller().await;
        let (channel, line) = broker.line().await;
        let mut driver = Driver::welcomed(channel, hello("a")).await;
        let running = controller.creating("running");
        driver.take().await;
        sleep(Duration::from_millis(10)).await;
        let cut = Instant::now();
        match direction {
            "to the broker" => line.cut_to_broker(),
            "from the broker" => line.cut_from_broker(),
            _ => line.cut(),
        }
        sleep_until(cut + seconds(12)).await;
        let error = controller.create("new").await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{direction}");
        assert_eq!(delivery(&running.error().await), "ACCEPTED", "{direction}");
        assert!(cut.elapsed() <= seconds(30), "{direction}: after {:?}", cut.elapsed());
        assert_eq!(broker.drivers().await, []);
        driver.vanish();
        broker.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_heard_again_in_time_is_ready_again() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    driver.fall_silent();
    sleep(seconds(20)).await;
    assert_eq!(the_only(&broker).await.state(), DriverState::Suspect);
    let (_, Control::Ping(ping)) = driver.next_control().await else { panic!("a ping") };
    driver.pong(ping.sequence);
    broker.until_drivers_are("ready", |all| all[0].state() == DriverState::Ready).await;
    let create = broker.controller().await.creating("w");
    let operation = loop {
        let frame = driver.next_frame().await.unwrap();
        if frame.params.is_some() {
            break frame;
        }
    };
    driver.accept(&operation);
    driver.succeed(&operation);
    create.answer().await.unwrap();
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_answers_pings_but_accepts_nothing_is_suspect_after_5_seconds() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver("a").await;
    let stuck = controller.creating("stuck");
    let operation = driver.next_operation().await;
    let sent = Instant::now();

    sleep_until(sent + Duration::from_millis(4_900)).await;
    assert_eq!(the_only(&broker).await.state(), DriverState::Ready);
    sleep_until(sent + Duration::from_millis(5_100)).await;
    let listed = the_only(&broker).await;
    assert_eq!(listed.state(), DriverState::Suspect);
    assert!(listed.state_reason.contains("accept"), "{}", listed.state_reason);
    let running = broker.running().await.remove(0);
    assert_eq!(running.delivery(), broker_proto::v1::Delivery::Sent, "not shown as running");
    assert_eq!(reason(&controller.create("new").await.unwrap_err()), "DRIVER_NOT_READY");

    // Long after it would have been dead had it been silent.
    driver.hears_nothing_for(seconds(100)).await;
    driver.accept(&operation);
    broker.until_drivers_are("ready", |all| all[0].state() == DriverState::Ready).await;
    driver.succeed(&operation);
    stuck.answer().await.unwrap();
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn work_avoids_an_instance_in_doubt_and_returns_to_it() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut stuck = broker.driver("stuck").await;
    let waiting = controller.creating("w");
    let operation = stuck.next_operation().await;
    let well = broker.driver("well").await.serve();
    sleep(seconds(6)).await;
    for n in 0..20 {
        controller.create(&format!("w-{n}")).await.expect("the other one does it");
    }
    stuck.hears_nothing_for(seconds(1)).await;
    stuck.accept(&operation);
    stuck.succeed(&operation);
    waiting.answer().await.unwrap();
    let recovered = stuck.serve();
    for n in 0..40 {
        controller.create(&format!("x-{n}")).await.unwrap();
    }
    assert!(!recovered.served().is_empty(), "it gets its share again");
    well.vanish();
    recovered.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn traffic_keeps_a_driver_alive_that_has_no_time_for_pongs() {
    let broker = TestBroker::start();
    let mut driver = broker.driver_with(Hello { capacity: 1, ..hello("a") }).await;
    let list = broker.controller().await.listing();
    let operation = driver.take().await;
    driver.fall_silent();
    for n in 0..60 {
        sleep(seconds(1)).await;
        driver.answer(&operation, page([format!("m-{n}").as_str()], true));
    }
    assert_eq!(the_only(&broker).await.state(), DriverState::Ready);
    driver.answer(&operation, page([], false));
    assert_eq!(list.answer().await.unwrap().len(), 60);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn heartbeats_come_every_four_seconds_whatever_else_is_sent() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver("a").await;
    let began = Instant::now();
    driver.fall_silent();
    let mut pings = Vec::new();
    let mut busy: Option<broker_tests::Call<_>> = None;
    while pings.len() < 10 {
        if busy.as_ref().is_none_or(broker_tests::Call::is_answered) {
            busy = Some(controller.creating(&format!("w-{}", began.elapsed().as_millis())));
        }
        let frame = driver.next_frame().await.unwrap();
        if let Some(Control::Ping(ping)) = frame.control {
            pings.push((ping.sequence, began.elapsed().as_secs()));
            driver.pong(ping.sequence);
        } else {
            sleep(Duration::from_millis(700)).await;
            driver.accept(&frame);
            driver.succeed(&frame);
        }
    }
    for (n, (sequence, at)) in (1u64..).zip(pings) {
        assert_eq!(sequence, n);
        // What the driver was doing when it came delays its reading by less than a second.
        assert!(at >= 4 * n && at <= 4 * n + 1, "ping {n} at {at} s");
    }
    drop(busy);
    driver.vanish();
}

#[tokio::test(start_paused = true)]
async fn the_caller_of_an_operation_that_the_driver_forgot_is_told() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver("a").await;
    let forgotten = controller.creating("forgotten");
    let operation = driver.take().await;
    let remembered = controller.creating("remembered");
    let other = driver.take().await;
    sleep(seconds(10)).await;
    assert!(!forgotten.is_answered(), "it is listed in every pong");

    let forgot = Instant::now();
    driver.forget(&operation);
    let error = forgotten.error().await;
    assert!(forgot.elapsed() <= seconds(4));
    assert_eq!((reason(&error).as_str(), delivery(&error).as_str()), ("DRIVER_LOST", "ACCEPTED"));
    driver.succeed(&other);
    remembered.answer().await.expect("others are not concerned");
    // The retry goes to the same driver, which knows best.
    let (retried, _) = tokio::join!(controller.create("forgotten"), driver.serve_one());
    retried.unwrap();
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_is_silent_while_it_works_and_that_is_fine() {
    let broker = TestBroker::start();
    let mut driver = broker.historic().await;
    let create =
        broker.controller().await.creating_with(Controller::request_within("w", seconds(3600)));
    let operation = driver.next_operation().await;
    sleep(seconds(1800)).await;
    assert_eq!(the_only(&broker).await.state(), DriverState::Ready);
    let made = broker_proto::v1::CreateResponse::default();
    driver.say(
        operation.operation_id,
        "create",
        broker_proto::v1::driver_side::Response::Create(made),
    );
    create.answer().await.unwrap();
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_whose_line_is_dead_is_noticed_by_the_transport() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let (channel, line) = broker.line().await;
    let (group, _) = broker_tests::API_VERSION.split_once('/').unwrap();
    let service = broker_tests::Service::Infra;
    let mut driver = Driver::historic(channel, service, broker_tests::KIND, group).await;
    broker.until_drivers(1).await;
    let create = controller.creating("w");
    driver.next_operation().await;
    let cut = Instant::now();
    line.cut();
    assert_eq!(delivery(&create.error().await), "ACCEPTED");
    assert!(cut.elapsed() <= seconds(30), "after {:?}", cut.elapsed());
    driver.vanish();
    broker.at_rest().await;
}
