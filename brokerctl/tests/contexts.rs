//! Brokers by name: which one is meant, and who gets which token.

#[expect(dead_code, reason = "other test files use the rest")]
mod fake;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use brokerctl::Exit;

use fake::{FakeBroker, run};

/// Runs the binary with a file of contexts and nothing else of the environment.
fn brokerctl(config: &Path, address: Option<&str>, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brokerctl"));
    command.args(line.split_whitespace()).env_clear().env("BROKERCTL_CONFIG", config);
    if let Some(address) = address {
        command.env("BROKER_ADDRESS", address);
    }
    command.output().expect("brokerctl starts")
}

#[test]
fn flag_then_environment_then_context_then_default() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("contexts.yaml");
    // Ports that are nobody's.
    fs::write(
        &config,
        "current: a\ncontexts: {a: {address: '127.0.0.1:1'}, b: {address: '127.0.0.1:2'}}",
    )
    .expect("a file");
    let asked = |config: &Path, address, line: &str| {
        let told = String::from_utf8(brokerctl(config, address, line).stderr).expect("UTF-8");
        let (_, address) = told.split_once("no broker answers at ").expect("nobody answers");
        address.split_once(": ").expect("a reason").0.to_owned()
    };
    let env = Some("127.0.0.1:3");
    assert_eq!(asked(&config, env, "drivers --broker :4 --context b"), "127.0.0.1:4");
    assert_eq!(asked(&config, env, "drivers --context b"), "127.0.0.1:3");
    assert_eq!(asked(&config, None, "drivers --context b"), "127.0.0.1:2");
    assert_eq!(asked(&config, None, "drivers"), "127.0.0.1:1");
    // With no contexts it is the default, where somebody may listen.
    let nothing = folder.path().join("nothing.yaml");
    let output = brokerctl(&nothing, None, "drivers --context c");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(told.starts_with("error: there is no context \"c\"\n  make it with "), "{told}");
}

#[tokio::test]
async fn a_token_goes_to_its_own_address_alone() {
    let (broker, other) = (FakeBroker::start().await, FakeBroker::start().await);
    let folder = tempfile::tempdir().expect("a folder");
    let (config, token) = (folder.path().join("contexts.yaml"), folder.path().join("token"));
    fs::write(&token, "hush\n").expect("a file");
    let with = |line: &str| format!("--config {} {line}", config.display());
    let address = broker.address();
    let set = format!("contexts set dev --address {address} --token-file {}", token.display());
    assert_eq!(run(&with(&set)).await.exit, Exit::Ok);

    let seen = run(&with("drivers")).await;
    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    assert_eq!(broker.tokens(), [Some("Bearer hush".to_owned())]);
    let seen = run(&with(&format!("drivers --context dev --broker {}", other.address()))).await;
    assert!(seen.remarks.starts_with("context dev is not used: "), "{seen:?}");
    assert_eq!(other.tokens(), [None]);
    // One that is named on the command line goes where that says.
    let line = format!("drivers --broker {} --token-file {}", other.address(), token.display());
    assert_eq!(run(&with(&line)).await.exit, Exit::Ok);
    assert_eq!(other.tokens(), [None, Some("Bearer hush".to_owned())]);
}

