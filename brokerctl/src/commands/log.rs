//! `brokerctl log`: what the broker logs, and for how long.

use std::time::Duration;

use broker_proto::v1::{LogFilter, SetLogFilterRequest};
use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;

use super::{Session, duration, seconds};
use crate::{
    Failure, age,
    args::timeout,
    output::{Look, View},
    table::printable,
};

const HELP: &str = "\
Examples:
  brokerctl log
  brokerctl log debug --for 10m
  brokerctl log info,broker::dispatch=trace

The change is the broker's own: it lasts until the next one, a hangup signal, or a restart.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Log {
    /// What to log from now on, as in RUST_LOG; without it, what is logged now is told
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    filter: Option<String>,

    /// Go back after this time, such as 10m, to what was logged before
    #[arg(long = "for", value_name = "DURATION", value_parser = timeout, requires = "filter")]
    lasts: Option<Duration>,
}

impl Log {
    pub(crate) async fn run(
        self,
        Session { broker, output }: &mut Session<'_, '_>,
    ) -> Result<(), Failure> {
        let lasts = self.lasts.and_then(|lasts| lasts.try_into().ok());
        let filter = self.filter.unwrap_or_default();
        let request = broker.look(SetLogFilterRequest { filter, lasts });
        let answer = broker.registry().set_log_filter(request).await;
        let answer = answer.map_err(|status| broker.look_failed(&status))?;
        output.print(&LogView::from(answer.into_inner()))
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LogView {
    filter: String,
    previous: String,
    reverts_in_seconds: Option<f64>,
    reverts_to: String,
    #[serde(skip)]
    reverts_in: Option<Duration>,
}

impl From<LogFilter> for LogView {
    fn from(LogFilter { filter, previous, reverts_in, reverts_to }: LogFilter) -> Self {
        let reverts_in = duration(reverts_in);
        let reverts_in_seconds = reverts_in.map(seconds);
        Self { filter, previous, reverts_in_seconds, reverts_to, reverts_in }
    }
}

impl View for LogView {
    fn text(&self, _: Look) -> String {
        let mut text = format!("the broker logs {}", printable(&self.filter));
        if self.previous != self.filter {
            text += &format!(", before {}", printable(&self.previous));
        }
        if let Some(left) = self.reverts_in {
            let to = printable(&self.reverts_to);
            // What was asked for a moment ago is still as long as it was asked for.
            let left = Duration::from_secs_f64(left.as_secs_f64().ceil());
            text += &format!("; in {} again {to}", age::human(left));
        }
        text + "\n"
    }
}
