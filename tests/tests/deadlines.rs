//! Every operation ends in time, and the caller learns how far it got.

use std::time::Duration;

use broker_proto::v1::{Extend, SubmitRequest, broker_side::Control, submit_request::Operation};
use broker_tests::{
    Controller, Submitter, TestBroker, delivery, fact, failed, machine, reason, submission,
};
use tokio::time::Instant;
use tonic::{Code, Status};

const MINUTE: Duration = Duration::from_secs(60);

fn is_deadline(error: &Status, expected: &str) {
    assert_eq!((error.code(), reason(error).as_str()), (Code::DeadlineExceeded, "DEADLINE"));
    assert_eq!(delivery(error), expected);
    assert!(fact(error, "operation_id").is_some());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_tells_whether_it_was_accepted_or_never_sent() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let began = Instant::now();
    let within = |machine| controller.creating_with(Controller::request_within(machine, MINUTE));

    let accepted = ["a", "b", "c", "d"].map(within);
    let mut operations = Vec::new();
    for _ in 0..4 {
        operations.push(driver.take().await.operation_id);
    }
    let queued = within("queued");
    broker.until_running(5).await;
    for call in accepted {
        is_deadline(&call.error().await, "ACCEPTED");
    }
    is_deadline(&queued.error().await, "NOT_SENT");
    assert!(began.elapsed() <= MINUTE, "the broker answers before the caller's own clock does");

    // What was sent is cancelled, and what was queued is gone.
    let mut cancelled = Vec::new();
    for _ in 0..4 {
        cancelled.push(driver.next_cancel().await);
    }
    cancelled.sort_unstable();
    assert_eq!(cancelled, operations);
    driver.hears_nothing_for(Duration::from_secs(10)).await;
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_what_was_sent_and_not_accepted_says_so() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let sent = controller.creating_with(Controller::request_within("w", MINUTE));
    let operation = driver.next_operation().await;
    is_deadline(&sent.error().await, "SENT");
    assert_eq!(driver.next_cancel().await, operation.operation_id);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_deadline_is_kept_for_the_retry() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let create = controller.creating_with(Controller::request_within("w", MINUTE));
    let operation = driver.take().await;
    is_deadline(&create.error().await, "ACCEPTED");
    assert_eq!(driver.next_cancel().await, operation.operation_id);
    driver.answer(&operation, machine("late"));
    broker.until_running(0).await;
    assert_eq!(controller.create("w").await.unwrap().provider_id, "late");
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_before_the_late_answer_waits_for_it() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let first = controller.creating_with(Controller::request_within("w", MINUTE));
    let operation = driver.take().await;
    is_deadline(&first.error().await, "ACCEPTED");
    driver.next_cancel().await;
    let retry = controller.creating("w");
    driver.hears_nothing_for(Duration::from_secs(100)).await;
    driver.answer(&operation, machine("late"));
    assert_eq!(retry.answer().await.unwrap().provider_id, "late");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn who_joined_with_more_time_outlives_the_first_callers_deadline() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let short = controller.creating_with(Controller::request_within("w", MINUTE));
    let operation = driver.take().await;
    let long = controller.creating_with(Controller::request_within("w", 10 * MINUTE));
    let (id, control) = driver.next_control().await;
    assert_eq!(id, operation.operation_id);
    let Control::Extend(Extend { time_left: Some(left) }) = control else {
        panic!("the driver has to know: {control:?}");
    };
    assert!(left.seconds > 9 * 60, "{left:?}");
    is_deadline(&short.error().await, "ACCEPTED");
    driver.hears_nothing_for(5 * MINUTE).await;
    driver.answer(&operation, machine("in time"));
    assert_eq!(long.answer().await.unwrap().provider_id, "in time");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_the_verbs_default_holds() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let began = Instant::now();
    let list = controller.listing();
    driver.take().await;
    is_deadline(&list.error().await, "ACCEPTED");
    assert_eq!(began.elapsed().as_secs(), 2 * 60);

    let began = Instant::now();
    driver.next_cancel().await;
    let create = controller.creating("w");
    let operation = driver.take().await;
    let time_left = operation.params.as_ref().unwrap().time_left.unwrap();
    assert_eq!(time_left.seconds, 20 * 60);
    is_deadline(&create.error().await, "ACCEPTED");
    assert_eq!(began.elapsed().as_secs(), 20 * 60);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_nothing_ends_at_once_with_nothing_sent() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let began = Instant::now();
    let request = Controller::request_within("w", Duration::ZERO);
    let error = controller.create_with(request).await.unwrap_err();
    // The client's own clock, which strikes first here, calls it CANCELLED.
    assert!(matches!(error.code(), Code::DeadlineExceeded | Code::Cancelled), "{error}");
    assert!(began.elapsed() < Duration::from_secs(1));
    driver.hears_nothing_for(MINUTE).await;
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_enormous_deadline_is_clamped_to_a_day() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let hours = Duration::from_secs(99_999_999 * 3600);
    let create = controller.creating_with(Controller::request_within("w", hours));
    let operation = driver.serve_one().await;
    let time_left = operation.params.unwrap().time_left.unwrap();
    assert_eq!(time_left.seconds, 24 * 3600);
    create.answer().await.unwrap();
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_header_that_makes_no_sense_is_invalid() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    for wrong in ["-1S", "soon", "1", "123456789S"] {
        let mut request = tonic::Request::new(Controller::request("w"));
        request.metadata_mut().insert("grpc-timeout", wrong.parse().unwrap());
        let error = controller.create_with(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{wrong}");
        assert_eq!((reason(&error).as_str(), delivery(&error).as_str()), ("INVALID", "NOT_SENT"));
    }
    driver.hears_nothing_for(MINUTE).await;
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn on_a_submit_stream_each_operation_has_its_own_time() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let mut submitter = controller.submit().await;
    let submit = |submitter: &Submitter, tag, seconds, nanos| {
        let create = Operation::Create(Controller::request(&format!("w-{tag}")));
        let timeout = Some(prost_types::Duration { seconds, nanos });
        submitter.send_request(SubmitRequest { timeout, ..submission(tag, create) });
    };
    submit(&submitter, 1, 0, 0);
    submit(&submitter, 2, -5, 0);
    submit(&submitter, 3, i64::MIN, i32::MIN);
    for _ in 0..3 {
        let (tag, outcome) = submitter.next().await;
        let error = outcome.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{tag}");
        assert_eq!((reason(&error).as_str(), delivery(&error).as_str()), ("INVALID", "NOT_SENT"));
    }
    driver.hears_nothing_for(Duration::from_secs(1)).await;

    submit(&submitter, 4, i64::MAX, 0);
    submit(&submitter, 5, 10, 0);
    let began = Instant::now();
    let operations = driver.next_operations(2).await;
    operations.iter().for_each(|operation| driver.accept(operation));
    let time_left = |at: usize| operations[at].params.as_ref().unwrap().time_left.unwrap().seconds;
    assert_eq!((time_left(0), time_left(1)), (24 * 3600, 10));
    let (tag, outcome) = submitter.next().await;
    is_deadline(&outcome.unwrap_err(), "ACCEPTED");
    assert_eq!((tag, began.elapsed().as_secs()), (5, 10));
    driver.next_cancel().await;
    driver.answer(&operations[1], failed(Code::Cancelled, "stopped"));
    driver.succeed(&operations[0]);
    let (tag, outcome) = submitter.next().await;
    assert!(tag == 4 && outcome.is_ok());
    drop(submitter);
    driver.vanish();
    broker.at_rest().await;
}
