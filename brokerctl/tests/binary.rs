//! The binary itself: exit codes and streams as a shell sees them.

#[expect(dead_code, reason = "other test files use the rest")]
mod fake;

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use broker_proto::v1::MachineResponse;

use fake::{Asked, FakeBroker};

fn brokerctl(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_brokerctl"))
        .args(arguments)
        .env_remove("BROKER_ADDRESS")
        .output()
        .expect("brokerctl starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn help_documents_every_exit_code() {
    let output = brokerctl(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    let (_, codes) = help.split_once("Exit codes:\n").expect("a section on exit codes");
    for code in 0..=6 {
        assert!(codes.contains(&format!("  {code}  ")), "{code} is missing from\n{codes}");
    }
}

#[test]
fn a_wrong_command_line_is_a_case_of_its_own() {
    for wrong in [
        &["machines", "create", "worker-0"][..],
        &["machines", "create", "", "--kind", "K", "--class", "C"],
        &["machines", "list", "NAME", "--kind", "K", "--class", "C"],
        &["--broker", "https://broker.example", "drivers"],
        &["drivers", "-o", "xml"],
        &["drivers", "--timeout", "5"],
        &["log", "--for", "10m"],
    ] {
        let output = brokerctl(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_empty_address_in_the_environment_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let contexts = folder.path().join("contexts.yaml");
    let contexts = contexts.to_str().expect("UTF-8");
    let set = ["--config", contexts, "contexts", "set", "nobody", "--address", "127.0.0.1:1"];
    assert!(brokerctl(&set).status.success());
    let status = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_brokerctl"))
            .args(["--config", contexts, "--context", "nobody", "status"])
            .args(arguments)
            .env("BROKER_ADDRESS", "")
            .output()
            .expect("brokerctl starts")
    };
    let output = status(&[]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("no broker answers at 127.0.0.1:1"), "{}", stderr(&output));
    // Typed, it is a mistake.
    assert_eq!(status(&["--broker", ""]).status.code(), Some(2));
}

#[test]
fn no_broker_is_told_in_plain_text() {
    // Port 1 is nobody's.
    let output = brokerctl(&["drivers", "--broker", "127.0.0.1:1", "-o", "json"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let told = stderr(&output);
    assert!(told.starts_with("error: no broker answers at 127.0.0.1:1: "), "{told}");
    // Nothing but text where there is no terminal.
    assert!(!told.contains('\x1b'), "{told}");
}

#[test]
fn the_address_comes_from_the_environment_too() {
    let output = Command::new(env!("CARGO_BIN_EXE_brokerctl"))
        .arg("drivers")
        .env("BROKER_ADDRESS", "127.0.0.1:1")
        .stdin(Stdio::null())
        .output()
        .expect("brokerctl starts");
    assert!(stderr(&output).contains("127.0.0.1:1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn user_data_comes_from_stdin_too() {
    let broker = FakeBroker::start().await;
    broker.will_answer(Ok(MachineResponse::default()));
    let line = "machines create worker-0 --kind K --class C --timeout 10s --user-data -";
    let mut brokerctl = Command::new(env!("CARGO_BIN_EXE_brokerctl"))
        .args(line.split_whitespace().chain(["--broker", broker.address()]))
        .stdin(Stdio::piped())
        .spawn()
        .expect("brokerctl starts");
    brokerctl.stdin.take().expect("is piped").write_all(b"#cloud-config").expect("is read");
    assert!(brokerctl.wait().expect("ends").success());
    let asked = broker.asked();
    let [Asked::Create(request)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(request.user_data.as_deref(), Some(&b"#cloud-config"[..]));
}
