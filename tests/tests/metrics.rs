//! What Prometheus reads, and that dashboard, alerts and documentation speak of nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use broker_proto::v1::{MachineRequest, OperationResult, driver_side::Response};
use broker_tests::{Controller, Driver, Hello, KIND, TestBroker, catalog, failed, hello, kind};
use serde_json::Value;
use tonic::Code;

const DASHBOARD: &str = "manifests/monitoring/dashboard.json";
const ALERTS: &str = "manifests/monitoring/alerts.yaml";
const DESCRIBED: &str = "docs/metrics.md";
const RUNBOOK: &str = "docs/operating.md";

fn read(name: &str) -> String {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    fs::read_to_string(root.join(name)).expect("the file is there")
}

/// What the broker shows now.
struct Page(String);

impl Page {
    fn of(broker: &TestBroker) -> Self {
        Self(broker.broker.metrics().text())
    }

    /// The value of a series, without the prefix that all have.
    fn get(&self, series: &str) -> Option<f64> {
        let start = format!("machine_broker_{series} ");
        let value = self.0.lines().find_map(|line| line.strip_prefix(&start))?;
        Some(value.parse().expect("a number"))
    }

    fn values<const N: usize>(&self, series: [&str; N]) -> [f64; N] {
        series.map(|series| self.get(series).unwrap_or_else(|| panic!("no {series}:\n{}", self.0)))
    }

