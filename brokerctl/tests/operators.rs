//! What operators see of drivers, operations and classes, and how they steer drivers.

// Each test file uses its own part of the fake.
#[expect(dead_code, reason = "other test files use the rest")]
mod fake;

use broker_proto::v1::{
    BrokerStatus, ClassRef, Concern, DrainDriverRequest, Driver, DriverDetails, DriverEvent,
    DriverState, EvictDriverRequest, GetDriverRequest, ListClassesResponse, ListDriversRequest,
    ListDriversResponse, ListOperationsRequest, ListOperationsResponse, ListedClass, Operation,
    OperationEvent, PingDriverResponse, Reset, SetLogFilterRequest, Synced, WatchDriversRequest,
    driver_event, operation_event,
};
use brokerctl::Exit;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

use fake::{Asked, FakeBroker, run_with};

fn driver(session: &str, state: DriverState) -> Driver {
    Driver {
        session_id: session.into(),
        instance_id: "sim-0".into(),
        state: state.into(),
        ..Driver::default()
    }
}

fn event(token: &str, event: driver_event::Event) -> Result<DriverEvent, Status> {
    Ok(DriverEvent { event: Some(event), resume_token: token.into() })
}

/// The words of each line that watching prints, but for its time.
fn words(line: &str) -> (Option<&str>, Option<&str>, bool) {
    let mut words = line.split_whitespace().skip(1);
    (words.next(), words.next(), line.contains("Suspect"))
}

#[tokio::test]
async fn a_watch_goes_on_where_it_broke() {
    use driver_event::Event::{Changed, Removed, Synced as AllSent};
    let broker = FakeBroker::start().await;
    broker.will_show_drivers(vec![
        event("1", driver_event::Event::Reset(Reset {})),
        event("2", Changed(driver("aaaa", DriverState::Ready))),
        event("3", AllSent(Synced {})),
        event("4", Changed(driver("aaaa", DriverState::Suspect))),
        // Nothing that one would see.
        event("5", Changed(driver("aaaa", DriverState::Suspect))),
        Err(Status::unavailable("going down")),
    ]);
    broker.will_show_drivers(vec![
        event("6", Changed(driver("bbbb", DriverState::Ready))),
        event("7", Removed("aaaa".into())),
    ]);
    let seen = broker.run("drivers --kind K -w").await;

    let lines: Vec<_> = seen.out.lines().skip(1).map(words).collect();
    let expected = [
        (Some("ADDED"), Some("aaaa"), false),
        (Some("CHANGED"), Some("aaaa"), true),
        (Some("ADDED"), Some("bbbb"), false),
        (Some("REMOVED"), Some("aaaa"), true),
    ];
    assert_eq!(lines, expected, "{seen:?}");
    let watch = |token: &str| {
        Asked::WatchDrivers(WatchDriversRequest { kind: "K".into(), resume_token: token.into() })
    };
    assert_eq!(broker.asked(), [watch(""), watch("5"), watch("7")]);
    let (lost, rest) = seen.remarks.split_once('\n').expect("remarks");
    assert!(lost.starts_with("connection lost, retrying: "), "{seen:?}");
    let again = format!("connected to {} again\nconnection lost, retrying: ", broker.address());
    assert!(rest.starts_with(&again), "{seen:?}");
    // What will not be better in a moment ends it.
    assert!(rest.contains("\nerror: the script is over\n"), "{seen:?}");
    assert_eq!(seen.exit, Exit::Failed);
}

#[tokio::test]
async fn after_a_reset_only_the_differences_are_shown() {
    use driver_event::Event::{Changed, Reset as Again, Synced as AllSent};
    let broker = FakeBroker::start().await;
    broker.will_show_drivers(vec![
        event("1", Changed(driver("aaaa", DriverState::Ready))),
        event("2", Changed(driver("bbbb", DriverState::Ready))),
        event("3", AllSent(Synced {})),
    ]);
    broker.will_show_drivers(vec![
        event("x1", Again(Reset {})),
        event("x2", Changed(driver("aaaa", DriverState::Ready))),
        event("x3", Changed(driver("cccc", DriverState::Ready))),
        event("x4", AllSent(Synced {})),
    ]);
    let seen = broker.run("drivers -w --no-headers").await;
    let lines: Vec<_> = seen.out.lines().map(|line| words(line).0.zip(words(line).1)).collect();
    let expected = [("ADDED", "aaaa"), ("ADDED", "bbbb"), ("REMOVED", "bbbb"), ("ADDED", "cccc")];
    assert_eq!(lines, expected.map(Some), "{seen:?}");
}

