//! One file per group of commands. Each fetches, turns the answer into a view, and prints that.

mod classes;
mod completions;
mod contexts;
mod drivers;
mod log;
mod machines;
mod operations;
mod status;
mod top;

use std::time::{Duration, SystemTime};

use broker_proto::v1::ClassRef;
use serde::Serialize;

use self::operations::OperationView;
use crate::{
    Exit, Failure, age,
    client::Broker,
    output::{Look, Output},
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Online(Online),
    /// List, choose and change the brokers that this command line knows by name
    #[command(visible_alias = "context")]
    Contexts(contexts::Contexts),
    /// Print what makes a shell complete this command line
    Completions(completions::Completions),
}

/// What takes a broker.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Online {
    /// Say whether all is well, and if not, what to do
    Status(status::Status),
    /// Show drivers and running operations live
    Top(top::Top),
    /// List, watch, ping, drain and evict drivers
    #[command(visible_alias = "driver")]
    Drivers(drivers::Drivers),
    /// List and watch operations: those that run, and those that ended lately
    #[command(visible_aliases = ["operation", "ops"])]
    Operations(operations::Operations),
    /// List the machine classes of the catalog, and who serves them
    #[command(visible_alias = "class")]
    Classes(classes::Classes),
    /// Create, look at and delete machines
    #[command(visible_alias = "machine", subcommand)]
    Machines(machines::Machines),
    /// Tell or change what the broker logs, while it runs
    Log(log::Log),
}

impl Online {
    pub(crate) async fn run(self, session: &mut Session<'_, '_>) -> Result<Exit, Failure> {
        match self {
            Self::Status(status) => return status.run(session).await,
            Self::Top(top) => top.run(session).await?,
            Self::Drivers(drivers) => drivers.run(session).await?,
            Self::Operations(operations) => operations.run(session).await?,
            Self::Classes(classes) => classes.run(session).await?,
            Self::Machines(machines) => machines.run(session).await?,
            Self::Log(log) => log.run(session).await?,
        }
        Ok(Exit::Ok)
    }
}

/// What every command works with.
pub(crate) struct Session<'a, 'c> {
    pub(crate) broker: Broker,
    pub(crate) output: Output<'a, 'c>,
}

/// A machine class, as data. What was not said of it is left out.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClassView {
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    provider: String,
}

impl From<ClassRef> for ClassView {
    fn from(class: ClassRef) -> Self {
        let ClassRef { api_version, kind, namespace, name, provider } = class;
        // As the wire has it: empty means "default".
        let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
        Self { api_version, kind, namespace, name, provider }
    }
}

impl ClassView {
    fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A wire time, if it is one at all.
fn time(timestamp: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    timestamp.and_then(|timestamp| timestamp.try_into().ok())
}

fn duration(duration: Option<prost_types::Duration>) -> Option<Duration> {
    duration.and_then(|duration| duration.try_into().ok())
}

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// Seconds as a script wants them: no digits beyond the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

/// How long ago, as far as it is known. The broker's clock may be ahead of ours.
fn ago(time: Option<SystemTime>, look: &Look) -> String {
    time.map_or(String::new(), |time| age::human(look.now.duration_since(time).unwrap_or_default()))
}

/// An age, or nothing.
fn age_of(time: Option<Duration>) -> String {
    time.map_or(String::new(), age::human)
}

/// `1 class`, `2 classes`.
fn count(number: u32, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
