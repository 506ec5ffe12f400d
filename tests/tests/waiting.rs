//! Callers that would rather wait for a driver than be told that there is none.

use std::time::Duration;

use broker_proto::v1::MachineRequest;
use broker_tests::{Controller, TestBroker, delivery, reason};
use tokio::time::Instant;
use tonic::Code;

fn patient(machine: &str) -> MachineRequest {
    MachineRequest { wait_for_driver: true, ..Controller::request(machine) }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_later_gets_what_waits_for_it() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let create = controller.creating_with(patient("w"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!create.is_answered());
    let came = Instant::now();
    let driver = broker.driver("a").await.serve();
    assert_eq!(create.answer().await.unwrap().provider_id, "id-w");
    assert!(came.elapsed() < Duration::from_secs(1), "told of it, not found by looking");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_at_the_callers_deadline_with_nothing_sent() {
    let broker = TestBroker::start();
    let began = Instant::now();
    let mut request = tonic::Request::new(patient("w"));
    request.set_timeout(Duration::from_secs(30));
    let error = broker.controller().await.create_with(request).await.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::Unavailable, "NO_DRIVER"));
    assert_eq!(delivery(&error), "NOT_SENT");
    assert!(
        began.elapsed() > Duration::from_secs(29) && began.elapsed() <= Duration::from_secs(30)
    );
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_suspect_driver_is_served_when_it_recovers() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver("a").await;
    let stuck = controller.creating("stuck");
    let operation = driver.next_operation().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let error = controller.create("impatient").await.unwrap_err();
    assert_eq!(reason(&error), "DRIVER_NOT_READY");

    let waiting = controller.creating_with(patient("w"));
    driver.hears_nothing_for(Duration::from_secs(30)).await;
    driver.accept(&operation);
    driver.succeed(&operation);
    stuck.answer().await.unwrap();
    driver.serve_one().await;
    waiting.answer().await.unwrap();
    driver.vanish();
    broker.at_rest().await;
}
