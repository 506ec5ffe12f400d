//! A driver gets as much as it can take, the rest waits its turn, and what is too much is told so.

use std::time::Duration;

use broker_proto::v1::submit_request::Operation;
use broker_proto::v1::submit_response::Outcome;
use broker_tests::{
    API_VERSION, Controller, Hello, TestBroker,
    catalog::{self, OTHER_API_VERSION, OTHER_KIND},
    delivery, fact, hello, kind, machine, reason, retry_after,
};
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn no_more_is_in_flight_than_the_driver_can_take_and_the_rest_waits_in_order() {
    let broker = TestBroker::start();
    let mut driver = broker.driver_with(Hello { capacity: 2, ..hello("a") }).await;
    let controller = broker.controller().await;
    let mut calls = Vec::new();
    for n in 0..6 {
        calls.push(controller.creating(&format!("w-{n}")));
        broker.until_running(n + 1).await;
    }
    let mut order = Vec::new();
    let mut running = driver.next_operations(2).await;
    running.iter().for_each(|operation| driver.accept(operation));
    while !running.is_empty() {
        driver.hears_nothing_for(Duration::from_secs(1)).await;
        let listed = broker.drivers().await.remove(0);
        assert_eq!(listed.in_flight as usize, running.len());
        assert_eq!(listed.queued as usize, 6 - order.len() - running.len());
        let done = running.remove(0);
        order.push(done.params.as_ref().unwrap().machine_name.clone());
        driver.succeed(&done);
        if order.len() + running.len() < 6 {
            running.push(driver.take().await);
        }
    }
    assert_eq!(order, ["w-0", "w-1", "w-2", "w-3", "w-4", "w-5"]);
    for call in calls {
        call.answer().await.unwrap();
    }
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn beyond_the_queue_a_request_is_refused_with_a_hint_until_there_is_room_again() {
    let broker = TestBroker::queueing(2);
    let mut driver = broker.driver_with(Hello { capacity: 1, ..hello("a") }).await;
    let controller = broker.controller().await;
    let mut taken = Vec::new();
    for n in 0..3 {
        taken.push(controller.creating(&format!("w-{n}")));
        broker.until_running(n + 1).await;
    }
    let operation = driver.take().await;
    for _ in 0..3 {
        let error = controller.create("w-3").await.unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        assert_eq!(reason(&error), "DRIVER_BUSY");
        assert_eq!(delivery(&error), "NOT_SENT");
        assert_eq!(fact(&error, "driver_instance"), None, "it has and had nothing of it");
        assert!(retry_after(&error).is_some());
    }
    // Reads count as well.
    assert_eq!(controller.status("w-0").await.unwrap_err().code(), Code::ResourceExhausted);

    driver.succeed(&operation);
    taken.remove(0).answer().await.unwrap();
    taken.push(controller.creating("w-3"));
    for _ in 0..3 {
        driver.serve_one().await;
    }
    for call in taken {
        call.answer().await.unwrap();
    }
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_operations_on_one_stream_answered_in_any_order_each_find_their_caller() {
    const COUNT: u64 = 10_000;
    let broker = TestBroker::start();
    let mut driver = broker.driver_with(Hello { capacity: 10_000, ..hello("a") }).await;
    let mut submitter = broker.controller().await.submit().await;
    for tag in 0..COUNT {
        submitter.send(tag, Operation::Create(Controller::request(&format!("w-{tag}"))));
    }
    let mut operations = driver.next_operations(COUNT as usize).await;
    assert_eq!(broker.drivers().await[0].in_flight as usize, operations.len());

    // A fixed shuffle: 7,919 is a prime that does not divide the count.
    let len = operations.len();
    for at in 0..len {
        operations.swap(at, at * 7_919 % len);
    }
    for operation in &operations {
        let name = &operation.params.as_ref().unwrap().machine_name;
        driver.answer(operation, machine(&format!("id of {name}")));
    }
    let mut answered = vec![false; len];
    for _ in 0..COUNT {
        let (tag, outcome) = submitter.next().await;
        let Ok(Outcome::Machine(made)) = outcome else { panic!("{tag}: {outcome:?}") };
        assert_eq!(made.provider_id, format!("id of w-{tag}"));
        assert!(!std::mem::replace(&mut answered[tag as usize], true), "{tag} twice");
    }
    assert!(submitter.half_close().rest().await.is_empty());
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_hangs_does_not_disturb_another() {
    let broker = TestBroker::of_catalog(catalog::catalog());
    let hanging = broker.driver("hanging").await;
    let kinds = vec![kind(OTHER_API_VERSION, OTHER_KIND)];
    let well = broker.driver_with(Hello { kinds, ..hello("well") }).await.serve();
    let controller = broker.controller().await;
    let stuck: Vec<_> = (0..100).map(|n| controller.creating(&format!("w-{n}"))).collect();
    broker.until_running(100).await;

    let began = tokio::time::Instant::now();
    for n in 0..100 {
        let class = catalog::class(OTHER_API_VERSION, OTHER_KIND, "other");
        let request = broker_proto::v1::MachineRequest {
            class: Some(class),
            ..Controller::request(&format!("w-{n}"))
        };
        controller.create_with(request).await.expect("over the same connection");
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    for call in stuck {
        call.cancel().await;
    }
    hanging.vanish();
    well.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_gets_one_at_a_time_and_what_waits_behind_is_not_sent_when_it_vanishes() {
    let broker = TestBroker::start();
    let mut driver = broker.historic().await;
    let controller = broker.controller().await;
    let running = controller.creating("running");
    driver.next_operation().await;
    let waiting = [controller.creating("w-1"), controller.creating("w-2")];
    driver.hears_nothing_for(Duration::from_secs(600)).await;
    assert_eq!(broker.drivers().await[0].queued, 2);
    driver.vanish();
    let error = running.error().await;
    assert_eq!(delivery(&error), "ACCEPTED", "a sent operation counts as accepted");
    for call in waiting {
        let error = call.error().await;
        assert_eq!((error.code(), delivery(&error).as_str()), (Code::Unavailable, "NOT_SENT"));
    }
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_capacity_of_nothing_is_one_and_an_enormous_one_is_bounded() {
    let broker = TestBroker::start();
    for (declared, effective) in [(0, 1), (u32::MAX, 100_000)] {
        let kinds = vec![kind(API_VERSION, "K")];
        let driver = broker.driver_with(Hello { kinds, capacity: declared, ..hello("a") }).await;
        assert_eq!(broker.drivers().await[0].capacity, effective);
        driver.vanish();
        broker.until_drivers(0).await;
    }
    broker.at_rest().await;
}
