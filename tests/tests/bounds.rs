//! Nobody can take so much that nothing is left for others, and whoever is refused is told when to return.

use std::{fs, time::Duration};

use broker::{
    audit::{Audit, Rotation, Target},
    bounds::Limits,
    catalog::Static,
    server::Settings,
};
use broker_proto::v1::{
    ListDriversRequest, WatchDriversRequest, registry_client::RegistryClient, reject::Reason,
};
use broker_tests::{
    API_VERSION, Controller, Driver, KIND, Service, TestBroker, hello, process::PATIENCE, reason,
    retry_after,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tonic::Code;

const ONE: &str = "spiffe://test/one";
const OTHER: &str = "spiffe://test/other";
const OPERATOR: &str = "spiffe://test/operator";
const STRANGER: &str = "spiffe://test/stranger";
const POLICY: &str = "
rules:
- who: [spiffe://test/one, spiffe://test/other]
  driver: {kinds: [SimMachineClass]}
- who: [spiffe://test/operator, spiffe://test/other]
  operator: steer
- who: spiffe://test/controller
  controller: {kinds: [SimMachineClass], verbs: [create]}
";

struct Guarded {
    folder: TempDir,
    broker: TestBroker,
}

impl Guarded {
    fn start(limits: Limits) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Target::File(folder.path().join("audit.log"), Rotation::default());
        let audit = Audit::open(&log).expect("the folder is ours");
        let settings = Settings { audit, limits, ..broker_tests::settings(Static::sample()) };
        let broker = TestBroker::guarded_within(folder.path(), POLICY, settings);
        Self { folder, broker }
    }

    async fn driver(&self, who: &str, instance: &str) -> Driver {
        Driver::welcomed(self.broker.channel_of(who).await, hello(instance)).await
    }

    /// How it is told to come back later.
    async fn is_busy(&self, who: &str, instance: &str) -> String {
        let channel = self.broker.channel_of(who).await;
        let (reject, status) = Driver::rejected(channel, hello(instance)).await;
        assert_eq!(reject.reason(), Reason::Busy, "{reject:?}");
        assert!(reject.retryable);
        let after: Duration = reject.retry_after.expect("when").try_into().expect("a time");
        assert!(after >= Duration::from_secs(1), "{after:?}");
        assert_eq!(status.code(), Code::Unavailable);
        assert!(retry_after(&status).is_some(), "a driver of 2018 reads it here");
        reject.message
    }

    /// Of the audit log, so far.
    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("audit.log")).expect("a file");
        // The last one may be half written.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

fn metric(broker: &TestBroker, name: &str) -> u64 {
    let text = broker.broker.metrics().text();
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

#[tokio::test(start_paused = true)]
async fn streams_without_a_registration_are_few_and_do_not_last() {
    let limits = Limits { unregistered: 4, ..Limits::default() };
    let guarded = Guarded::start(limits);
    let channel = guarded.broker.channel_of(ONE).await;
    let dial = async || Driver::try_dial(channel.clone(), Service::Today, None).await;
    let mut silent = vec![dial().await.unwrap(), dial().await.unwrap()];
    let error = dial().await.err().expect("half of them is enough for one identity");
    assert_eq!((error.code(), reason(&error).as_str()), (Code::ResourceExhausted, "TOO_MANY"));
    assert!(error.message().contains(ONE), "{error}");
    assert!(retry_after(&error).is_some());

    let other = guarded.driver(OTHER, "other").await;
    let bound = "machine_broker_beyond_bounds_total{what=\"unregistered\",of=\"identity\"}";
    assert_eq!(metric(&guarded.broker, bound), 1);
    for driver in &mut silent {
        let end = driver.end().await.unwrap_err();
        assert_eq!(end.code(), Code::DeadlineExceeded);
    }
    guarded.driver(ONE, "one").await.vanish();
    other.vanish();
}

#[tokio::test(start_paused = true)]
async fn registrations_that_come_too_fast_are_rejected_and_others_are_not() {
    // Half of it, times the five of a burst, is for one.
    let guarded = Guarded::start(Limits { registration_rate: 4, ..Limits::default() });
    let mut rejected = None;
    let channel = guarded.broker.channel_of(ONE).await;
    for n in 0..100 {
        let mut driver = Driver::dial_with(channel.clone(), hello(&format!("one-{n}"))).await;
        let frame = driver.next_frame().await.expect("an answer");
        if frame.operation_type == "reject" {
            rejected = Some(n);
            break;
        }
    }
    let rejected = rejected.expect("a hundred at once are too many");
    assert!(rejected >= 10, "a burst is let through, not only {rejected}");
    let message = guarded.is_busy(ONE, "one-more").await;
    assert_eq!(message, "too many drivers register at the moment");
    guarded.driver(OTHER, "other").await.vanish();
    let bound = "machine_broker_beyond_bounds_total{what=\"registrations\",of=\"identity\"}";
    assert!(metric(&guarded.broker, bound) >= 2);
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_reads_when_to_return_in_the_status() {
    let broker = TestBroker::within(Limits { drivers: 1, ..Limits::default() });
    let first = broker.driver("first").await;
    let group = API_VERSION.split_once('/').unwrap().0;
    let channel = broker.channel().await;
    let mut second = Driver::historic(channel, Service::Infra, KIND, group).await;
    let status = second.end().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("too many drivers"), "{status}");
    assert!(retry_after(&status).is_some());
    first.vanish();
}

#[tokio::test(start_paused = true)]
async fn there_are_so_many_drivers_and_no_more_and_one_identity_has_its_part() {
    let guarded = Guarded::start(Limits { drivers: 3, identity_share: 0.67, ..Limits::default() });
    let ones = [guarded.driver(ONE, "a").await, guarded.driver(ONE, "b").await];
    let message = guarded.is_busy(ONE, "c").await;
    assert!(message.contains("too many drivers") && message.contains(ONE), "{message}");
    let other = guarded.driver(OTHER, "d").await;
    let message = guarded.is_busy(OTHER, "e").await;
    assert!(message.contains("as many as this broker takes"), "{message}");
    assert_eq!(metric(&guarded.broker, "machine_broker_rejects_total{reason=\"busy\"}"), 2);

    // Whoever leaves makes room, and those who stay are not disturbed.
    let [gone, mut stays] = ones;
    gone.vanish();
    let mut registry = RegistryClient::new(guarded.broker.channel_of(OPERATOR).await);
    loop {
        let listed = registry.list_drivers(ListDriversRequest::default()).await.unwrap();
        if listed.into_inner().drivers.len() == 2 {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    guarded.driver(OTHER, "e").await.vanish();
    stays.hears_nothing_for(Duration::from_secs(10)).await;
    other.vanish();
}

#[tokio::test(start_paused = true)]
async fn streams_of_operators_are_bounded_and_free_when_they_end() {
    let guarded = Guarded::start(Limits { streams: 4, ..Limits::default() });
    let mut registry = RegistryClient::new(guarded.broker.channel_of(OPERATOR).await);
    let watch = WatchDriversRequest::default;
    let first = registry.watch_drivers(watch()).await.unwrap();
    let _second = registry.watch_drivers(watch()).await.unwrap();
    let error = registry.watch_drivers(watch()).await.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::ResourceExhausted, "TOO_MANY"));
    let mut other = RegistryClient::new(guarded.broker.channel_of(OTHER).await);
    other.watch_drivers(watch()).await.expect("the rest is for others");
    drop(first);
    loop {
        match registry.watch_drivers(watch()).await {
            Ok(_) => break,
            Err(error) => assert_eq!(error.code(), Code::ResourceExhausted),
        }
    }
}

/// In real time: the audit log has a thread of its own.
#[tokio::test]
async fn a_flood_of_denials_is_counted_whole_and_told_in_few_lines() {
    const DENIALS: u64 = 2_000;
    let guarded = Guarded::start(Limits { refusal_lines: 5, ..Limits::default() });
    let stranger = Controller::new(guarded.broker.channel_of(STRANGER).await);
    let controller = Controller::new(guarded.broker.channel_of("spiffe://test/controller").await);
    for _ in 0..DENIALS / 2 {
        // One is stopped at the entrance, the other by the controllers' door.
        assert_eq!(stranger.create("m").await.unwrap_err().code(), Code::PermissionDenied);
        assert_eq!(controller.delete("m").await.unwrap_err().code(), Code::PermissionDenied);
    }
    let give_up = Instant::now() + PATIENCE;
    let told = loop {
        let (sums, told): (Vec<_>, Vec<_>) =
            guarded.lines().into_iter().partition(|line| line["event"] == "refusals_untold");
        let untold = sums.iter().map(|line| line["lines"].as_u64().expect("how many")).sum::<u64>();
        if told.len() as u64 + untold == DENIALS {
            break told.len() as u64;
        }
        assert!(Instant::now() < give_up, "{} and {untold}", told.len());
        sleep(Duration::from_millis(50)).await;
    };
    // Five in a second, however slow this machine is.
    assert!(told < DENIALS / 5, "{told}");
    let denials = "machine_broker_denials_total{reason=\"policy\"}";
    assert!(metric(&guarded.broker, denials) >= DENIALS / 2);
}