#[tokio::test]
async fn a_token_goes_nowhere_in_clear_but_to_this_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, token) = (folder.path().join("contexts.yaml"), folder.path().join("token"));
    fs::write(&token, "hush\n").expect("a file");
    // Of addresses for documentation, where nobody is.
    let contexts = "contexts: {own: {address: '192.0.2.1', token: hush}, \
        file: {address: 'http://broker.example', tokenFile: token}}";
    fs::write(&config, contexts).expect("a file");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).expect("is ours");
    let given = format!("--token-file {}", token.display());
    for (line, address) in [
        (format!("--broker 192.0.2.1:7000 {given}"), "192.0.2.1:7000"),
        (format!("--broker http://localhost.example {given}"), "localhost.example:5000"),
        ("--context own".to_owned(), "192.0.2.1:5000"),
        ("--context file".to_owned(), "broker.example:5000"),
    ] {
        let seen = run(&format!("--config {} {line} drivers", config.display())).await;
        assert_eq!(seen.exit, Exit::Usage, "{seen:?}");
        let told = format!("the token is not sent to {address} without TLS\n");
        assert!(seen.remarks.contains(&told), "{seen:?}");
        assert!(seen.remarks.contains("say https:// and --ca FILE"), "{seen:?}");
    }
    // With TLS it would be: what is missing is the CA's file.
    let line = format!("--broker https://192.0.2.1 {given} --ca {}/none", folder.path().display());
    let seen = run(&format!("{line} drivers")).await;
    assert!(seen.remarks.contains("cannot read "), "{seen:?}");
}

#[tokio::test]
async fn contexts_are_made_listed_chosen_and_forgotten() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("brokerctl/contexts.yaml");
    let with = |line: &str| format!("--config {} contexts {line}", config.display());

    let seen = run(&with("")).await;
    assert_eq!((seen.exit, seen.out.as_str()), (Exit::Ok, ""));
    assert!(seen.remarks.starts_with("no contexts in "), "{seen:?}");

    run(&with("set dev --address 127.0.0.1")).await;
    let seen = run(&with("set prod --address broker.example --token-file /run/token")).await;
    let expected = "context prod made; switch to it with `brokerctl contexts use prod`\n";
    assert_eq!((seen.exit, seen.remarks.as_str()), (Exit::Ok, expected));
    assert_eq!(run(&with("use prod")).await.exit, Exit::Ok);
    let expected = "\
CURRENT   NAME   ADDRESS               CREDENTIALS
          dev    127.0.0.1:5000        <none>
*         prod   broker.example:5000   token in /run/token
";
    assert_eq!(run(&with("list")).await.out, expected);
    let mode = fs::metadata(&config).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let line = "set tls --address https://broker.example --ca ca.crt --cert /me.crt --key /me.key";
    assert_eq!(run(&with(line)).await.exit, Exit::Ok);
    let seen = run(&with("list --no-headers")).await;
    let row = "tls    https://broker.example:5000   certificate in /me.crt";
    assert!(seen.out.contains(row), "{seen:?}");
    let text = fs::read_to_string(&config).expect("a file");
    let ca = std::path::absolute("ca.crt").expect("a path");
    assert!(text.contains(&format!("ca: {}", ca.display())), "good from any folder: {text}");

    assert_eq!(run(&with("use test")).await.exit, Exit::Usage);
    let seen = run(&with("delete prod")).await;
    assert!(seen.remarks.contains("there is no current context now"), "{seen:?}");
    assert_eq!(run(&with("")).await.out.lines().count(), 3);
}

#[tokio::test]
async fn a_token_in_the_file_is_never_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("contexts.yaml");
    fs::write(&config, "contexts: {dev: {address: '127.0.0.1:1', token: hush}}").expect("a file");
    let with = |line: &str| format!("--config {} {line}", config.display());
    for line in ["contexts", "contexts -o json", "contexts -o yaml", "--context dev drivers"] {
        let seen = run(&with(line)).await;
        assert!(!format!("{seen:?}").contains("hush"), "{line}: {seen:?}");
    }
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).expect("is ours");
    let seen = run(&with("--context dev drivers")).await;
    assert!(seen.remarks.starts_with("others may read the tokens in "), "{seen:?}");
}

#[tokio::test]
async fn shells_are_taught_to_complete() {
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef brokerctl"), ("fish", "complete -c brokerctl")]
    {
        let seen = run(&format!("completions {shell}")).await;
        assert!(seen.out.contains(sign) && seen.out.contains("drain"), "{shell}: {}", seen.out);
    }
}
