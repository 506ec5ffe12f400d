//! Many operations over one stream.

use std::{collections::BTreeSet, time::Duration};

use broker_proto::v1::{
    GetVolumeIDsRequest, ListMachinesRequest, MachineRequest, SubmitRequest,
    submit_request::Operation, submit_response::Outcome,
};
use broker_tests::{
    Controller, Hello, TestBroker, delivery, fact, failed, hello, reason, retry_after,
};
use tonic::Code;

fn create(tag: u64) -> Operation {
    Operation::Create(Controller::request(&format!("w-{tag}")))
}

#[tokio::test(start_paused = true)]
async fn every_verb_can_be_submitted_and_gets_its_own_kind_of_answer() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let mut submitter = broker.controller().await.submit().await;
    let class = Some(Controller::class());
    let machine = |name: &str| Controller::request(name);
    let list = ListMachinesRequest { class: class.clone(), ..Default::default() };
    let volumes = GetVolumeIDsRequest { class, ..Default::default() };
    for (tag, verb, operation) in [
        (10, "create", Operation::Create(machine("a"))),
        (11, "initialize", Operation::Initialize(machine("b"))),
        (12, "delete", Operation::Delete(machine("c"))),
        (13, "get_status", Operation::GetStatus(machine("d"))),
        (14, "list", Operation::List(list)),
        (15, "get_volume_ids", Operation::GetVolumeIds(volumes)),
    ] {
        submitter.send(tag, operation);
        assert_eq!(driver.serve_one().await.operation_type, verb);
        let (answered, outcome) = submitter.next().await;
        assert_eq!(answered, tag);
        match (verb, outcome.unwrap()) {
            ("list", Outcome::List(list)) => assert_eq!(list.machines.len(), 1),
            ("get_volume_ids", Outcome::VolumeIds(_)) => {}
            (_, Outcome::Machine(machine)) => assert!(machine.provider_id.starts_with("id-")),
            (_, other) => panic!("{verb} is not answered by {other:?}"),
        }
    }
    assert!(submitter.half_close().rest().await.is_empty());
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn answers_come_as_they_are_ready_and_carry_their_tag() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let mut submitter = broker.controller().await.submit().await;
    // Tags are the caller's affair: they may repeat, and be anything.
    for tag in [7, u64::MAX, 0, 7] {
        submitter.send(tag, create(tag % 1_000));
    }
    let operations = driver.next_operations(3).await;
    for operation in operations.iter().rev() {
        driver.succeed(operation);
    }
    let mut tags = Vec::new();
    for _ in 0..4 {
        let (tag, outcome) = submitter.next().await;
        outcome.unwrap();
        tags.push(tag);
    }
    assert_eq!(tags[0], 0, "the last one sent was answered first");
    tags.sort_unstable();
    assert_eq!(tags, [0, 7, 7, u64::MAX], "those that joined have their own answer");
    drop(submitter);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_is_the_status_that_the_unary_call_would_have_ended_with() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let mut submitter = broker.controller().await.submit().await;
    submitter.send(1, Operation::Create(Controller::request("Not A Name")));
    let (_, outcome) = submitter.next().await;
    let error = outcome.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::InvalidArgument, "INVALID"));
    assert!(error.message().starts_with("machine_name: "), "{error}");

    submitter.send_request(SubmitRequest { tag: 2, operation: None, timeout: None });
    let (tag, outcome) = submitter.next().await;
    let error = outcome.unwrap_err();
    assert_eq!(
        (tag, error.code(), delivery(&error).as_str()),
        (2, Code::InvalidArgument, "NOT_SENT")
    );

    submitter.send(3, create(3));
    let operation = driver.take().await;
    let retry_after_9_s = Some(prost_types::Duration { seconds: 9, nanos: 0 });
    let result = broker_proto::v1::OperationResult {
        retry_after: retry_after_9_s,
        ..failed(Code::ResourceExhausted, "no quota")
    };
    driver.answer(&operation, result);
    let (tag, outcome) = submitter.next().await;
    let error = outcome.unwrap_err();
    assert_eq!((tag, error.code(), error.message()), (3, Code::ResourceExhausted, "no quota"));
    assert_eq!(delivery(&error), "ANSWERED");
    assert_eq!(fact(&error, "driver_instance").as_deref(), Some("a"));
    assert_eq!(retry_after(&error), Some(Duration::from_secs(9)));

    // None of them ended the stream.
    submitter.send(4, create(4));
    driver.serve_one().await;
    assert!(submitter.next().await.1.is_ok());
    drop(submitter);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_half_close_lets_everything_submitted_so_far_finish() {
    let broker = TestBroker::start();
    let mut driver = broker.driver_with(Hello { capacity: 2, ..hello("a") }).await;
    let submitter = broker.controller().await.submit().await;
    for tag in 0..10 {
        submitter.send(tag, create(tag));
    }
    let closed = submitter.half_close();
    let serve = async {
        for _ in 0..10 {
            driver.serve_one().await;
        }
    };
    let (tags, ()) = tokio::join!(closed.rest(), serve);
    assert_eq!(tags.into_iter().collect::<BTreeSet<_>>(), (0..10).collect());
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_a_stream_cancels_what_it_submitted_and_nothing_else() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let submitter = controller.submit().await;
    for tag in 0..3 {
        submitter.send(tag, create(tag));
    }
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(driver.take().await.operation_id);
    }
    let joined = controller.creating("w-1");
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    drop(submitter);
    let mut cancelled = vec![driver.next_cancel().await, driver.next_cancel().await];
    cancelled.sort_unstable();
    assert_eq!(cancelled, [running[0], running[2]], "somebody else waits for the second");
    driver.hears_nothing_for(Duration::from_secs(10)).await;
    driver.vanish();
    joined.error().await;
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_dies_fails_its_operations_and_not_the_stream() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let mut submitter = broker.controller().await.submit().await;
    for tag in 0..3 {
        submitter.send(tag, create(tag));
    }
    driver.next_operations(3).await;
    driver.vanish();
    for _ in 0..3 {
        assert_eq!(delivery(&submitter.next().await.1.unwrap_err()), "SENT");
    }
    broker.until_drivers(0).await;
    let next = broker.driver("b").await.serve();
    submitter.send(9, create(9));
    let (tag, outcome) = submitter.next().await;
    assert!(tag == 9 && outcome.is_ok());
    drop(submitter);
    next.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn submitted_operations_may_wait_for_a_driver() {
    let broker = TestBroker::start();
    let mut submitter = broker.controller().await.submit().await;
    let patient = MachineRequest { wait_for_driver: true, ..Controller::request("w") };
    submitter.send(1, Operation::Create(patient));
    submitter.send(2, create(2));
    let (tag, outcome) = submitter.next().await;
    assert_eq!((tag, reason(&outcome.unwrap_err()).as_str()), (2, "NO_DRIVER"));
    let driver = broker.driver("a").await.serve();
    let (tag, outcome) = submitter.next().await;
    assert!(tag == 1 && outcome.is_ok());
    drop(submitter);
    driver.vanish();
    broker.at_rest().await;
}