#[tokio::test]
async fn a_watch_is_data_too_and_ends_with_its_time() {
    use driver_event::Event::{Changed, Synced as AllSent};
    let broker = FakeBroker::start().await;
    let ready = event("1", Changed(driver("aaaa", DriverState::Ready)));
    let draining = event("3", Changed(driver("aaaa", DriverState::Draining)));
    let removed = event("4", driver_event::Event::Removed("aaaa".into()));
    broker.will_show_drivers(vec![ready, event("2", AllSent(Synced {})), draining, removed]);
    broker.keeps_watches_open();
    let seen = broker.run("drivers -w --state ready -o json --timeout 2s").await;
    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    let lines: Vec<_> = seen.out.lines().collect();
    // Whoever leaves the state is shown doing so, and no more.
    assert_eq!(lines.len(), 2, "{seen:?}");
    assert!(lines[0].contains(r#""type":"ADDED","object":{"sessionId":"aaaa""#), "{seen:?}");
    assert!(lines[1].contains(r#""type":"CHANGED""#) && lines[1].contains("Draining"), "{seen:?}");
}

#[tokio::test]
async fn operations_are_watched_to_their_end() {
    use operation_event::Event::{Changed, Synced as AllSent};
    let broker = FakeBroker::start().await;
    let operation = |id: &str, outcome: &str| Operation {
        operation_id: id.into(),
        finished: !outcome.is_empty(),
        outcome: outcome.into(),
        ..Operation::default()
    };
    let event = |event| Ok(OperationEvent { event: Some(event), resume_token: "t".into() });
    broker.will_show_operations(vec![
        event(Changed(operation("op-1", ""))),
        event(AllSent(Synced {})),
        event(Changed(operation("op-2", "OK"))),
        event(Changed(operation("op-1", "ABORTED"))),
    ]);
    let seen = broker.run("operations -w --no-headers").await;
    let ends: Vec<_> = seen
        .out
        .lines()
        .map(|line| (words(line).0, words(line).1, line.split_whitespace().last()))
        .collect();
    let expected = [
        (Some("ADDED"), Some("op-1"), Some("running")),
        (Some("FINISHED"), Some("op-2"), Some("OK")),
        (Some("FINISHED"), Some("op-1"), Some("ABORTED")),
    ];
    assert_eq!(ends, expected, "{seen:?}");
}

#[tokio::test]
async fn states_are_filtered_by_the_broker() {
    let broker = FakeBroker::start().await;
    let seen = broker.run("drivers --state suspect").await;
    let state = DriverState::Suspect.into();
    assert_eq!(broker.asked(), [Asked::Drivers(ListDriversRequest { kind: String::new(), state })]);
    assert_eq!(seen.remarks, format!("no driver at {} is suspect\n", broker.address()));
}

#[tokio::test]
async fn a_driver_is_described_by_any_name() {
    let broker = FakeBroker::start().await;
    let found = Driver { state_reason: "silent".into(), ..driver("aaaa", DriverState::Suspect) };
    broker.will_describe(Ok(DriverDetails { driver: Some(found), ..DriverDetails::default() }));
    let seen = broker.run("drivers describe aa --history 3").await;
    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    assert!(seen.out.contains("\nState:             Suspect: silent\n"), "{seen:?}");
    assert_eq!(
        broker.asked(),
        [Asked::Details(GetDriverRequest { driver: "aa".into(), history: Some(3) })]
    );
}

#[tokio::test]
async fn a_name_that_means_none_or_several_comes_with_advice() {
    let broker = FakeBroker::start().await;
    broker.will_describe(Err(Status::not_found("no driver is called x")));
    let seen = broker.run("drivers describe x").await;
    let expected = "\
error: no driver is called x
  `brokerctl drivers` shows who is connected, with --state gone who was lately
";
    assert_eq!((seen.exit, seen.remarks.as_str()), (Exit::NotFound, expected));

    broker.will_describe(Err(Status::failed_precondition("2 drivers are called x")));
    let seen = broker.run("drivers describe x").await;
    let expected = "\
error: 2 drivers are called x
  name one driver by more of its session id: `brokerctl drivers` shows them
";
    assert_eq!((seen.exit, seen.remarks.as_str()), (Exit::Failed, expected));
}

#[tokio::test]
async fn a_ping_tells_the_round_trip() {
    let broker = FakeBroker::start().await;
    let round_trip = Some(prost_types::Duration { seconds: 0, nanos: 2_000_000 });
    broker.will_pong(Ok(PingDriverResponse { session_id: "aaaa".into(), round_trip }));
    let seen = broker.run("drivers ping sim-0").await;
    assert_eq!(seen.out, "sim-0 (session aaaa) answered in 2.0ms\n");
    broker.will_pong(Err(Status::deadline_exceeded("")));
    assert_ne!(broker.run("drivers ping sim-0").await.exit, Exit::Ok);
}

#[tokio::test]
async fn a_ping_that_a_driver_does_not_answer_blames_the_driver() {
    let broker = FakeBroker::start().await;
    let silent = || {
        let details = ErrorDetails::with_error_info("DRIVER_SILENT", "machinebroker.dev", []);
        let message = "the driver did not answer within 1.9 s";
        Err(Status::with_error_details(tonic::Code::DeadlineExceeded, message, details))
    };
    broker.will_pong(silent());
    let seen = broker.run("drivers ping sim-0 --timeout 2s").await;
    let expected = "\
error: the driver did not answer within 1.9 s
  see `brokerctl drivers describe` for its state and history
";
    assert_eq!((seen.exit, seen.remarks.as_str()), (Exit::Failed, expected));
    broker.will_pong(silent());
    broker.will_pong(silent());
    let seen = broker.run("drivers ping sim-0 -c 2").await;
    let line = "sim-0 did not answer: the driver did not answer within 1.9 s\n";
    assert_eq!(seen.out, line.repeat(2));
}

#[tokio::test]
async fn a_drain_can_be_waited_for() {
    let broker = FakeBroker::start().await;
    broker.drivers(ListDriversResponse { drivers: vec![driver("aaaa", DriverState::Draining)] });
    let seen = broker.run("drivers drain sim-0 --reason upgrade --wait").await;
    assert_eq!(
        (seen.exit, seen.out.as_str()),
        (Exit::Ok, "driver sim-0 (aaaa) drained and left\n")
    );
    let request = DrainDriverRequest { driver: "sim-0".into(), reason: "upgrade".into() };
    let looked = Asked::Drivers(ListDriversRequest::default());
    assert_eq!(broker.asked(), [Asked::Drain(request), looked]);
}

fn evict(driver: &str) -> Asked {
    Asked::Evict(EvictDriverRequest { driver: driver.into(), reason: "hangs".into() })
}

fn asked_first() -> Asked {
    Asked::Details(GetDriverRequest { driver: "sim-0".into(), history: Some(0) })
}

#[tokio::test]
async fn evict_asks_and_then_evicts_the_session_it_asked_about() {
    let broker = FakeBroker::start().await;
    let line = format!("--broker {} drivers evict sim-0 --reason hangs", broker.address());
    let details = || DriverDetails {
        driver: Some(driver("aaaa", DriverState::Ready)),
        ..DriverDetails::default()
    };
    broker.drivers(ListDriversResponse { drivers: vec![driver("aaaa", DriverState::Ready)] });

    broker.will_describe(Ok(details()));
    let seen = run_with(&line, Some("\n")).await;
    assert_eq!((seen.exit, seen.out.as_str()), (Exit::Failed, ""));
    assert!(seen.remarks.ends_with("Evict it? [y/N] error: not confirmed: nothing was done\n"));
    assert_eq!(broker.asked(), [asked_first()]);

    broker.will_describe(Ok(details()));
    let seen = run_with(&line, Some("yes\n")).await;
    assert_eq!((seen.exit, seen.out.as_str()), (Exit::Ok, "driver sim-0 (aaaa) evicted\n"));
    assert_eq!(broker.asked()[1..], [asked_first(), evict("aaaa")]);
}

#[tokio::test]
async fn evict_does_not_ask_about_a_driver_that_has_gone() {
    let broker = FakeBroker::start().await;
    let gone = Driver {
        state_reason: "the driver left".into(),
        gone_at: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
        ..driver("aaaa", DriverState::Gone)
    };
    broker.will_describe(Ok(DriverDetails { driver: Some(gone), ..DriverDetails::default() }));
    let line = format!("--broker {} drivers evict sim-0 --reason hangs", broker.address());
    let seen = run_with(&line, Some("yes\n")).await;
    let expected = "\
error: driver sim-0 (aaaa) is gone already: the driver left
  `brokerctl drivers describe` tells what it did
";
    assert_eq!((seen.exit, seen.remarks.as_str()), (Exit::NotFound, expected));
    assert_eq!(broker.asked(), [asked_first()]);
}

#[tokio::test]
async fn evict_needs_a_yes_where_nobody_can_be_asked() {
    let broker = FakeBroker::start().await;
    broker.drivers(ListDriversResponse { drivers: vec![driver("aaaa", DriverState::Ready)] });
    let seen = broker.run("drivers evict sim-0 --reason hangs").await;
    assert_eq!(seen.exit, Exit::Usage);
    assert!(seen.remarks.contains("say --yes if you mean it"), "{seen:?}");
    assert_eq!(broker.asked(), []);

    let seen = broker.run("drivers evict sim-0 --reason hangs --yes").await;
    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    assert_eq!(broker.asked(), [evict("sim-0")]);
}

#[tokio::test]
async fn running_operations_alone_and_one_of_them() {
    let broker = FakeBroker::start().await;
    let operation = Operation { operation_id: "op-77".into(), ..Operation::default() };
    broker.operations(ListOperationsResponse { operations: vec![operation] });
    assert!(broker.run("operations --running").await.out.contains("op-77"));
    assert_eq!(broker.asked(), [Asked::Operations(ListOperationsRequest { finished: Some(0) })]);
    let seen = broker.run("operations describe op-7").await;
    assert!(seen.out.starts_with("Operation:         op-77\n"), "{seen:?}");
    assert_eq!(broker.run("operations describe op-8").await.exit, Exit::NotFound);
}

#[tokio::test]
async fn problems_of_the_catalog_are_remarks() {
    let broker = FakeBroker::start().await;
    let class = ClassRef { kind: "K".into(), name: "c".into(), ..ClassRef::default() };
    let classes = vec![ListedClass { class: Some(class), revision: 1, ..ListedClass::default() }];
    broker.classes(ListClassesResponse { classes, problems: vec!["a.yaml:3: no kind".into()] });
    let seen = broker.run("classes").await;
    assert_eq!((seen.exit, seen.remarks.as_str()), (Exit::Ok, "problem: a.yaml:3: no kind\n"));
    assert!(seen.out.ends_with("<none>   nobody\n"), "{seen:?}");
}

#[tokio::test]
async fn status_ends_with_one_when_there_are_concerns() {
    let broker = FakeBroker::start().await;
    broker.status(BrokerStatus { ready: true, ..BrokerStatus::default() });
    let seen = broker.run("status").await;
    assert_eq!(seen.exit, Exit::Ok);
    assert!(seen.out.starts_with("all is well.\n"), "{seen:?}");

    let concerns = vec![Concern { what: "it burns".into(), advice: "put it out".into() }];
    broker.status(BrokerStatus { ready: true, concerns, ..BrokerStatus::default() });
    let seen = broker.run("status").await;
    assert_eq!((seen.exit, seen.remarks.as_str()), (Exit::Failed, ""));
    assert!(seen.out.starts_with("1 concern:\n  1. it burns\n     put it out\n"), "{seen:?}");
}

#[tokio::test]
async fn top_wants_a_terminal() {
    let broker = FakeBroker::start().await;
    let seen = broker.run("top").await;
    assert_eq!(seen.exit, Exit::Usage);
    assert!(seen.remarks.starts_with("error: top is for a person at a terminal\n"), "{seen:?}");
}

#[tokio::test]
async fn what_is_logged_is_told_and_changed_for_a_while() {
    let broker = FakeBroker::start().await;
    assert_eq!(broker.run("log").await.out, "the broker logs info\n");
    let seen = broker.run("log debug --for 10m").await;
    assert_eq!(seen.out, "the broker logs debug, before info; in 10m again info\n");
    let lasts = Some(prost_types::Duration { seconds: 600, nanos: 0 });
    let asked =
        |filter: &str, lasts| Asked::Log(SetLogFilterRequest { filter: filter.to_owned(), lasts });
    assert_eq!(broker.asked(), [asked("", None), asked("debug", lasts)]);
}
