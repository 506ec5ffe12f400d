//! What went wrong, what to do about it, and the exit code of it. Pure: no room here talks to
//! anyone.

mod report;

use std::{borrow::Cow, error::Error, fmt, process::ExitCode, time::Duration};

use broker_tls::client;
use tonic::{Code, Status};

use crate::{age, args::Address, table::printable};
use report::{Delivery, Report};

const AGAIN: &str = "run the same command again";
/// In the words of h2, whose errors we see only as text.
const INVALID_SIZE: &str = "frame with invalid size";

/// How `brokerctl` ends. The numbers are promised to scripts in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    /// Definite: the driver's answer, or the broker's refusal.
    Failed = 1,
    /// As clap has it for a command line that is wrong.
    Usage = 2,
    NoBroker = 3,
    /// It may have happened, or may still happen: the same command again tells.
    OutcomeUnknown = 4,
    /// Nothing reached a driver, and later it may work.
    NotNow = 5,
    NotFound = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failure as the operator sees it: an error, and lines that help.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
    advice: Vec<Cow<'static, str>>,
}

/// What was asked, as far as a failure's meaning depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) of: &'a Address,
    /// What it would have changed in the world: then "unknown" is something to worry about.
    pub(crate) change: Option<Change>,
    /// The caller would have waited for a driver.
    pub(crate) waited: bool,
}

/// A change of a machine, or of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Create,
    Initialize,
    Delete,
    Drain,
    Evict,
}

impl Change {
    /// For whom left before the answer. The driver is told to stop and may undo what it did, so
    /// the same command again joins it, gets its answer or has it done anew: each is good.
    fn after_leaving(self, again: &str) -> Vec<Cow<'static, str>> {
        let aim = match self {
            Self::Create => "make sure that the machine exists, or delete it",
            Self::Initialize => "make sure that the machine is initialized",
            Self::Delete => "make sure that the machine is gone",
            Self::Drain | Self::Evict => return vec![self.to_learn(again)],
        };
        vec!["the driver is told to stop".into(), format!("{again} to {aim}").into()]
    }

    /// How to find out whether it happened.
    fn to_learn(self, again: &str) -> Cow<'static, str> {
        match self {
            // Under the same name there may be a new session by now, which nobody wants to evict.
            Self::Evict => "see with `brokerctl drivers` whether it is still there".into(),
            _ => format!("{again} to learn it").into(),
        }
    }
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), advice: Vec::new() }
    }

    pub(crate) fn advise(mut self, line: impl Into<Cow<'static, str>>) -> Self {
        self.advice.push(line.into());
        self
    }

    pub(crate) fn no_broker(address: &Address, error: &(dyn Error + 'static)) -> Self {
        if let Some(failure) = client::Failure::in_chain(error).filter(|failure| failure.is_tls()) {
            // Somebody does answer, or nobody was asked; it says what to do by itself.
            let exit = match failure {
                client::Failure::Ours(_) => Exit::Usage,
                _ => Exit::NoBroker,
            };
            return Self::new(exit, format!("no connection to {address}: {failure}"));
        }
        let message = format!("no broker answers at {address}: {}", root(error));
        Self::new(Exit::NoBroker, message).advise(
            "start one with `machine-broker dev`, or set --broker, BROKER_ADDRESS or --context",
        )
    }

    /// A token would go where others may read it on the way.
    pub(crate) fn token_in_clear(address: &Address) -> Self {
        Self::new(Exit::Usage, format!("the token is not sent to {address} without TLS"))
            .advise("say https:// and --ca FILE, or leave the token out")
    }

    /// The operator pressed Ctrl-C while `doing` something.
    pub(crate) fn interrupted(doing: &str, change: Change) -> Self {
        let mut failure = Self::new(Exit::OutcomeUnknown, format!("interrupted while {doing}"));
        failure.advice.extend(change.after_leaving(AGAIN));
        failure
    }

    /// Someone is there, but not whom we look for.
    fn stranger(address: &Address) -> Self {
        let message = format!("{address} answers, but is no machine-broker");
        Self::new(Exit::NoBroker, message).advise(
            "is it the --admin address? Set --broker or BROKER_ADDRESS to where drivers connect, \
             the --listen address",
        )
    }

    pub(crate) fn of(status: &Status, asked: Asked<'_>) -> Self {
        let report = Report::of(status);
        if let Some(wanted) = wants_tls(status) {
            return Self::new(Exit::NoBroker, wanted);
        }
        if report.delivery.is_none() && is_stranger(status) {
            return Self::stranger(asked.of);
        }
        let exit = judge(status.code(), report.delivery, asked.change.is_some());
        let message = match (status.message(), report.delivery) {
            // tonic's own words for these would puzzle: they are about its insides.
            (_, None) if timed_out(status.code()) => {
                format!("no answer from {} in time", asked.of)
            }
            (message, None) if lost(status.code()) => {
                let cause = status.source().map_or(message.to_owned(), root);
                format!("the connection to {} broke before the answer: {cause}", asked.of)
            }
            ("", _) => status.code().description().to_owned(),
            (message, _) => message.to_owned(),
        };
        let mut failure = Self::new(exit, message);
        failure.advice.extend(report.place());
        failure.advice.extend(advice(status.code(), &report, exit, asked));
        // One that broke in mid-call was the right one. Without a cause it is words of a stranger.
        let broke = lost(status.code()) && status.source().is_some();
        if report.delivery.is_none() && !broke && doubtful(status.code()) {
            failure = failure.advise(format!(
                "should it persist: is {} the --listen address of a machine-broker?",
                asked.of
            ));
        }
        failure
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.message.lines();
        write!(f, "error: {}", printable(lines.next().unwrap_or_default()))?;
        for line in lines.chain(self.advice.iter().map(AsRef::as_ref)) {
            write!(f, "\n  {}", printable(line))?;
        }
        Ok(())
    }
}

