//! How operators look closer, and steer.

use std::time::Duration;

use broker::registry::Policy;
use broker_proto::v1::{
    self, DriverState, broker_side::Control, driver_event, operation_event,
    registry_client::RegistryClient,
};
use broker_tests::{CLASS, Driver, KIND, TestBroker, delivery, hello, machine};
use tonic::{Code, Status, Streaming, transport::Channel};

async fn registry(broker: &TestBroker) -> RegistryClient<Channel> {
    RegistryClient::new(broker.channel().await)
}

async fn details(broker: &TestBroker, name: &str) -> Result<v1::DriverDetails, Status> {
    let request = v1::GetDriverRequest { driver: name.to_owned(), history: None };
    registry(broker).await.get_driver(request).await.map(tonic::Response::into_inner)
}

async fn history(broker: &TestBroker, name: &str) -> Vec<(String, String)> {
    let details = details(broker, name).await.expect("the driver is there");
    details.history.into_iter().map(|entry| (entry.what, entry.details)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_found_by_its_session_a_unique_beginning_of_it_or_its_instance() {
    let broker = TestBroker::start();
    let (first, second) = (broker.driver("first").await, broker.driver("second").await);
    let session = broker.drivers().await[0].session_id.clone();

    for name in [session.as_str(), &session[..12], "first"] {
        let found = details(&broker, name).await.unwrap().driver.unwrap();
        assert_eq!(found.instance_id, "first", "{name}");
    }
    assert_eq!(details(&broker, "third").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(details(&broker, "").await.unwrap_err().code(), Code::NotFound);
    first.vanish();
    second.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_has_gone_is_described_by_all_its_names_with_what_it_left() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let session = driver.session.clone();
    let create = broker.controller().await.creating("w");
    driver.take().await;
    driver.vanish();
    create.error().await;
    broker.until_drivers(0).await;

    for name in [session.as_str(), &session[..12], "a"] {
        let details = details(&broker, name).await.unwrap();
        let gone = details.driver.unwrap();
        assert_eq!((gone.session_id.as_str(), gone.state()), (&*session, DriverState::Gone));
        assert_eq!(gone.state_reason, "the driver left");
        assert!(gone.gone_at.is_some());
        assert_eq!((gone.in_flight, gone.queued), (0, 0));
        assert_eq!(details.history[0].what, "over");
        let [lost] = details.operations.as_slice() else { panic!("{:?}", details.operations) };
        assert_eq!((lost.machine_name.as_str(), lost.outcome.as_str()), ("w", "LOST"));
        assert_eq!(lost.message, "its session is over: the driver left");
    }
    let mut registry = registry(&broker).await;
    let state = DriverState::Gone.into();
    let request = v1::ListDriversRequest { kind: KIND.to_owned(), state };
    let listed = registry.list_drivers(request).await.unwrap().into_inner().drivers;
    assert_eq!(listed.iter().map(|d| d.session_id.as_str()).collect::<Vec<_>>(), [&*session]);
    let request = v1::DrainDriverRequest { driver: "a".to_owned(), ..Default::default() };
    let error = registry.drain_driver(request).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("is gone since"), "{error}");

    // Whoever is connected goes before whoever was.
    let back = broker.driver("a").await;
    let found = details(&broker, "a").await.unwrap();
    let again = found.driver.unwrap();
    assert_eq!((again.session_id.as_str(), again.state()), (&*back.session, DriverState::Ready));
    assert_eq!(found.history.len(), 3, "of both sessions");
    let request = v1::GetDriverRequest { driver: "a".to_owned(), history: Some(1) };
    let short = registry.get_driver(request).await.unwrap().into_inner();
    assert_eq!((short.history.len(), short.history_more), (1, 2));
    back.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_was_never_let_in_is_known_by_why() {
    let broker = TestBroker::seated(Policy::Exclusive);
    let first = broker.driver("first").await;
    Driver::rejected(broker.channel().await, hello("second")).await;
    let error = details(&broker, "second").await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("was not let in at"), "{error}");
    first.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_fits_several_drivers_names_them() {
    let broker = TestBroker::start();
    let drivers: Vec<Driver> = {
        let mut drivers = Vec::new();
        // More than sixteen: two of them begin with the same digit.
        for number in 0..17 {
            drivers.push(broker.driver(&format!("driver {number}")).await);
        }
        drivers
    };
    let sessions: Vec<String> =
        broker.drivers().await.into_iter().map(|driver| driver.session_id).collect();
    let twice = |digit: &char| sessions.iter().filter(|id| id.starts_with(*digit)).count() > 1;
    let digit = "0123456789abcdef".chars().find(twice).expect("a drawer with two");

    let error = details(&broker, &digit.to_string()).await.unwrap_err();

    assert_eq!(error.code(), Code::FailedPrecondition);
    for session in sessions.iter().filter(|id| id.starts_with(digit)) {
        assert!(error.message().contains(session), "{error}");
    }
    drop(drivers);
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_ping_goes_through_the_work_stream() {
    let broker = TestBroker::start();
    let driver = broker.driver("a").await;
    let old = broker.historic().await;
    let ping = |name: &str| v1::PingDriverRequest { driver: name.to_owned() };
    let mut registry = registry(&broker).await;

    let answered = registry.ping_driver(ping("a")).await.unwrap().into_inner();
    assert!(answered.round_trip.is_some());

    driver.fall_silent();
    let error = registry.ping_driver(ping("a")).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);

    assert_eq!(broker_tests::reason(&error), "DRIVER_SILENT");
    assert_eq!(error.message(), "the driver did not answer within 5.0 s");
    // Who waits for less hears of the driver, too, and not from its own clock.
    let mut hurried = tonic::Request::new(ping("a"));
    hurried.set_timeout(Duration::from_secs(2));
    let error = registry.ping_driver(hurried).await.unwrap_err();
    assert_eq!(error.message(), "the driver did not answer within 1.9 s");

    let historic = broker.drivers().await.into_iter().find(|driver| driver.protocol == 0).unwrap();
    let error = registry.ping_driver(ping(&historic.session_id)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    driver.vanish();
    old.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_drained_driver_is_told_why_finishes_and_gets_nothing_new() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let create = controller.creating("w");
    let operation = driver.take().await;

    let request =
        v1::DrainDriverRequest { driver: "a".to_owned(), reason: "new kernel".to_owned() };
    registry(&broker).await.drain_driver(request).await.unwrap();

    let (_, Control::Drain(drain)) = driver.next_control().await else { panic!("not told") };
    assert_eq!(drain.reason, "new kernel");
    assert_eq!(broker.drivers().await[0].state(), DriverState::Draining);
    assert_eq!(controller.create("x").await.unwrap_err().code(), Code::Unavailable);
    driver.answer(&operation, machine("id"));
    create.answer().await.unwrap();
    let noted = ("asked to leave".to_owned(), "new kernel".to_owned());
    assert!(history(&broker, "a").await.contains(&noted));
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_evicted_driver_is_told_why_and_its_callers_what_is_known() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let create = broker.controller().await.creating("w");
    driver.take().await;
    broker.until_running(1).await;

    let request = v1::EvictDriverRequest { driver: "a".to_owned(), reason: "hangs".to_owned() };
    registry(&broker).await.evict_driver(request).await.unwrap();

    let error = create.error().await;
    assert_eq!((error.code(), delivery(&error).as_str()), (Code::Unknown, "ACCEPTED"));
    let told = driver.end().await.unwrap_err();
    assert!(told.message().contains("hangs"), "{told}");

    let back = broker.driver("a").await;
    let events: Vec<String> = history(&broker, "a").await.into_iter().map(|e| e.0).collect();
    assert_eq!(events, ["registered", "over", "registered"], "newest first, over sessions");
    back.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_drivers_record_tells_how_it_does() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    for (name, result) in [
        ("w-0", machine("id")),
        ("w-1", broker_tests::failed(Code::Internal, "a bug")),
        ("w-2", broker_tests::failed(Code::ResourceExhausted, "no quota")),
    ] {
        let create = controller.creating(name);
        let operation = driver.take().await;
        driver.answer(&operation, result);
        create.answer().await.ok();
    }
    let listed = broker.drivers().await.remove(0);
    assert_eq!((listed.succeeded, listed.failed), (1, 2));
    assert!((listed.error_rate - 1.0 / 3.0).abs() < 1e-9, "no quota is not its fault");
    assert_eq!(listed.last_error, "RESOURCE_EXHAUSTED: no quota");
    driver.vanish();
    broker.at_rest().await;
}

struct Watch(Streaming<v1::DriverEvent>, String);

impl Watch {
    async fn start(broker: &TestBroker, resume_token: &str) -> Self {
        let resume_token = resume_token.to_owned();
        let request = v1::WatchDriversRequest { kind: String::new(), resume_token };
        let events = registry(broker).await.watch_drivers(request).await.expect("it is watched");
        Self(events.into_inner(), String::new())
    }

    async fn next(&mut self) -> String {
        let event = self.0.message().await.expect("the stream stands").expect("an event");
        self.1 = event.resume_token;
        match event.event.expect("every event is one") {
            driver_event::Event::Reset(_) => "reset".to_owned(),
            driver_event::Event::Changed(driver) => {
                format!("{} {}", driver.instance_id, driver.state().as_str_name())
            }
            driver_event::Event::Removed(_) => "removed".to_owned(),
            driver_event::Event::Synced(_) => "synced".to_owned(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_watches_drivers_is_told_what_there_is_and_then_what_changes() {
    let broker = TestBroker::start();
    let a = broker.driver("a").await;
    let mut watch = Watch::start(&broker, "").await;
    assert_eq!(watch.next().await, "reset");
    assert_eq!(watch.next().await, "a DRIVER_STATE_READY");
    assert_eq!(watch.next().await, "synced");
    a.fall_silent();
    assert_eq!(watch.next().await, "a DRIVER_STATE_SUSPECT");
    let token = watch.1.clone();
    drop(watch);

    a.vanish();
    let b = broker.driver("b").await;
    broker.until_drivers(1).await;
    let mut watch = Watch::start(&broker, &token).await;
    assert_eq!(watch.next().await, "b DRIVER_STATE_READY", "no reset: it goes on where it was");
    assert_eq!(watch.next().await, "removed");

    let mut late = Watch::start(&broker, "another broker's").await;
    assert_eq!(late.next().await, "reset");
    b.vanish();
    drop((watch, late));
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn who_watches_operations_sees_one_come_and_end() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let request = v1::WatchOperationsRequest::default();
    let mut events = registry(&broker).await.watch_operations(request).await.unwrap().into_inner();
    let mut next = async || loop {
        let event = events.message().await.unwrap().unwrap().event.unwrap();
        if let operation_event::Event::Changed(operation) = event {
            return operation;
        }
    };
    let create = broker.controller().await.creating("w");
    let operation = driver.next_operation().await;
    let seen = next().await;
    assert_eq!((seen.machine_name.as_str(), seen.finished), ("w", false));

    let stuck = next().await;
    assert_eq!(stuck.stuck, "not accepted", "after five seconds");
    driver.accept(&operation);
    driver.answer(&operation, machine("id"));
    create.answer().await.unwrap();
    let mut ended = next().await;
    while !ended.finished {
        ended = next().await;
    }
    assert_eq!(ended.outcome, "OK");
    drop(events);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn machines_that_wait_for_a_driver_that_is_away_are_a_concern() {
    let broker = TestBroker::start();
    let mut lost = broker.driver("lost").await;
    let other = broker.driver("other").await;
    let controller = broker.controller().await;
    // Until one of them goes to the driver that will be lost.
    let mut creates = Vec::new();
    for number in 0..32 {
        creates.push(controller.creating(&format!("w-{number}")));
    }
    lost.take().await;
    lost.vanish();
    broker.until_drivers(1).await;

    let request = v1::GetBrokerStatusRequest {};
    let status = registry(&broker).await.get_broker_status(request).await.unwrap().into_inner();

    let waits = |concern: &v1::Concern| concern.what.contains("for driver instance lost");
    assert!(status.concerns.iter().any(waits), "{:?}", status.concerns);
    drop(creates);
    other.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_has_used_up_most_of_its_time_deserves_a_look() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let create = broker.controller().await.creating("w");
    let operation = driver.take().await;
    let stuck = async || broker.until_running(1).await.remove(0).stuck;
    tokio::time::sleep(Duration::from_secs(9 * 60)).await;
    assert_eq!(stuck().await, "");
    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    assert!(stuck().await.contains("more than half of its time"));
    driver.answer(&operation, machine("id"));
    create.answer().await.unwrap();
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn classes_are_listed_with_who_serves_them() {
    let broker = TestBroker::start();
    let list = async || {
        let request = v1::ListClassesRequest { kind: KIND.to_owned() };
        let listed = registry(&broker).await.list_classes(request).await.unwrap().into_inner();
        listed
            .classes
            .into_iter()
            .find(|class| class.class.as_ref().unwrap().name == CLASS)
            .unwrap()
    };
    assert_eq!(list().await.served_by, Vec::<String>::new());
    let driver = broker.driver("a").await;
    let class = list().await;
    assert_eq!(class.served_by, ["a"]);
    assert!(class.revision > 0 && class.secret_revision > 0);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_status_says_what_is_wrong_and_what_to_do() {
    let broker = TestBroker::start();
    let status = async || {
        let request = v1::GetBrokerStatusRequest {};
        registry(&broker).await.get_broker_status(request).await.unwrap().into_inner()
    };
    let alone = status().await;
    assert!(alone.ready);
    assert!(alone.concerns[0].what.contains(KIND), "{:?}", alone.concerns);
    assert!(!alone.concerns[0].advice.is_empty());

    let driver = broker.driver_with(hello("a")).await;
    let well = status().await;
    assert_eq!((well.concerns.len(), well.drivers_ready), (0, 1), "{:?}", well.concerns);

    driver.fall_silent();
    tokio::time::sleep(Duration::from_secs(13)).await;
    let unwell = status().await;
    assert_eq!(unwell.drivers_suspect, 1);
    assert!(unwell.concerns[0].what.contains("suspect"), "{:?}", unwell.concerns);
    driver.vanish();
    broker.at_rest().await;
}
