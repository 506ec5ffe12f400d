//! One file per group of commands. Each fetches, turns the answer into a view, and prints that.

mod drivers;
mod machines;
mod operations;

use std::time::{Duration, SystemTime};

use broker_proto::v1::ClassRef;
use serde::Serialize;

use crate::{Failure, client::Broker, output::Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the drivers that are connected now
    #[command(visible_alias = "driver")]
    Drivers(drivers::Drivers),
    /// List the operations that run, and those that ended lately
    #[command(visible_aliases = ["operation", "ops"])]
    Operations(operations::Operations),
    /// Create, look at and delete machines
    #[command(visible_alias = "machine", subcommand)]
    Machines(machines::Machines),
}

impl Command {
    pub(crate) async fn run(self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        match self {
            Self::Drivers(drivers) => drivers.run(session).await,
            Self::Operations(operations) => operations.run(session).await,
            Self::Machines(machines) => machines.run(session).await,
        }
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
