use std::{collections::HashMap, io};

use tonic_types::{ErrorDetails, StatusExt as _};

use super::*;

fn address() -> Address {
    "127.0.0.1:5000".parse().expect("a good address")
}

fn create(status: &Status) -> Failure {
    Failure::of(status, Asked { of: &address(), change: Some(Change::Create), waited: false })
}

fn list(status: &Status) -> Failure {
    Failure::of(status, Asked { of: &address(), change: None, waited: false })
}

/// A status as the broker makes them.
fn status(code: Code, message: &str, delivery: &str, retry_after: Option<Duration>) -> Status {
    let metadata = HashMap::from([
        ("delivery".to_owned(), delivery.to_owned()),
        ("operation_id".to_owned(), "op-7".to_owned()),
        ("driver_instance".to_owned(), "sim-0".to_owned()),
    ]);
    let mut details = ErrorDetails::with_error_info("ANY", "machinebroker.dev", metadata);
    if let Some(after) = retry_after {
        details.set_retry_info(Some(after));
    }
    Status::with_error_details(code, message, details)
}

fn not_sent() -> HashMap<String, String> {
    HashMap::from([("delivery".to_owned(), "NOT_SENT".to_owned())])
}

fn told(status: &Status) -> String {
    create(status).to_string()
}

#[test]
fn not_sent_is_safe_to_retry() {
    let after = Some(Duration::from_millis(1500));
    let status = status(Code::ResourceExhausted, "the queue is full", "NOT_SENT", after);
    let expected = "\
error: the queue is full
  operation op-7, driver sim-0
  nothing happened, it is safe to retry: run the same command again after 2s";
    assert_eq!(told(&status), expected);
    assert_eq!(create(&status).exit(), Exit::NotNow);
}

#[test]
fn who_did_not_wait_for_a_driver_learns_how() {
    let info = |reason| ErrorDetails::with_error_info(reason, "machinebroker.dev", not_sent());
    let status = |reason| Status::with_error_details(Code::Unavailable, "no", info(reason));
    let hint = "\n  with --wait it waits until a driver is there";
    assert!(told(&status("NO_DRIVER")).ends_with(hint));
    // Waiting for a driver does not help where the broker itself is going.
    assert!(!told(&status("BROKER_STOPPING")).contains("--wait"));

    let waited = Asked { of: &address(), change: Some(Change::Create), waited: true };
    assert!(!Failure::of(&status("NO_DRIVER"), waited).to_string().contains("--wait"));
}

#[test]
fn a_sent_operation_has_an_unknown_outcome() {
    let status = status(Code::Unknown, "the driver left", "SENT", None);
    let expected = "\
error: the driver left
  operation op-7, driver sim-0
  outcome unknown: it may have happened, or may still happen
  run the same command again to learn it";
    assert_eq!(told(&status), expected);
    assert_eq!(create(&status).exit(), Exit::OutcomeUnknown);
}

#[test]
fn an_accepted_operation_has_an_unknown_outcome_whatever_the_code() {
    for code in (0..=16).map(Code::from_i32).filter(|code| *code != Code::Ok) {
        let failure = create(&status(code, "gone", "ACCEPTED", None));
        assert_eq!(failure.exit(), Exit::OutcomeUnknown, "{code:?}");
    }
}

#[test]
fn the_drivers_answer_is_definite() {
    let after = Some(Duration::from_secs(60));
    let status = status(Code::ResourceExhausted, "quota used up", "ANSWERED", after);
    let expected = "\
error: quota used up
  operation op-7, driver sim-0
  this is the driver's answer: run the same command again after 60s";
    assert_eq!(told(&status), expected);
    assert_eq!(create(&status).exit(), Exit::Failed);
}

#[test]
fn exit_codes_follow_code_and_delivery() {
    use Exit::{Failed, NotFound, NotNow};
    for (code, delivery, expected) in [
        (Code::NotFound, "ANSWERED", NotFound),
        (Code::NotFound, "NOT_SENT", NotFound),
        (Code::InvalidArgument, "NOT_SENT", Failed),
        (Code::PermissionDenied, "NOT_SENT", Failed),
        (Code::FailedPrecondition, "NOT_SENT", Failed),
        (Code::Internal, "NOT_SENT", Failed),
        (Code::Unavailable, "NOT_SENT", NotNow),
        (Code::DeadlineExceeded, "NOT_SENT", NotNow),
        (Code::Aborted, "NOT_SENT", NotNow),
        (Code::Unavailable, "ANSWERED", Failed),
        (Code::DeadlineExceeded, "ANSWERED", Failed),
        (Code::Unavailable, "SOMETHING_NEW", Exit::OutcomeUnknown),
    ] {
        let failure = create(&status(code, "", delivery, None));
        assert_eq!(failure.exit(), expected, "{code:?} {delivery}");
    }
}

