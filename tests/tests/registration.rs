//! Drivers that come: who is let in, who is turned away and how, and when they are listed.

use std::time::Duration;

use broker_proto::v1::{
    Accepted, Driver as Listed, DriverState, ListResponse, Pong, Registration, Resumed,
    driver_side::Response, reject::Reason,
};
use broker_tests::{API_VERSION, Driver, Hello, KIND, Service, TestBroker, hello, kind};
use tokio::time::Instant;
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn a_native_driver_is_welcomed_and_listed_with_all_it_said() {
    let broker = TestBroker::start();
    let driver = broker.driver("a").await;
    assert_eq!(driver.token.len(), 32, "128 bits");
    let listed = broker.drivers().await;
    let [listed] = listed.as_slice() else { panic!("one driver, not {listed:?}") };
    assert!(listed.address.starts_with("memory:"));
    assert!(listed.connected_at.is_some() && listed.last_heard.is_some());
    let expected = Listed {
        session_id: driver.session.clone(),
        name: "test".to_owned(),
        kinds: vec![kind(API_VERSION, KIND)],
        instance_id: "a".to_owned(),
        boot_id: "first".to_owned(),
        driver_version: "1.2.3".to_owned(),
        protocol: 1,
        state: DriverState::Ready.into(),
        capacity: 4,
        verbs: hello("a").verbs,
        identity: "anonymous".to_owned(),
        address: listed.address.clone(),
        connected_at: listed.connected_at,
        last_heard: listed.last_heard,
        round_trip: listed.round_trip,
        ..Default::default()
    };
    assert_eq!(*listed, expected);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_is_listed_under_each_name_of_the_service() {
    let broker = TestBroker::start();
    for service in [Service::Infra, Service::Servicegrpc, Service::Today] {
        let channel = broker.channel().await;
        let driver =
            Driver::historic(channel, service, "AWSMachineClass", "machine.sapcloud.io").await;
        let listed = broker.until_drivers(1).await.remove(0);
        assert_eq!(listed.kinds, [kind("machine.sapcloud.io/v1alpha1", "AWSMachineClass")]);
        assert_eq!((listed.protocol, listed.capacity), (0, 1));
        assert_eq!(listed.name, "externalDriver");
        assert_eq!(listed.instance_id, format!("externalDriver@{}", listed.address));
        assert_eq!(listed.verbs, ["create", "delete", "list"]);
        driver.unregister().await.expect("the stream ends in good order");
        broker.until_drivers(0).await;
    }
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_without_a_group_serves_the_core_group() {
    let broker = TestBroker::start();
    let driver = Driver::historic(broker.channel().await, Service::Infra, "Thing", "").await;
    assert_eq!(broker.until_drivers(1).await[0].kinds, [kind("v1alpha1", "Thing")]);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn one_stream_serves_several_kinds_and_the_historic_fields_count_too() {
    let broker = TestBroker::start();
    let driver = Driver::dial(broker.channel().await, Service::Today).await;
    let both = vec![kind(API_VERSION, KIND), kind("b.dev/v1", "B"), kind("b.dev/v1", "B")];
    let registration = Registration {
        group: "c.dev".to_owned(),
        kind: "C".to_owned(),
        version: "v2".to_owned(),
        hello: Some(Hello { kinds: both, ..hello("a") }),
        ..Default::default()
    };
    driver.say(1, "register", Response::Registration(registration));
    let listed = broker.until_drivers(1).await.remove(0);
    assert_eq!(
        listed.kinds,
        [kind("b.dev/v1", "B"), kind("c.dev/v2", "C"), kind(API_VERSION, KIND)],
        "each once"
    );
    for name in ["B", "C", KIND] {
        assert_eq!(broker.drivers_of(name).await.len(), 1, "{name}");
    }
    assert_eq!(broker.drivers_of("D").await, []);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_may_speak_before_it_is_spoken_to_and_with_any_id() {
    let broker = TestBroker::start();
    let mut driver = Driver::dial(broker.channel().await, Service::Today).await;
    let registration = Registration { hello: Some(hello("a")), ..Default::default() };
    driver.say(0, "", Response::Registration(registration));
    let frame = driver.next_frame().await.unwrap();
    assert_eq!(frame.operation_type, "welcome");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_a_hello_is_closed_after_five_seconds_and_disturbs_nobody() {
    let broker = TestBroker::start();
    let mut silent = Driver::dial(broker.channel().await, Service::Today).await;
    let working = broker.driver("working").await.serve();
    let controller = broker.controller().await;
    let dialled = Instant::now();

    let status = silent.end().await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(dialled.elapsed().as_secs(), 5);
    controller.create("w").await.expect("others work on");
    assert_eq!(broker.drivers().await.len(), 1, "it never was listed");
    working.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_first_message_that_is_no_registration_ends_the_stream_at_once() {
    let broker = TestBroker::start();
    let working = broker.driver("working").await.serve();
    let began = Instant::now();
    for wrong in [
        Some(Response::Accepted(Accepted {})),
        Some(Response::Pong(Pong::default())),
        Some(Response::List(ListResponse::default())),
        Some(Response::Resumed(Resumed::default())),
        Some(Response::Registration(Registration::default())),
        None,
    ] {
        let mut driver = Driver::dial(broker.channel().await, Service::Infra).await;
        match wrong.clone() {
            Some(wrong) => driver.say(1, "register", wrong),
            None => driver.say_nothing(1, "register"),
        }
        // A driver that is not native gets no frame that it does not know.
        assert_eq!(driver.end().await.unwrap_err().code(), Code::InvalidArgument, "{wrong:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    broker.controller().await.create("w").await.expect("others work on");
    working.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_hello_is_rejected_for_good_and_told_what_is_wrong() {
    let broker = TestBroker::start();
    let with_kind = |api_version: &str, name: &str| Hello {
        kinds: vec![kind(api_version, name)],
        ..hello("a")
    };
    let many = (0..65).map(|n| kind(API_VERSION, &format!("K{n}"))).collect();
    let long = "x".repeat(254);
    for (says, wrong) in [
        ("kind", with_kind(API_VERSION, "")),
        ("kind", with_kind(API_VERSION, "../Kind")),
        ("kind", with_kind(API_VERSION, &long)),
        ("apiVersion", with_kind("", KIND)),
        ("apiVersion", with_kind("a/b/c", KIND)),
        ("apiVersion", with_kind("/v1", KIND)),
        ("names no kind", Hello { kinds: vec![], ..hello("a") }),
        ("more than 64 kinds", Hello { kinds: many, ..hello("a") }),
        ("instance id", hello("")),
        ("instance id", hello(&long)),
        ("instance id", hello("a\nb")),
        ("boot id", Hello { boot_id: String::new(), ..hello("a") }),
        ("boot id", Hello { boot_id: long.clone(), ..hello("a") }),
        ("version", Hello { driver_version: long.clone(), ..hello("a") }),
    ] {
        let (reject, status) = Driver::rejected(broker.channel().await, wrong).await;
        assert_eq!(reject.reason(), Reason::Invalid, "{says}: {reject:?}");
        assert!(!reject.retryable && reject.retry_after.is_none(), "{says}: {reject:?}");
        assert!(reject.message.contains(says), "{says}: {}", reject.message);
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, &*reject.message));
    }
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn protocol_versions_are_negotiated_or_the_driver_is_told_which_would_do() {
    let broker = TestBroker::start();
    let speaking = |protocol_min, protocol_max| Hello { protocol_min, protocol_max, ..hello("a") };
    for (min, max) in [(1, 1), (0, 1), (1, 99)] {
        let driver = broker.driver_with(speaking(min, max)).await;
        assert_eq!(broker.drivers().await[0].protocol, 1);
        driver.vanish();
        broker.until_drivers(0).await;
    }
    for (min, max) in [(2, 3), (0, 0), (2, 1)] {
        let (reject, _) = Driver::rejected(broker.channel().await, speaking(min, max)).await;
        assert_eq!(reject.reason(), Reason::Protocol);
        assert!(!reject.retryable);
        assert!(reject.message.contains("this broker speaks 1"), "{}", reject.message);
    }
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn frames_that_make_no_sense_after_the_hello_are_ignored() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let again = Registration { hello: Some(hello("b")), ..Default::default() };
    driver.say(1, "register", Response::Registration(again));
    driver.say(99, "create", Response::Accepted(Accepted {}));
    driver.say(99, "create", Response::Result(Default::default()));
    driver.say(99, "list", Response::List(ListResponse::default()));
    driver.say(0, "resumed", Response::Resumed(Resumed::default()));
    driver.say_nothing(0, "");
    driver.say_nothing(i32::MIN, "nonsense of the future");
    let create = controller.creating("w");
    driver.serve_one().await;
    create.answer().await.expect("the session goes on");
    let listed = broker.drivers().await;
    assert_eq!((listed.len(), listed[0].instance_id.as_str()), (1, "a"));
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_bearer_token_that_nobody_issued_is_not_let_in() {
    let broker = TestBroker::start();
    for wrong in ["Bearer 0123456789abcdef0123456789abcdef", "Bearer ", "Basic Zm9vOmJhcg=="] {
        let channel = broker.channel().await;
        let denied = Driver::try_dial(channel, Service::Today, Some(wrong)).await;
        let status = denied.err().unwrap_or_else(|| panic!("{wrong:?} was let in"));
        assert_eq!(status.code(), Code::Unauthenticated, "{wrong:?}");
        assert!(!status.message().contains("0123"), "a credential is not repeated");
    }
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_too_large_ends_its_stream_with_a_reason_and_no_other() {
    let broker = TestBroker::start();
    let mut large = broker.driver("large").await;
    let working = broker.driver("working").await.serve();
    large.say_nothing(7, &"x".repeat(broker::grpc::MAX_FRAME));
    let status = large.end().await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    broker.until_drivers(1).await;
    broker.controller().await.create("w").await.expect("others work on");

    let mut unregistered = Driver::dial(broker.channel().await, Service::Today).await;
    unregistered.say_nothing(1, &"x".repeat(broker::grpc::MAX_FRAME));
    assert_eq!(unregistered.end().await.unwrap_err().code(), Code::OutOfRange);
    working.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_listed_until_it_vanishes_unregisters_or_closes_its_side() {
    let broker = TestBroker::start();
    broker.driver("a").await.vanish();
    broker.until_drivers(0).await;
    broker.driver("a").await.unregister().await.expect("a good end");
    broker.until_drivers(0).await;
    broker.driver("a").await.half_close().await.expect("a good end");
    broker.until_drivers(0).await;
    broker.historic().await.half_close().await.expect("a good end");
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_drivers_come_and_go() {
    let broker = TestBroker::start();
    let mut drivers = Vec::new();
    for n in 0..300 {
        let kinds = vec![kind(API_VERSION, &format!("Kind{}", n % 30))];
        drivers.push(broker.driver_with(Hello { kinds, ..hello(&format!("d-{n}")) }).await);
    }
    assert_eq!(broker.drivers_of("Kind7").await.len(), 10);
    drivers.truncate(150);
    broker.until_drivers(150).await;
    drop(drivers);
    broker.at_rest().await;
}
