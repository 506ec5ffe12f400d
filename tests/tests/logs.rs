//! A real broker: its audit log is complete when it has stopped, and its log can be changed while it
//! runs.

use std::fs;

use broker_tests::{
    Controller,
    catalog::catalog_text,
    process::{BrokerProcess, until},
};

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