#[test]
fn a_broken_connection_leaves_a_change_unknown_and_a_question_harmless() {
    let status = Status::from_error(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)));
    let expected = "\
error: the connection to 127.0.0.1:5000 broke before the answer: connection reset
  outcome unknown: it may have happened, or may still happen
  run the same command again to learn it";
    assert_eq!(told(&status), expected);
    assert_eq!(create(&status).exit(), Exit::OutcomeUnknown);

    let expected = "\
error: the connection to 127.0.0.1:5000 broke before the answer: connection reset
  nothing was changed: run the same command again";
    assert_eq!(list(&status).to_string(), expected);
    assert_eq!(list(&status).exit(), Exit::NoBroker);
}

#[test]
fn time_that_ran_out_leaves_the_outcome_unknown_and_the_driver_cancelled() {
    let here = Status::cancelled("Timeout expired");
    let expected = "\
error: no answer from 127.0.0.1:5000 in time
  outcome unknown: it may have happened, or may still happen
  the driver is told to stop
  run the same command again to make sure that the machine exists, or delete it";
    assert_eq!(told(&here), expected);
    assert_eq!(create(&here).exit(), Exit::OutcomeUnknown);

    let at_the_broker = status(Code::DeadlineExceeded, "time is over", "ACCEPTED", None);
    let expected = "\
error: time is over
  operation op-7, driver sim-0
  outcome unknown: a driver was at work on it
  the driver is told to stop
  run the same command again to make sure that the machine exists, or delete it";
    assert_eq!(told(&at_the_broker), expected);
}

#[test]
fn who_leaves_learns_what_becomes_of_the_operation() {
    let failure = Failure::interrupted("deleting machine worker-0", Change::Delete);
    let expected = "\
error: interrupted while deleting machine worker-0
  the driver is told to stop
  run the same command again to make sure that the machine is gone";
    assert_eq!(failure.to_string(), expected);
    assert_eq!(failure.exit(), Exit::OutcomeUnknown);
}

#[test]
fn a_stranger_that_speaks_grpc_is_recognised() {
    let expected = "\
error: Operation is not implemented or not supported
  should it persist: is 127.0.0.1:5000 the --listen address of a machine-broker?";
    assert_eq!(told(&Status::unimplemented("")), expected);
}

#[test]
fn a_server_of_something_else_is_told_from_a_broken_connection() {
    let missing =
        |status: u16| format!("grpc-status header missing, mapped from HTTP status code {status}");
    let expected = "\
error: 127.0.0.1:5000 answers, but is no machine-broker
  is it the --admin address? Set --broker or BROKER_ADDRESS to where drivers connect, the --listen address";
    let http = create(&Status::unimplemented(missing(404)));
    assert_eq!((http.to_string().as_str(), http.exit()), (expected, Exit::NoBroker));
    let garbled = io::Error::other("connection error detected: frame with invalid size");
    let garbled = create(&Status::from_error(Box::new(garbled)));
    assert_eq!((garbled.to_string().as_str(), garbled.exit()), (expected, Exit::NoBroker));

    // A proxy whose broker went away: there was one.
    let proxy = create(&Status::unavailable(missing(502)));
    assert_eq!(proxy.exit(), Exit::OutcomeUnknown);
}

#[test]
fn a_machine_to_be_initialized_exists() {
    let metadata = HashMap::from([
        ("delivery".to_owned(), "ANSWERED".to_owned()),
        ("provider_id".to_owned(), "sim:///1".to_owned()),
    ]);
    let details = ErrorDetails::with_error_info("UNINITIALIZED", "machinebroker.dev", metadata);
    let expected = "\
error: disks are missing
  provider id sim:///1
  the machine exists: complete it with `brokerctl machines initialize`";
    let status = Status::with_error_details(Code::Unknown, "disks are missing", details);
    assert_eq!(told(&status), expected);
    assert_eq!(create(&status).exit(), Exit::Failed);
}

#[test]
fn a_message_cannot_steer_the_terminal() {
    let status = status(Code::Internal, "first\n\x1b[2Jsecond", "NOT_SENT", None);
    assert!(told(&status).starts_with("error: first\n  \\u{1b}[2Jsecond\n"));
}

#[test]
fn no_broker_says_how_to_get_one() {
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    let failure = Failure::no_broker(&address(), &refused);
    let expected = "\
error: no broker answers at 127.0.0.1:5000: connection refused
  start one with `machine-broker dev`, or set --broker, BROKER_ADDRESS or --context";
    assert_eq!(failure.to_string(), expected);
    assert_eq!(failure.exit(), Exit::NoBroker);
}

#[test]
fn an_evicted_driver_is_looked_for_before_a_second_try() {
    let asked = Asked { of: &address(), change: Some(Change::Evict), waited: false };
    let expected = "\
error: no answer from 127.0.0.1:5000 in time
  outcome unknown: it may have happened, or may still happen
  see with `brokerctl drivers` whether it is still there";
    assert_eq!(Failure::of(&Status::cancelled("Timeout expired"), asked).to_string(), expected);
}

#[test]
fn who_may_not_learns_what_to_do() {
    let told = list(&Status::unauthenticated("who are you?")).to_string();
    assert!(told.starts_with("error: who are you?\n  have a token sent: "), "{told}");
    let told = list(&Status::permission_denied("operators only")).to_string();
    assert!(told.starts_with("error: operators only\n  the broker's policy "), "{told}");
}
