//! A real broker: its audit log is complete when it has stopped, and its log can be changed while it
//! runs.

use std::{fs, time::Duration};

use broker_proto::v1::{self, registry_client::RegistryClient};
use broker_tests::{
    Controller,
    catalog::catalog_text,
    process::{BrokerProcess, until},
};
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reads_the_log_filter_again_and_a_stop_leaves_a_complete_audit_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a name").to_owned();
    let (config, audit) = (path("config.yaml"), path("audit.log"));
    fs::create_dir(path("classes")).expect("a folder");
    fs::write(path("classes/all.yaml"), catalog_text("token")).expect("a file");
    let settings = |log: &str| {
        let catalog = path("classes");
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ncatalog: dir:{catalog}\n\
             audit: {audit}\nauditMaxSize: 1MiB\nauditKeep: 2\nlog: {log}\n"
        );
        fs::write(&config, text).expect("a file");
    };
    settings("info");
    let mut broker = BrokerProcess::start(&["serve", "--config", &config]);
    let controller = Controller::new(broker.channel().await);
    let says = |what: &str| {
        broker.process.line(what, |line| line.contains(what).then_some(()));
    };

    controller.create("before").await.expect_err("there is no driver");
    settings("debug");
    broker.process.signal("-HUP");
    says("log filter read again");
    controller.create("after").await.expect_err("there is no driver");
    says("operation over");
    assert_eq!(broker.process.output().matches("operation over").count(), 1);
    settings("'===nonsense'");
    broker.process.signal("-HUP");
    says("the log filter stays as it is");

    broker.process.signal("-TERM");
    assert!(broker.process.end().expect("it ends").success());
    let audited = fs::read_to_string(&audit).expect("a file");
    let machines: Vec<String> = audited
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .map(|line| format!("{} {}", line["machine"], line["code"]))
        .collect();
    assert_eq!(machines, [r#""before" "NO_DRIVER""#, r#""after" "NO_DRIVER""#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_changes_what_is_logged_for_a_while() {
    let folder = tempfile::tempdir().expect("a folder");
    let audit = folder.path().join("audit.log");
    let catalog = format!("dir:{}", folder.path().display());
    let (audit_flag, free) = (audit.to_str().expect("a name"), "127.0.0.1:0");
    let mut broker = BrokerProcess::start(&[
        "serve",
        "--catalog",
        &catalog,
        "--audit",
        audit_flag,
        "--listen",
        free,
        "--admin",
        free,
    ]);
    let controller = Controller::new(broker.channel().await);
    let mut registry = RegistryClient::new(broker.channel().await);
    let mut set = async |filter: &str, lasts: Option<Duration>| {
        let lasts = lasts.map(|lasts| lasts.try_into().expect("a time"));
        let request = v1::SetLogFilterRequest { filter: filter.to_owned(), lasts };
        registry.set_log_filter(request).await.map(tonic::Response::into_inner)
    };
    let says = |what: &str| {
        broker.process.line(what, |line| line.contains(what).then_some(()));
    };

    assert_eq!(set("", None).await.unwrap().filter, "info");
    let debug = set("info,broker=debug", Some(Duration::from_secs(3))).await.unwrap();
    assert_eq!((debug.filter.as_str(), debug.previous.as_str()), ("info,broker=debug", "info"));
    assert_eq!(debug.reverts_to, "info");
    assert!(debug.reverts_in.is_some());
    controller.create("w").await.expect_err("there is no driver");
    says("operation over");
    says("log filter is again as before");
    let again = set("", None).await.unwrap();
    assert_eq!((again.filter.as_str(), again.reverts_in), ("info", None));
    let slip = set("inof", None).await.unwrap_err();
    assert_eq!(slip.code(), Code::InvalidArgument);
    assert!(slip.message().contains("\"inof\" is no level"), "{slip}");

    broker.process.signal("-TERM");
    assert!(broker.process.end().expect("it ends").success());
    let audited = fs::read_to_string(&audit).expect("a file");
    let outcomes: Vec<_> = audited
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .filter(|line| line["event"] == "log_filter_set")
        .map(|line| line["outcome"].as_str().expect("a word").to_owned())
        .collect();
    assert_eq!(outcomes, ["ok", "refused"]);
}

#[test]
fn an_audit_log_that_cannot_be_written_keeps_the_broker_from_starting() {
    use broker_tests::process::{Process, binary};
    use std::process::Command;
    let folder = tempfile::tempdir().expect("a folder");
    let mut broker =
        Process::start(Command::new(binary("machine-broker")).current_dir(&folder).args([
            "serve",
            "--catalog",
            "dir:.",
            "--audit",
            "missing/audit.log",
        ]));
    assert!(!broker.end().expect("it ends").success());
    let said = until(|| broker.output().contains("cannot write to the audit log").then_some(()));
    assert!(said.is_some(), "{}", broker.output());
}
