//! Logs, and spans for a collector.

mod control;

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use broker_otlp::{Endpoint, Exporter};
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt as _,
};

pub use self::control::{LogControl, Wish, mistyped};
use crate::children::DriverCommand;

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

/// Where spans go.
#[derive(Clone, Debug)]
pub struct Otlp {
    pub endpoint: Endpoint,
    /// Of traces that begin here, how many are exported: from 0 to 1.
    pub sample: f64,
}

/// The export of spans, if there is one.
#[derive(Debug)]
#[must_use]
pub struct Spans(Option<Exporter>);

/// Starts logging to stderr; stdout is for what a command prints. `filter` is as in `RUST_LOG`, and is
/// for the log alone: spans go to `otlp` whatever is logged.
pub fn start(
    filter: &str,
    format: LogFormat,
    otlp: Option<Otlp>,
    replica: &str,
) -> anyhow::Result<(Filter, Spans)> {
    let (filter, handle) = reload::Layer::new(parsed(filter)?);
    let Some(Otlp { endpoint, sample }) = otlp else {
        // One filter for everything is the quickest: what is not logged is not even made.
        tracing_subscriber::registry().with(filter).with(discreet()).with(lines(format)).init();
        return Ok((Filter(handle), Spans(None)));
    };
    let (spans, exporter) = broker_otlp::start(broker_otlp::Settings {
        endpoint,
        sample,
        service: "machine-broker".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: Some(replica.to_owned()),
        crates: vec!["broker"],
    })?;
    let lines = lines(format).with_filter(discreet()).with_filter(filter);
    tracing_subscriber::registry().with(lines).with(spans).init();
    Ok((Filter(handle), Spans(Some(exporter))))
}

/// The log itself.
fn lines<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(colour);
    match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    }
}

/// The libraries that carry what we hide: at `trace` they write about single headers and bytes. Whoever
/// asks for that, they are never heard in more detail than `debug`. Release builds do not have it at all, by
/// the feature `no-trace`.
fn discreet() -> Targets {
    const CARRIERS: [&str; 8] =
        ["h2", "hyper", "hyper_util", "rustls", "tokio_rustls", "tokio_util", "tonic", "tower"];
    let carriers = CARRIERS.map(|carrier| (carrier, LevelFilter::DEBUG));
    Targets::new().with_default(LevelFilter::TRACE).with_targets(carriers)
}

/// The same driver programs, told where their spans go: they belong to the same traces.
pub fn told(programs: Vec<DriverCommand>, otlp: Option<&Otlp>) -> Vec<DriverCommand> {
    let Some(Otlp { endpoint, .. }) = otlp else { return programs };
    let told = |program: DriverCommand| program.env("BROKER_OTLP_ENDPOINT", endpoint.as_str());
    programs.into_iter().map(told).collect()
}

impl Spans {
    /// Sends the last ones, for a bounded time.
    pub async fn stop(self) {
        if let Some(exporter) = self.0 {
            exporter.stop().await;
        }
    }
}

impl Filter {
    pub fn set(&self, filter: &str) -> anyhow::Result<()> {
        self.0.reload(parsed(filter)?).context("logging is over")
    }
}

fn parsed(filter: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(filter).map_err(|error| anyhow::anyhow!("log filter {filter:?}: {error}"))
}
