//! Real processes: the leash and the broker are this test program, started again.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{task::JoinSet, time::sleep};

use super::{output::tests::Page, *};

/// Children whose leash is [`acts_as_leash`].
fn children(page: &Page) -> Children {
    let this = env::current_exe().unwrap();
    // The arguments travel in a variable, since the test program would take them for its own.
    let script = format!(
        "LEASH_COMMAND=$(printf '%s\\n' \"$@\") \
         exec '{}' --exact children::tests::acts_as_leash --nocapture",
        this.display()
    );
    Children {
        leash: ["sh", "-c", &script, "leash"].map(OsString::from).to_vec(),
        grace: GRACE,
        pace: Pace {
            first: Duration::from_millis(20),
            longest: Duration::from_millis(100),
            ..Pace::default()
        },
        output: Output::to(page.clone(), LogFormat::Text),
    }
}

const GRACE: Duration = Duration::from_secs(2);

#[test]
fn acts_as_leash() {
    let Ok(command) = env::var("LEASH_COMMAND") else { return };
    let code = leash::run_with(command.lines().map(OsString::from).collect(), GRACE);
    // There is no way from an `ExitCode` to a number; those of the tests are zero or not.
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

#[test]
fn acts_as_broker() {
    let Ok(script) = env::var("BROKER_SCRIPT") else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let children = children(&Page::default());
    let never = CancellationToken::new();
    let command = DriverCommand::new("sh", ["-c".to_owned(), script]);
    runtime.block_on(children.supervise(command, home(""), Tokens::default(), never));
}

fn home(address: &str) -> Home {
    Home { address: address.to_owned(), tls: None }
}

/// A supervised shell script.
struct Supervised {
    folder: TempDir,
    page: Page,
    tokens: Tokens,
    shutdown: CancellationToken,
    task: JoinSet<()>,
}

impl Supervised {
    /// The script runs in a folder of its own.
    fn start(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("cd '{}'; {script}", folder.path().display());
        Self::command(folder, DriverCommand::new("sh", ["-c".to_owned(), script]))
    }

    fn command(folder: TempDir, command: DriverCommand) -> Self {
        let (page, tokens) = (Page::default(), Tokens::default());
        let shutdown = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(children(&page).supervise(
            command,
            home("127.0.0.1:5000"),
            tokens.clone(),
            shutdown.clone(),
        ));
        Self { folder, page, tokens, shutdown, task }
    }

    async fn stop(self) -> String {
        self.shutdown.cancel();
        tokio::time::timeout(GRACE * 10, self.task.join_all()).await.expect("stops in time");
        assert_eq!(format!("{:?}", self.tokens), "Tokens(0 live)");
        self.page.text()
    }
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

fn lines(folder: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
    // A line that is still being written is none yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

/// The process id in a file, once it is there.
async fn pid(folder: &Path, file: &str) -> Pid {
    until(file, || Pid::from_raw(lines(folder, file).last()?.parse().ok()?)).await
}

/// Gone, or waiting for somebody to take note of its end.
fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or(true, |stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}

async fn until_gone(pid: Pid) {
    until("a process goes", || is_gone(pid).then_some(())).await;
}

/// Writes down its own process id and that of a child; neither listens to SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$ > parent; sh -c 'echo $$ > child; sleep 600; sleep 600' & \
                        sleep 600; sleep 600";

#[tokio::test]
async fn a_program_finds_the_broker_in_its_environment_and_its_lines_have_a_prefix() {
    let driver = Supervised::start(
        "echo \"$BROKER_ADDRESS $BROKER_INSTANCE_ID\"; echo problem >&2; \
         echo \"$BROKER_TOKEN\" > token; exec sleep 600",
    );
    let token = until("token", || lines(driver.folder.path(), "token").pop()).await;
    assert!(driver.tokens.know(&token));
    let page = driver.page.clone();
    until("both lines", || page.text().contains("[sh 1] problem\n").then_some(())).await;
    let tokens = driver.tokens.clone();
    let text = driver.stop().await;
    let expected = format!("[sh 1] 127.0.0.1:5000 {}-child-1\n", hostname());
    assert!(text.contains(&expected), "{text}");
    assert!(!tokens.know(&token), "the token of an ended program");
}

#[tokio::test]
async fn an_ended_program_is_started_again_with_another_token() {
    let driver = Supervised::start("echo $BROKER_TOKEN $BROKER_INSTANCE_ID >> starts; exit 0");
    let starts = until("four starts", || {
        let starts = lines(driver.folder.path(), "starts");
        (starts.len() >= 4).then_some(starts)
    })
    .await;
    driver.stop().await;
    let mut tokens: Vec<_> = starts.iter().map(|line| line.split_once(' ').unwrap().0).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), starts.len(), "each start has its own token");
    assert!(starts.iter().all(|line| line.ends_with("-child-1")), "{starts:?}");
}

#[tokio::test]
async fn a_program_is_asked_to_stop_before_it_is_killed() {
    let driver = Supervised::start(
        "trap 'echo farewell; exit 0' TERM; echo $$ > parent; while :; do sleep 0.05; done",
    );
    let program = pid(driver.folder.path(), "parent").await;
    let text = driver.stop().await;
    assert!(text.ends_with("[sh 1] farewell\n"), "{text}");
    assert!(is_gone(program));
}

#[tokio::test]
async fn a_program_that_does_not_listen_is_killed_with_all_its_children() {
    let driver = Supervised::start(STUBBORN);
    let program = pid(driver.folder.path(), "parent").await;
    let grandchild = pid(driver.folder.path(), "child").await;
    driver.stop().await;
    until_gone(program).await;
    until_gone(grandchild).await;
}

#[tokio::test]
async fn what_an_ended_program_leaves_behind_ends_too() {
    let driver = Supervised::start("sh -c 'echo $$ >> child; exec sleep 600' & sleep 0.1; exit 1");
    let grandchild = pid(driver.folder.path(), "child").await;
    until_gone(grandchild).await;
    until("another start", || (lines(driver.folder.path(), "child").len() > 1).then_some(())).await;
    driver.stop().await;
}

#[tokio::test]
async fn killing_the_leash_ends_the_program_too_and_it_is_started_again() {
    let driver = Supervised::start(&format!("echo $PPID > leash; {STUBBORN}"));
    let folder = driver.folder.path();
    let (grandchild, program) = (pid(folder, "child").await, pid(folder, "parent").await);
    kill_process(pid(folder, "leash").await, Signal::KILL).unwrap();
    until_gone(program).await;
    until_gone(grandchild).await;
    until("another start", || {
        let now = lines(folder, "parent").pop()?;
        (now != program.as_raw_nonzero().to_string()).then_some(())
    })
    .await;
    driver.stop().await;
}

#[tokio::test]
async fn killing_the_broker_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("cd '{}'; echo $PPID > leash; {STUBBORN}", folder.path().display());
    let mut broker = Command::new(env::current_exe().unwrap())
        .args(["--exact", "children::tests::acts_as_broker"])
        .env("BROKER_SCRIPT", script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let folder = folder.path();
    let all = [pid(folder, "child").await, pid(folder, "parent").await, pid(folder, "leash").await];
    assert!(all.iter().all(|pid| !is_gone(*pid)));
    broker.kill().unwrap();
    broker.wait().unwrap();
    for pid in all {
        until_gone(pid).await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let page = Page::default();
    for (program, expected) in [
        ("no-such-driver", "the program no-such-driver was not found"),
        ("/etc/passwd", "/etc/passwd may not be executed"),
    ] {
        let process = Process {
            command: DriverCommand::new(program, [""; 0]),
            label: String::new(),
            broker: home(""),
            instance_id: String::new(),
            tokens: Tokens::default(),
            children: children(&page),
        };
        let end = process.run(&CancellationToken::new()).await;
        assert_eq!(end.to_string(), expected);
    }
}

#[tokio::test]
async fn the_reason_of_an_end_is_told() {
    let page = Page::default();
    for (script, expected) in [
        ("exit 3", "exit status: 3"),
        ("kill -9 $$", "signal: 9 (SIGKILL)"),
        (":", "exit status: 0"),
    ] {
        let process = Process {
            command: DriverCommand::new("sh", ["-c", script]),
            label: String::new(),
            broker: home(""),
            instance_id: String::new(),
            tokens: Tokens::default(),
            children: children(&page),
        };
        let end = process.run(&CancellationToken::new()).await;
        assert_eq!(end.to_string(), expected);
    }
}
