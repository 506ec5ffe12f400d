//! Driver programs that the broker starts itself.
//!
//! [`supervise`] keeps one such program running: it gets the broker's address and a token in its
//! environment and dials back in like any other driver. What it prints appears on our standard
//! error, line by line, as text or as JSON, as our log is.
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

mod command;
pub mod leash;
mod output;
mod process;
mod tokens;

pub use command::{CommandError, DriverCommand};
pub use tokens::Tokens;

use output::Output;
use process::Process;

use crate::{
    backoff::{Backoff, Pace},
    telemetry::LogFormat,
};

/// Keeps a driver program running until `shutdown`, and returns when nothing of it is left.
///
/// `shutdown` should come when the drivers have been drained: from then on the program has
/// [`leash::GRACE`] to leave. Commands are numbered in the order of these calls, not of their first
/// polls, so that each program keeps its instance id over restarts of the broker.
pub fn supervise(
    command: DriverCommand,
    broker: Home,
    tokens: Tokens,
    format: LogFormat,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    Children::printing(format).supervise(command, broker, tokens, shutdown)
}

/// Where a program finds the broker that started it.
#[derive(Clone, Debug)]
pub struct Home {
    pub address: String,
    /// Served with this, if it is TLS.
    pub tls: Option<broker_tls::Server>,
}

impl Home {
    /// What a program is told of it. A variable without a value must not be inherited: the broker's
    /// own environment may be meant for somebody else.
    ///
    /// A program trusts the very certificate that the broker serves, since no CA need be known here.
    /// It reads it whenever it dials, so it finds the next one, too.
    fn variables(&self) -> [(&'static str, Option<OsString>); 6] {
        let file = self.tls.as_ref().map(|tls| tls.files().cert.clone());
        let file = file.map(|file| std::path::absolute(&file).unwrap_or(file).into_os_string());
        let name = self.tls.as_ref().and_then(|tls| tls.certificate().any_name());
        [
            ("BROKER_ADDRESS", Some(self.address.clone().into())),
            ("BROKER_CA", file),
            ("BROKER_SERVER_NAME", name.map(Into::into)),
            ("BROKER_CERT", None),
            ("BROKER_KEY", None),
            ("BROKER_TOKEN_FILE", None),
        ]
    }
}

/// How programs are kept running; in another way only in tests.
#[derive(Clone, Debug)]
struct Children {
    /// What starts a leash. The program and its arguments follow.
    leash: Vec<OsString>,
    grace: Duration,
    pace: Pace,
    output: Output,
}

impl Children {
    fn printing(format: LogFormat) -> Self {
        Self {
            leash: vec![own_executable(), "leash".into(), "--".into()],
            grace: leash::GRACE,
            pace: Pace::default(),
            output: Output::stderr(format),
        }
    }

    fn supervise(
        self,
        command: DriverCommand,
        broker: Home,
        tokens: Tokens,
        shutdown: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let number = tokens.number();
        let instance_id = format!("{}-child-{number}", hostname());
        let process = Process {
            label: format!("{} {number}", command.name()),
            command,
            broker,
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
