//! The audit log has a line for all that is done, and for all that is not allowed; and neither it nor
//! the logs have anything in them that is nobody's business.

use std::{
    fs, io,
    sync::{Arc, Mutex},
    time::Duration,
};

use broker::{
    audit::{Audit, Rotation, Target},
    catalog::Static,
};
use broker_proto::v1::{self, MachineRequest, registry_client::RegistryClient};
use broker_tests::{
    API_VERSION, Controller, Driver, KIND, TestBroker,
    catalog::{OTHER_API_VERSION, OTHER_KIND, catalog, catalog_text, class},
    failed, hello, kind,
};
use serde_json::Value;
use tempfile::TempDir;
use tonic::{Code, Request};

const PATIENCE: Duration = Duration::from_secs(60);

/// An audit log in a folder of its own.
struct Log {
    folder: TempDir,
    audit: Audit,
}

impl Log {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let target = Target::File(folder.path().join("audit.log"), Rotation::default());
        let audit = Audit::open(&target).expect("the folder is ours");
        Self { folder, audit }
    }

    /// Closes it.
    async fn text(&self) -> String {
        self.audit.close(PATIENCE).await;
        assert_eq!(self.audit.lost(), 0);
        fs::read_to_string(self.folder.path().join("audit.log")).expect("a file")
    }

    async fn lines(&self) -> Vec<Value> {
        self.text().await.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

fn of<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

/// What a line says in these fields.
fn facts<'a>(line: &'a Value, fields: &[&str]) -> Vec<&'a str> {
    fields.iter().map(|field| line[field].as_str().unwrap_or("-")).collect()
}

const END: [&str; 6] = ["verb", "machine", "driver", "outcome", "code", "delivery"];