/// Whether a delete was refused only because a driver of 2018 needs the provider's id for it.
pub(crate) fn wants_provider_id(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && Report::of(status).reason == "PROVIDER_ID_REQUIRED"
}

/// Whether the broker answered in time, and it was the driver that did not.
pub(crate) fn driver_is_silent(status: &Status) -> bool {
    Report::of(status).reason == "DRIVER_SILENT"
}

fn judge(code: Code, delivery: Option<Delivery>, changes: bool) -> Exit {
    use Code::{Aborted, NotFound, ResourceExhausted, Unavailable};
    match (delivery, code) {
        (Some(Delivery::Sent | Delivery::Accepted), _) => Exit::OutcomeUnknown,
        (Some(Delivery::Answered), NotFound) => Exit::NotFound,
        (Some(Delivery::Answered), _) => Exit::Failed,
        (Some(Delivery::NotSent), Unavailable | ResourceExhausted | Aborted) => Exit::NotNow,
        (Some(Delivery::NotSent), code) if timed_out(code) => Exit::NotNow,

        // Nobody says how far it got: our own transport, a proxy, or not a broker at all.
        (None, code) if timed_out(code) => Exit::OutcomeUnknown,
        (None, code) if lost(code) && changes => Exit::OutcomeUnknown,
        (None, code) if lost(code) => Exit::NoBroker,
        (None, ResourceExhausted) => Exit::NotNow,

        (_, NotFound) => Exit::NotFound,
        (_, _) => Exit::Failed,
    }
}

/// tonic ends a call whose time is over with CANCELLED, others with DEADLINE_EXCEEDED.
fn timed_out(code: Code) -> bool {
    matches!(code, Code::DeadlineExceeded | Code::Cancelled)
}

/// What tonic makes of a connection that breaks.
fn lost(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Unknown | Code::Internal)
}

/// What someone may say who is no broker.
fn doubtful(code: Code) -> bool {
    lost(code) || code == Code::Unimplemented
}

/// Whether the other side speaks no gRPC at all, so that nothing can have happened.
fn is_stranger(status: &Status) -> bool {
    // The paths and methods of gRPC are foreign to an HTTP server. Whoever says 401, 429 or 503 may
    // as well be a proxy before a broker.
    let refused = status.message().starts_with("grpc-status header missing")
        && ["400", "404", "405", "415"].iter().any(|code| status.message().ends_with(code));
    // What words of HTTP/1, or any other text, are as a frame of HTTP/2.
    let garbled = || status.source().is_some_and(|error| root(error).ends_with(INVALID_SIZE));
    refused || garbled()
}

/// Whether the other side speaks TLS and we did not, so that nothing can have happened.
fn wants_tls(status: &Status) -> Option<String> {
    status.source().map(root).filter(|cause| cause.contains(client::WANTS_TLS))
}

/// What to do, or what may be relied on.
fn advice(code: Code, report: &Report, exit: Exit, asked: Asked<'_>) -> Vec<Cow<'static, str>> {
    let again = match report.retry_after {
        Some(after) => format!("run the same command again after {}", whole_seconds(after)),
        None => AGAIN.to_owned(),
    };
    let mut lines: Vec<Cow<'static, str>> = Vec::new();
    match (exit, asked.change) {
        (Exit::OutcomeUnknown, Some(change)) => {
            lines.push(
                match report.delivery {
                    Some(Delivery::Accepted) => "outcome unknown: a driver was at work on it",
                    _ => "outcome unknown: it may have happened, or may still happen",
                }
                .into(),
            );
            if timed_out(code) {
                lines.extend(change.after_leaving(&again));
            } else {
                lines.push(change.to_learn(&again));
            }
        }
        (Exit::OutcomeUnknown | Exit::NoBroker, _) => {
            lines.push(format!("nothing was changed: {again}").into());
        }
        (Exit::NotNow, _) => {
            lines.push(format!("nothing happened, it is safe to retry: {again}").into());
            if matches!(report.reason.as_str(), "NO_DRIVER" | "DRIVER_NOT_READY") && !asked.waited {
                lines.push("with --wait it waits until a driver is there".into());
            }
        }
        (_, _) if code == Code::Unauthenticated => lines.push(
            "have a token sent: `brokerctl contexts set NAME --address ADDR --token-file FILE`".into(),
        ),
        (_, _) if code == Code::PermissionDenied => lines.push(
            "the broker's policy gives this identity another role: ask who keeps it, or use another \
             --context"
                .into(),
        ),
        (_, _) => match report.delivery {
            Some(Delivery::NotSent) => lines.push("nothing was sent to a driver".into()),
            Some(Delivery::Answered) if report.reason == "UNINITIALIZED" => {
                let id = report.provider_id.as_ref();
                lines.extend(id.map(|id| format!("provider id {id}").into()));
                lines.push(
                    "the machine exists: complete it with `brokerctl machines initialize`".into(),
                );
            }
            Some(Delivery::Answered) if report.retry_after.is_some() => {
                lines.push(format!("this is the driver's answer: {again}").into());
            }
            _ => {}
        },
    }
    lines
}

/// The innermost cause, which is the one that says something.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Rounded up, so that nobody comes back too early.
fn whole_seconds(duration: Duration) -> String {
    let partial = u64::from(duration.subsec_nanos() > 0);
    age::human(Duration::from_secs(duration.as_secs().saturating_add(partial).max(1)))
}

#[cfg(test)]
mod tests;
