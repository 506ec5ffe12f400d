//! Logs.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For machines: one object per line
    Json,
}

/// Starts logging to stderr; stdout is for what a command prints. `filter` is as in `RUST_LOG`.
pub fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| anyhow::anyhow!("log filter {filter:?}: {error}"))?;
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(colour);
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
    Ok(())
}