#[tokio::test]
async fn every_operation_has_a_line_however_it_ends() {
    let log = Log::new();
    let broker = TestBroker::audited(catalog(), log.audit.clone());
    let controller = broker.controller().await;
    assert_eq!(controller.create("early").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(controller.create("Bad Name").await.unwrap_err().code(), Code::InvalidArgument);
    let mut hurried = Request::new(Controller::request("hurried"));
    hurried.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    assert_eq!(controller.create_with(hurried).await.unwrap_err().code(), Code::InvalidArgument);

    let mut driver = broker.driver("one").await;
    let call = controller.creating("good");
    driver.serve_one().await;
    call.answer().await.unwrap();
    let call = controller.creating("bad");
    let operation = driver.take().await;
    driver.answer(&operation, failed(Code::ResourceExhausted, &"no quota ".repeat(100)));
    call.error().await;
    let call = controller.creating("left");
    let operation = driver.take().await;
    call.cancel().await;
    driver.next_cancel().await;
    driver.succeed(&operation);
    broker.until_running(0).await;
    let call = controller.creating("lost");
    driver.take().await;
    driver.vanish();
    call.error().await;
    broker.at_rest().await;

    let lines = log.lines().await;
    let ends: Vec<_> = of(&lines, "operation").into_iter().map(|line| facts(line, &END)).collect();
    assert_eq!(
        ends,
        [
            ["create", "early", "-", "refused", "NO_DRIVER", "NOT_SENT"],
            ["create", "Bad Name", "-", "refused", "INVALID", "NOT_SENT"],
            ["create", "hurried", "-", "refused", "INVALID", "NOT_SENT"],
            ["create", "good", "one", "ok", "OK", "ANSWERED"],
            ["create", "bad", "one", "failed", "RESOURCE_EXHAUSTED", "ANSWERED"],
            ["create", "left", "one", "abandoned", "CALLER_GONE", "ACCEPTED"],
            ["create", "lost", "one", "unknown", "DRIVER_LOST", "ACCEPTED"],
        ]
    );
    for line in of(&lines, "operation") {
        assert!(line["caller"].as_str().unwrap().starts_with("memory:"), "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(line["durationMs"].is_number() && line["attempts"] == 1, "{line}");
        assert_eq!(line["class"]["name"], "small", "{line}");
    }
    let bad = of(&lines, "operation")[4];
    assert_eq!(bad["message"].as_str().unwrap().len(), 256);
    assert_eq!(bad["class"]["apiVersion"], API_VERSION);
    let unheard = of(&lines, "operation_unheard");
    assert_eq!(unheard.len(), 1);
    assert_eq!(facts(unheard[0], &END), ["create", "left", "one", "ok", "OK", "ANSWERED"]);
    assert_eq!(unheard[0]["operation"], of(&lines, "operation")[5]["operation"]);
}

#[tokio::test]
async fn every_administrative_act_has_a_line_also_when_it_is_denied() {
    let log = Log::new();
    let broker = TestBroker::audited(catalog(), log.audit.clone());
    let driver = broker.driver("one").await;
    let session = broker.drivers().await[0].session_id.clone();
    driver.get_secret("default", "base").await.unwrap();
    driver.get_secret_of(class(API_VERSION, KIND, "small")).await.unwrap();
    driver.get_secret("default", "of-other").await.unwrap_err();
    driver.get_class("other").await.unwrap_err();
    let twice = kind(OTHER_API_VERSION, OTHER_KIND);
    let nameless = broker_tests::Hello { kinds: vec![twice], ..hello("") };
    Driver::rejected(broker.channel().await, nameless).await;

    let mut registry = RegistryClient::new(broker.channel().await);
    let drain = |driver: &str| v1::DrainDriverRequest {
        driver: driver.to_owned(),
        reason: "maintenance".to_owned(),
    };
    registry.drain_driver(drain("one")).await.unwrap();
    registry.drain_driver(drain("nobody")).await.unwrap_err();
    let evict = v1::EvictDriverRequest { driver: "one".to_owned(), reason: String::new() };
    registry.evict_driver(evict).await.unwrap();
    broker.at_rest().await;
    let mut stranger = Request::new(Controller::request("m"));
    stranger.metadata_mut().insert("authorization", "Bearer guessed".parse().unwrap());
    broker.controller().await.create_with(stranger).await.unwrap_err();

    let lines = log.lines().await;
    let acts: Vec<_> =
        lines.iter().map(|line| facts(line, &["event", "driver", "outcome", "secret"])).collect();
    assert_eq!(
        acts,
        [
            ["driver_registered", "one", "ok", "-"],
            ["secret_read", "one", "ok", "default/base"],
            ["secret_read", "one", "ok", "default/base"],
            ["secret_denied", "one", "denied", "default/of-other"],
            ["class_denied", "one", "denied", "-"],
            ["driver_rejected", "-", "refused", "-"],
            ["driver_drained", "one", "ok", "-"],
            ["driver_drained", "-", "refused", "-"],
            ["driver_evicted", "one", "ok", "-"],
            ["driver_left", "one", "ok", "-"],
            ["caller_denied", "-", "denied", "-"],
        ]
    );
    assert_eq!(lines[0]["kinds"][0], format!("{KIND} ({API_VERSION})"));
    assert_eq!(lines[0]["session"], session.as_str());
    assert_eq!(lines[2]["class"]["name"], "small");
    assert_eq!(lines[4]["message"], "class other belongs to another driver");
    assert_eq!(lines[6]["message"], "maintenance");
    assert_eq!(lines[9]["session"], session.as_str());
    assert!(!lines[10].to_string().contains("guessed"));
}

/// All that is logged, in memory.
#[derive(Clone, Default)]
struct Heap(Arc<Mutex<Vec<u8>>>);

impl io::Write for Heap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_log_has_a_secret_user_data_or_last_known_state_in_it() {
    const SECRET: &str = "marker-of-a-secret";
    // As it travels to drivers.
    const ENCODED: &str = "bWFya2VyLW9mLWEtc2VjcmV0";
    const USER_DATA: &str = "marker-of-user-data";
    const STATE: &str = "marker-of-state";
    let heap = Heap::default();
    let writer = heap.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .init();
    let log = Log::new();
    let catalog = Static::from_yaml(&catalog_text(SECRET)).expect("the catalog is right");
    let broker = TestBroker::audited(catalog, log.audit.clone());
    let mut driver = broker.driver("one").await;
    assert!(driver.get_secret("default", "base").await.unwrap().data.contains(ENCODED));
    let controller = broker.controller().await;
    let request = |machine: &str| MachineRequest {
        user_data: Some(USER_DATA.into()),
        last_known_state: STATE.to_owned(),
        ..Controller::request(machine)
    };

    let call = controller.creating_with(request("good"));
    let told = driver.serve_one().await.params.expect("an operation has params");
    assert_eq!(told.last_known_state, STATE, "the driver is told");
    call.answer().await.unwrap();
    let call = controller.creating_with(request("bad"));
    let operation = driver.take().await;
    driver.answer(&operation, failed(Code::Internal, "no"));
    call.error().await;
    controller.create_with(request("Bad Name")).await.unwrap_err();
    let call = controller.creating_with(request("left"));
    driver.take().await;
    call.cancel().await;
    driver.vanish();
    broker.at_rest().await;

    let logged = String::from_utf8_lossy(&heap.0.lock().unwrap()).into_owned();
    let audited = log.text().await;
    assert!(logged.contains("operation{verb=\"create\" id=op-"), "operations have a span");
    assert!(logged.contains("TRACE") && audited.contains("CALLER_GONE"));
    for (what, text) in [("the log", logged), ("the audit log", audited)] {
        for marker in [SECRET, ENCODED, USER_DATA, STATE] {
            let line = text.lines().find(|line| line.contains(marker));
            assert_eq!(line, None, "{marker} in {what}");
        }
    }
}

#[tokio::test]
async fn lines_that_are_lost_are_a_concern_and_a_metric() {
    // A disk that is always full.
    let full = Target::File("/dev/full".into(), Rotation::default());
    let audit = Audit::open(&full).expect("it can be opened");
    let broker = TestBroker::audited(Static::sample(), audit.clone());
    let status = async || {
        let mut registry = RegistryClient::new(broker.channel().await);
        registry.get_broker_status(v1::GetBrokerStatusRequest {}).await.unwrap().into_inner()
    };
    let driver = broker.driver("a").await;
    // Until all that was written was tried.
    audit.close(PATIENCE).await;
    let lost = audit.lost();
    assert!(lost > 0);
    let concerns = status().await.concerns;
    assert!(concerns.iter().any(|concern| concern.what.contains("lost, the last")), "{concerns:?}");
    let text = broker.broker.metrics().text();
    let line = format!("machine_broker_audit_lines_lost_total {lost}");
    assert!(text.lines().any(|shown| shown == line), "{text}");
    driver.vanish();
    broker.at_rest().await;
}
