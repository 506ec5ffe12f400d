//! Driver programs that the broker starts itself.
//!
//! [`supervise`] keeps one such program running: it gets the broker's address and a token in its
//! environment and dials back in like any other driver. What it prints appears on our standard
//! error, line by line.
//!
//! Nothing it starts is ever left behind, not even when the broker is killed on the spot. To that
//! end the broker starts its own executable as a [`leash`], which in turn starts the program:
//!
//! ```text
//! broker ──socket (stdin)──▶ leash ──▶ program ──▶ whatever it starts   (a process group of its own)
//! ```
//!
//! However the broker ends, the socket closes, and the leash ends the whole group. If it is the
//! leash that is killed, the broker does so.

use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

mod backoff;
mod command;
pub mod leash;
mod output;
mod process;
mod tokens;

pub use command::{CommandError, DriverCommand};
pub use tokens::Tokens;

use backoff::{Backoff, Pace};
use output::Output;
use process::Process;

/// Keeps a driver program running until `shutdown`, and returns when nothing of it is left.
///
/// `shutdown` should come when the drivers have been drained: from then on the program has
/// [`leash::GRACE`] to leave. Commands are numbered in the order of these calls, not of their first
/// polls, so that each program keeps its instance id over restarts of the broker.
pub fn supervise(
    command: DriverCommand,
    broker_address: String,
    tokens: Tokens,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    Children::default().supervise(command, broker_address, tokens, shutdown)
}

/// How programs are kept running; other than the default only in tests.
#[derive(Clone, Debug)]
struct Children {
    /// What starts a leash. The program and its arguments follow.
    leash: Vec<OsString>,
    grace: Duration,
    pace: Pace,
    output: Output,
}

impl Default for Children {
    fn default() -> Self {
        Self {
            leash: vec![own_executable(), "leash".into(), "--".into()],
            grace: leash::GRACE,
            pace: Pace::default(),
            output: Output::stderr(),
        }
    }
}

impl Children {
    fn supervise(
        self,
        command: DriverCommand,
        broker_address: String,
        tokens: Tokens,
        shutdown: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let number = tokens.number();
        let instance_id = format!("{}-child-{number}", hostname());
        let process = Process {
            label: format!("{} {number}", command.name()),
            command,
            broker_address,
            instance_id,
            tokens,
            children: self,
        };
        keep_running(process, shutdown)
    }
}

async fn keep_running(process: Process, shutdown: CancellationToken) {
    let driver = &*process.label;
    let mut backoff = Backoff::new(process.children.pace);
    while !shutdown.is_cancelled() {
        let started = Instant::now();
        info!(driver, program = process.command.program(), "starting a driver program");
        let end = process.run(&shutdown).await;
        if shutdown.is_cancelled() {
            info!(driver, %end, "driver program stopped");
            return;
        }
        let again_in = backoff.next(started.elapsed());
        warn!(driver, %end, ?again_in, "driver program ended; it will be started again");
        // Ends early with the shutdown, which the loop's condition sees.
        shutdown.run_until_cancelled(tokio::time::sleep(again_in)).await;
    }
}

/// The program that is running now, even if its file was meanwhile replaced by an update: then the
/// path would lead to another version, or nowhere.
fn own_executable() -> OsString {
    const SELF: &str = "/proc/self/exe";
    if std::fs::exists(SELF).unwrap_or(false) {
        return SELF.into();
    }
    std::env::current_exe().map_or_else(|_| "machine-broker".into(), Into::into)
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
