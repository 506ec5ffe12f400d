//! One run of a driver program, from start to end.

use std::{
    fmt, io,
    os::fd::OwnedFd,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::{Child, Command},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{Children, DriverCommand, Home, Tokens, leash::Report};

/// How much longer than its grace a leash may take, before it counts as stuck.
const LATE: Duration = Duration::from_secs(5);
/// How long to wait for the rest of what an ended program said.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A program that can be run, again and again.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) command: DriverCommand,
    /// What people call it.
    pub(super) label: String,
    pub(super) broker: Home,
    pub(super) instance_id: String,
    pub(super) tokens: Tokens,
    pub(super) children: Children,
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum End {
    Exited(ExitStatus),
    /// The program could not be run.
    NotStarted(String),
    /// The leash was killed, or got stuck; the program was killed.
    LeashLost,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => status.fmt(f),
            Self::NotStarted(why) => f.write_str(why),
            Self::LeashLost => f.write_str("its leash was lost, so it was killed"),
        }
    }
}

impl Process {
    /// Runs the program until it ends, or until `shutdown` and then its end. Nothing is left of it
    /// when this returns.
    pub(super) async fn run(&self, shutdown: &CancellationToken) -> End {
        // For this run alone.
        let token = self.tokens.issue(self.command.name());
        let (mut leash, mut socket) = match self.start(token.reveal()) {
            Ok(started) => started,
            Err(error) => return End::NotStarted(format!("the leash cannot be started: {error}")),
        };
        // Dropping it ends whatever is still reading.
        let mut output = JoinSet::new();
        if let (Some(stdout), Some(stderr)) = (leash.stdout.take(), leash.stderr.take()) {
            output.spawn(self.pass_on(stdout));
            output.spawn(self.pass_on(stderr));
        }
        tokio::select! {
            _ = leash.wait() => {}
            () = shutdown.cancelled() => {
                // The leash reads the end of its input and does the rest. It may be gone already.
                socket.shutdown().await.ok();
                let stuck = timeout(self.children.grace + LATE, leash.wait()).await.is_err();
                if stuck {
                    leash.kill().await.ok();
                }
            }
        }
        let end = conclude(&mut socket).await;
        // Something that left the process group may still hold the other end, so not for ever.
        timeout(LAST_WORDS, output.join_all()).await.ok();
        end
    }

    fn start(&self, token: &str) -> io::Result<(Child, UnixStream)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let ours = UnixStream::from_std(ours)?;
        let mut words = self.children.leash.iter().chain(self.command.words());
        let program = words.next().ok_or(io::ErrorKind::InvalidInput)?;
        let mut leash = Command::new(program);
        for (name, value) in self.broker.variables() {
            match value {
                Some(value) => leash.env(name, value),
                None => leash.env_remove(name),
            };
        }
        let leash = leash
            .args(words)
            .envs(self.command.variables())
            .env("BROKER_TOKEN", token)
            .env("BROKER_INSTANCE_ID", &self.instance_id)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C on the terminal is for the broker, which then stops its children in order.
            .process_group(0)
            .spawn()?;
        Ok((leash, ours))
    }

    fn pass_on(
        &self,
        from: impl AsyncRead + Send + Unpin + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.children.output.clone().pass_on(self.label.clone(), from)
    }
}

/// Learns how the program ended, once its leash is gone; and kills it if it did not end.
async fn conclude(socket: &mut UnixStream) -> End {
    let mut reports = String::new();
    // Whatever was read until an error or the end of time is what there is.
    timeout(LAST_WORDS, socket.take(16 * 1024).read_to_string(&mut reports)).await.ok();
    let mut group: Option<Pid> = None;
    for report in reports.lines().filter_map(Report::parse) {
        match report {
            Report::Started(started) => group = Some(started),
            Report::Ended(status) => return End::Exited(status),
            Report::Failed(why) => return End::NotStarted(why),
        }
    }
    if let Some(group) = group {
        // If it ended in this very moment there is nobody to kill.
        kill_process_group(group, Signal::KILL).ok();
    }
    End::LeashLost
}
