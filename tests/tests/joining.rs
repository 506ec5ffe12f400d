//! One machine, one operation: what happens to requests that meet on a machine.

use std::time::Duration;

use broker_proto::v1::{ClassRef, MachineRequest};
use broker_tests::{
    Controller, Driver, TestBroker, catalog, delivery, fact, failed, machine, page, reason,
    retry_after,
};
use tonic::Code;

fn with_id(request_id: &str) -> MachineRequest {
    MachineRequest { request_id: request_id.to_owned(), ..Controller::request("w") }
}

#[tokio::test(start_paused = true)]
async fn identical_creates_are_one_operation_with_one_answer() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controllers = [broker.controller().await, broker.controller().await];
    let first = controllers[0].creating("w");
    let operation = driver.take().await;
    let second = controllers[1].creating("w");
    let third = controllers[0].creating_with(MachineRequest {
        last_known_state: "it grows from retry to retry".to_owned(),
        ..Controller::request("w")
    });
    driver.hears_nothing_for(Duration::from_secs(60)).await;
    assert_eq!(broker.running().await.len(), 1);
    driver.answer(&operation, machine("sim:///1"));
    for create in [first, second, third] {
        assert_eq!(create.answer().await.unwrap().provider_id, "sim:///1");
    }
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn those_who_joined_share_a_failure_too() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let creates = [controller.creating("w"), controller.creating("w")];
    let operation = driver.take().await;
    driver.answer(&operation, failed(Code::ResourceExhausted, "no quota"));
    for create in creates {
        assert_eq!(create.error().await.code(), Code::ResourceExhausted);
    }
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_different_request_for_a_busy_machine_is_aborted_and_told_why() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let create = controller.creating_with(with_id("one"));
    let operation = driver.take().await;

    let other_class = ClassRef { name: "large".to_owned(), ..Controller::class() };
    for different in [
        with_id("two"),
        MachineRequest { user_data: Some("other".into()), ..Controller::request("w") },
        MachineRequest { provider_id: "sim:///2".to_owned(), ..with_id("two") },
        MachineRequest { class: Some(other_class), ..Controller::request("w") },
    ] {
        let error = controller.create_with(different).await.unwrap_err();
        assert_eq!((error.code(), reason(&error).as_str()), (Code::Aborted, "MACHINE_BUSY"));
    }
    for error in [controller.delete("w").await, controller.initialize("w").await] {
        let error = error.unwrap_err();
        assert_eq!((error.code(), reason(&error).as_str()), (Code::Aborted, "MACHINE_BUSY"));
        assert_eq!(delivery(&error), "NOT_SENT");
        assert!(retry_after(&error).is_some());
        let running = broker.running().await.remove(0).operation_id;
        assert_eq!(fact(&error, "operation_id"), Some(running), "names what runs");
    }

    // Reads disturb nobody, and a request without an id means whatever runs.
    let joined = controller.creating("w");
    let (status, _) = tokio::join!(controller.status("w"), driver.serve_one());
    status.expect("a status is answered while a create runs");
    driver.succeed(&operation);
    create.answer().await.unwrap();
    joined.answer().await.unwrap();
    let (deleted, _) = tokio::join!(controller.delete("w"), driver.serve_one());
    deleted.expect("the machine is free again");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_name_in_another_namespace_is_another_machine() {
    let broker = TestBroker::of_catalog(catalog::catalog());
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let here = controller.creating("w");
    let class = ClassRef { namespace: "team-b".to_owned(), ..Controller::class() };
    let there =
        controller.creating_with(MachineRequest { class: Some(class), ..Controller::request("w") });
    let operations = driver.next_operations(2).await;
    driver.answer(&operations[0], machine("one"));
    driver.answer(&operations[1], machine("two"));
    let here = here.answer().await.unwrap().provider_id;
    assert_ne!(here, there.answer().await.unwrap().provider_id);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn who_joined_gets_the_answer_although_the_first_caller_left() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let first = controller.creating("w");
    let operation = driver.take().await;
    let second = broker.controller().await.creating("w");
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    first.cancel().await;
    driver.hears_nothing_for(Duration::from_secs(60)).await;
    driver.answer(&operation, machine("sim:///1"));
    assert_eq!(second.answer().await.unwrap().provider_id, "sim:///1");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn when_all_callers_left_one_cancel_goes_out_and_the_slot_stays_until_the_answer() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let callers = [controller.creating("w"), controller.creating("w")];
    let operation = driver.take().await;
    for caller in callers {
        caller.cancel().await;
    }
    assert_eq!(driver.next_cancel().await, operation.operation_id);
    driver.hears_nothing_for(Duration::from_secs(60)).await;
    assert_eq!(broker.drivers().await[0].in_flight, 1, "the driver is still busy with it");
    assert_eq!(controller.delete("w").await.unwrap_err().code(), Code::Aborted);
    driver.answer(&operation, failed(Code::Cancelled, "stopped"));
    broker.until_running(0).await;
    assert_eq!(broker.drivers().await[0].in_flight, 0);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_know_cancel_is_not_told() {
    let broker = TestBroker::start();
    let mut native =
        broker.driver_with(broker_tests::Hello { cancel: false, ..broker_tests::hello("a") }).await;
    let controller = broker.controller().await;
    let create = controller.creating("w");
    let operation = native.take().await;
    create.cancel().await;
    native.hears_nothing_for(Duration::from_secs(60)).await;
    native.succeed(&operation);
    broker.until_running(0).await;
    native.vanish();
    broker.at_rest().await;
}

/// Leaves a create that succeeded as "sim:///1" when nobody waited for it any more.
async fn leave_an_unheard_success(
    broker: &TestBroker,
    driver: &mut Driver,
    controller: &Controller,
    request: MachineRequest,
) {
    let create = controller.creating_with(request);
    let operation = driver.take().await;
    create.cancel().await;
    driver.next_cancel().await;
    driver.answer(&operation, machine("sim:///1"));
    broker.until_running(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_success_that_nobody_heard_answers_the_retry_without_a_second_execution() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    leave_an_unheard_success(&broker, &mut driver, &controller, with_id("")).await;

    tokio::time::sleep(Duration::from_secs(14 * 60)).await;
    for _ in 0..2 {
        assert_eq!(controller.create("w").await.unwrap().provider_id, "sim:///1");
    }
    driver.hears_nothing_for(Duration::from_secs(1)).await;

    // It is not kept for ever.
    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    let (created, _) = tokio::join!(controller.create("w"), driver.serve_one());
    assert_eq!(created.unwrap().provider_id, "id-w");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_delete_makes_an_unheard_create_forgotten() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    leave_an_unheard_success(&broker, &mut driver, &controller, with_id("")).await;
    let (deleted, _) = tokio::join!(controller.delete("w"), driver.serve_one());
    deleted.unwrap();
    let (created, _) = tokio::join!(controller.create("w"), driver.serve_one());
    assert_eq!(created.unwrap().provider_id, "id-w", "executed anew");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_knows_no_such_machine_makes_an_unheard_create_forgotten() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    leave_an_unheard_success(&broker, &mut driver, &controller, with_id("")).await;
    let (status, ()) = tokio::join!(controller.status("w"), async {
        let operation = driver.take().await;
        driver.answer(&operation, failed(Code::NotFound, "no such machine"));
    });
    assert_eq!(status.unwrap_err().code(), Code::NotFound);
    let (created, _) = tokio::join!(controller.create("w"), driver.serve_one());
    assert_eq!(created.unwrap().provider_id, "id-w", "executed anew");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_without_the_machine_makes_an_unheard_create_forgotten() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    leave_an_unheard_success(&broker, &mut driver, &controller, with_id("")).await;
    for (listed, provider_id) in [("w", "sim:///1"), ("other", "id-w")] {
        let (list, ()) = tokio::join!(controller.list(), async {
            let operation = driver.take().await;
            driver.answer(&operation, page([listed], false));
        });
        list.unwrap();
        let create = controller.creating("w");
        if listed != "w" {
            driver.serve_one().await;
        }
        assert_eq!(create.answer().await.unwrap().provider_id, provider_id);
    }
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn another_request_id_executes_anew_and_the_same_one_does_not() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    leave_an_unheard_success(&broker, &mut driver, &controller, with_id("one")).await;

    let again = controller.create_with(with_id("one")).await.unwrap();
    assert_eq!(again.provider_id, "sim:///1");
    let (anew, _) = tokio::join!(controller.create_with(with_id("two")), driver.serve_one());
    assert_eq!(anew.unwrap().provider_id, "id-w");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_definite_failure_a_retry_executes_again_heard_or_not() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let heard = controller.creating("w");
    let operation = driver.take().await;
    driver.answer(&operation, failed(Code::ResourceExhausted, "no quota"));
    heard.error().await;
    let unheard = controller.creating("w");
    let operation = driver.take().await;
    unheard.cancel().await;
    driver.next_cancel().await;
    driver.answer(&operation, failed(Code::ResourceExhausted, "no quota"));
    broker.until_running(0).await;
    let (created, _) = tokio::join!(controller.create("w"), driver.serve_one());
    created.expect("third time lucky");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_joins_a_cancelled_operation_is_executed_anew() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let first = controller.creating("w");
    let operation = driver.take().await;
    first.cancel().await;
    driver.next_cancel().await;

    let second = controller.creating("w");
    driver.hears_nothing_for(Duration::from_secs(5)).await;
    driver.answer(&operation, failed(Code::Cancelled, "stopped as told"));
    driver.serve_one().await;
    assert_eq!(second.answer().await.unwrap().provider_id, "id-w");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_operation_whose_caller_left_is_never_sent() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let running: Vec<_> = (0..4).map(|n| controller.creating(&format!("w-{n}"))).collect();
    let operations = driver.next_operations(4).await;
    let queued = controller.creating("queued");
    broker.until_running(5).await;
    queued.cancel().await;
    broker.until_running(4).await;
    for operation in &operations {
        driver.succeed(operation);
    }
    for create in running {
        create.answer().await.unwrap();
    }
    driver.hears_nothing_for(Duration::from_secs(60)).await;
    driver.vanish();
    broker.at_rest().await;
}