    /// The name of every metric as Prometheus stores it, with its type.
    fn exported(&self) -> BTreeMap<String, String> {
        let types = self.0.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let metrics = types.map(|line| line.split_once(' ').expect("a name and a type"));
        let stored = |(name, sort): (&str, &str)| {
            let suffix = match sort {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            (format!("{name}{suffix}"), sort.to_owned())
        };
        metrics.map(stored).collect()
    }
}

/// Every metric of ours that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("machine_broker_")).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn operations_are_counted_and_timed_and_outlive_their_session() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver_with(Hello { capacity: 1, ..hello("a") }).await;
    let create = controller.creating("w");
    let frame = driver.next_operation().await;
    let queued = controller.creating("queued");
    broker.until_running(2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let page = Page::of(&broker);
    let pending = [
        r#"pending{delivery="not_sent"}"#,
        r#"pending{delivery="sent"}"#,
        r#"pending{delivery="accepted"}"#,
        "unaccepted_operations",
    ];
    assert_eq!(page.values(pending), [1.0, 1.0, 0.0, 1.0]);
    let [oldest, unaccepted] =
        page.values(["oldest_pending_age_seconds", "oldest_unaccepted_age_seconds"]);
    assert!((2.0..3.0).contains(&oldest) && (2.0..=oldest).contains(&unaccepted));
    let use_of = |what: &str| format!(r#"driver_{what}{{kind="{KIND}"}}"#);
    let [capacity, in_flight, waiting] = ["capacity", "in_flight", "queued"].map(use_of);
    assert_eq!(page.values([&capacity, &in_flight, &waiting]), [1.0, 1.0, 1.0]);
    assert_eq!(page.values([&use_of("queue_limit")]), [10_000.0]);

    driver.accept(&frame);
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(Page::of(&broker).values(pending), [1.0, 0.0, 1.0, 0.0]);
    driver.answer(&frame, failed(Code::PermissionDenied, "not with this role"));
    create.error().await;
    driver.serve_one().await;
    queued.answer().await.unwrap();
    let lost = controller.creating("lost");
    driver.take().await;
    driver.say(99, "create", Response::Result(OperationResult::default()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    driver.vanish();
    lost.error().await;
    broker.at_rest().await;

    let page = Page::of(&broker);
    for outcome in ["PERMISSION_DENIED", "OK", "LOST"] {
        let ended =
            format!(r#"operations_total{{verb="create",kind="{KIND}",outcome="{outcome}"}}"#);
        assert_eq!(page.values([&ended]), [1.0], "{outcome}");
    }
    let lost = format!(r#"requests_failed_total{{kind="{KIND}",reason="lost"}}"#);
    assert_eq!(page.values([&lost, r#"odd_frames_total{sort="unknown_id"}"#]), [1.0, 1.0]);
    let bucket =
        |of: &str, le: &str| format!(r#"operation_{of}_seconds_bucket{{le="{le}",verb="create"}}"#);
    // One was accepted after two seconds and took seven more; the other waited for it.
    for (of, le, count) in [
        ("queue", "5.0", 1.0),
        ("queue", "10.0", 2.0),
        ("ack", "1.0", 1.0),
        ("ack", "2.5", 2.0),
        ("execution", "5.0", 1.0),
        ("execution", "10.0", 2.0),
        ("duration", "5.0", 0.0),
        ("duration", "10.0", 2.0),
        ("duration", "1200.0", 2.0),
    ] {
        assert_eq!(page.values([&bucket(of, le)]), [count], "{of} {le}");
    }
    assert_eq!(page.values(pending), [0.0; 4]);
}

#[tokio::test(start_paused = true)]
async fn drivers_are_counted_by_kind_and_state_and_at_the_door() {
    let broker = TestBroker::of_catalog(catalog::catalog());
    let state = |of: &str, state: &str| format!(r#"sessions{{kind="{of}",state="{state}"}}"#);
    let [ready, suspect] = ["ready", "suspect"].map(|name| state(KIND, name));
    let other = state(catalog::OTHER_KIND, "ready");
    assert_eq!(Page::of(&broker).values([&ready, &other]), [0.0, 0.0], "known from the catalog");

    let driver = broker.driver("a").await;
    let historic = broker.historic().await;
    let handshakes =
        [r#"handshakes_total{protocol="native"}"#, r#"handshakes_total{protocol="legacy"}"#];
    let page = Page::of(&broker);
    assert_eq!(page.values([&ready, &suspect, &other]), [2.0, 0.0, 0.0]);
    assert_eq!(page.values(handshakes), [1.0, 1.0]);

    // The same process dials again: its older stream is replaced.
    let again = broker.driver("a").await;
    broker.until_drivers(2).await;
    Driver::rejected(broker.channel().await, Hello { kinds: vec![kind("", "")], ..hello("b") })
        .await;
    let page = Page::of(&broker);
    let door = ["takeovers_total", r#"rejects_total{reason="invalid"}"#];
    assert_eq!(page.values(door), [1.0, 1.0]);
    assert_eq!(page.values(handshakes), [2.0, 1.0]);

    again.fall_silent();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let page = Page::of(&broker);
    assert_eq!(page.values([&ready, &suspect]), [1.0, 1.0]);
    let heard = format!(r#"session_last_heard_age_seconds{{kind="{KIND}"}}"#);
    assert!(page.values([&heard])[0] >= 12.0);
    drop((driver, historic, again));
    broker.at_rest().await;
    assert_eq!(Page::of(&broker).values([&ready, &suspect]), [0.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn what_drivers_read_is_counted_by_its_result() {
    let broker = TestBroker::of_catalog(catalog::catalog());
    let driver = broker.driver("a").await;
    driver.get_secret("default", "base").await.unwrap();
    driver.get_secret("default", "of-other").await.unwrap_err();
    driver.get_class("small").await.unwrap();
    driver.get_class("nowhere").await.unwrap_err();
    let page = Page::of(&broker);
    let reads = [
        r#"secret_reads_total{result="ok"}"#,
        r#"secret_reads_total{result="unreferenced"}"#,
        r#"class_reads_total{result="ok"}"#,
        r#"class_reads_total{result="missing"}"#,
    ];
    assert_eq!(page.values(reads), [1.0; 4]);
    assert_eq!(page.values(["catalog_problems"]), [0.0]);
    assert!(page.values(["catalog_classes"])[0] >= 5.0);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_a_driver_shows_who_wants_it() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let failures = format!(r#"requests_failed_total{{kind="{KIND}",reason="no_driver"}}"#);
    let waiting = format!(r#"waiting_for_driver{{kind="{KIND}"}}"#);
    assert_eq!(Page::of(&broker).values([&failures, &waiting]), [0.0, 0.0]);
    controller.create("w").await.unwrap_err();
    let request = MachineRequest { wait_for_driver: true, ..Controller::request("patient") };
    let patient = controller.creating_with(tonic::Request::new(request));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(Page::of(&broker).values([&failures, &waiting]), [1.0, 1.0]);

    let driver = broker.driver("a").await.serve();
    patient.answer().await.unwrap();
    let page = Page::of(&broker);
    assert_eq!(page.values([&failures, &waiting]), [1.0, 0.0]);
    let unsent = format!(r#"operations_total{{verb="create",kind="{KIND}",outcome="NOT_SENT"}}"#);
    assert_eq!(page.get(&unsent), None, "looking for a driver again and again is no operation");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_a_caller_made_up_is_no_label() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    for api_version in ["", "typo.dev/v1"] {
        let class = catalog::class(api_version, "Typo", "small");
        let request = MachineRequest { class: Some(class), ..Controller::request("w") };
        let impatient = controller.create_with(request.clone()).await.unwrap_err();
        assert_eq!(impatient.code(), Code::Unavailable);
        let patient = MachineRequest { wait_for_driver: true, ..request };
        let patient = controller.creating_with(tonic::Request::new(patient));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let page = Page::of(&broker);
        assert!(!page.0.contains("Typo"), "{}", page.0);
        drop(patient);
    }
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_than_64_kinds_and_others() {
    let broker = TestBroker::start();
    let mut drivers = Vec::new();
    for n in 0..2 {
        let kinds = (0..50).map(|of| kind("x.dev/v1", &format!("K{n}x{of}"))).collect();
        drivers.push(broker.driver_with(Hello { kinds, ..hello(&format!("d-{n}")) }).await);
    }
    let page = Page::of(&broker);
    let ready = page.0.lines().filter(|line| {
        line.starts_with("machine_broker_sessions{") && line.contains(r#"state="ready""#)
    });
    assert_eq!(ready.count(), 65);
    let others = r#"sessions{kind="other",state="ready"}"#;
    assert!(page.values([others])[0] >= 1.0, "each session once");
    drop(drivers);
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn dashboard_and_alerts_name_only_metrics_that_exist() {
    let exported = Page::of(&TestBroker::start()).exported();
    let mut names: BTreeSet<String> = exported.keys().cloned().collect();
    for (name, _) in exported.iter().filter(|(_, sort)| *sort == "histogram") {
        names.extend(["bucket", "count", "sum"].map(|part| format!("{name}_{part}")));
    }
    for file in [DASHBOARD, ALERTS] {
        let named = named(&read(file));
        assert!(named.len() > 5, "{file} names hardly any: {named:?}");
        let unknown: Vec<_> = named.difference(&names).collect();
        assert!(unknown.is_empty(), "{file} names what the broker does not export: {unknown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_metric_is_described_and_nothing_else() {
    let exported = Page::of(&TestBroker::start()).exported();
    let mut described = BTreeMap::new();
    for row in read(DESCRIBED).lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, rest) = row.split_once("` | ").expect("a name in a table");
        let sort = rest.split(" |").next().unwrap_or_default();
        described.insert(name.to_owned(), sort.to_owned());
    }
    assert_eq!(described, exported);
}

#[test]
fn the_dashboard_is_one_and_every_panel_asks_something() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() >= 6);
    for panel in panels {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty() && panel["title"].is_string(), "{panel}");
        assert!(targets.iter().all(|target| target["expr"].is_string()), "{panel}");
    }
}

#[test]
fn every_alert_says_what_is_wrong_and_where_to_read_on() {
    let rules: Value = serde_saphyr::from_str(&read(ALERTS)).expect("YAML");
    let runbook = read(RUNBOOK);
    let groups = rules["groups"].as_array().expect("groups");
    let alerts: Vec<_> =
        groups.iter().flat_map(|group| group["rules"].as_array().expect("rules")).collect();
    assert!(alerts.len() >= 7);
    for alert in alerts {
        let name = alert["alert"].as_str().expect("a name");
        for field in ["summary", "description"] {
            assert!(alert["annotations"][field].is_string(), "{name} has no {field}");
        }
        assert!(alert["expr"].is_string() && alert["labels"]["severity"].is_string(), "{name}");
        let anchor = format!("{RUNBOOK}#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook"], anchor.as_str());
        assert!(runbook.contains(&format!("### {name}\n")), "{RUNBOOK} says nothing on {name}");
    }
}
