//! Logs.

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use anyhow::Context as _;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry, layer::SubscriberExt as _, reload,
    util::SubscriberInitExt as _,
};

use crate::config;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For machines: one object per line
    Json,
}

/// What is logged, and can be changed while it is.
#[derive(Clone, Debug)]
pub struct Filter(reload::Handle<EnvFilter, Registry>);

/// Starts logging to stderr; stdout is for what a command prints. `filter` is as in `RUST_LOG`.
pub fn start(filter: &str, format: LogFormat) -> anyhow::Result<Filter> {
    let (filter, handle) = reload::Layer::new(parsed(filter)?);
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(colour);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(Filter(handle))
}

impl Filter {
    pub fn set(&self, filter: &str) -> anyhow::Result<()> {
        self.0.reload(parsed(filter)?).context("logging is over")
    }

    /// On every hangup, logs what the configuration file says by then, or else what was logged at the
    /// start. A file that is wrong changes nothing.
    pub async fn follow(
        self,
        mut hangups: Signal,
        file: Option<PathBuf>,
        at_start: String,
        stopped: CancellationToken,
    ) {
        while let Some(Some(())) = stopped.run_until_cancelled(hangups.recv()).await {
            let filter = match &file {
                Some(file) => config::log_filter(file),
                None => Ok(None),
            };
            let filter = filter.map(|filter| filter.unwrap_or_else(|| at_start.clone()));
            match filter.and_then(|filter| self.set(&filter).map(|()| filter)) {
                Ok(filter) => tracing::info!(filter, "log filter read again"),
                Err(error) => tracing::warn!("the log filter stays as it is: {error:#}"),
            }
        }
    }
}

fn parsed(filter: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(filter).map_err(|error| anyhow::anyhow!("log filter {filter:?}: {error}"))
}
