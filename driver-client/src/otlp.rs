//! Spans to an OpenTelemetry collector, by OTLP over gRPC (feature `otlp`).
//!
//! With this feature the span around the driver's code is a child of the broker's, or of the caller's
//! where the broker exports none, and every span made inside is below it. That holds for any
//! OpenTelemetry layer of the version of `tracing-opentelemetry` that this crate uses. [`start`] makes
//! such a layer for those who have none:
//!
//! ```no_run
//! # async fn program(config: driver_client::Config) -> Result<(), Box<dyn std::error::Error>> {
//! use driver_client::otlp;
//! use tracing_subscriber::{EnvFilter, fmt, prelude::*};
//!
//! let collector = "http://127.0.0.1:4317".parse()?;
//! let (spans, exporter) = otlp::start(collector, &config, &[env!("CARGO_CRATE_NAME")])?;
//! let log = fmt::layer().with_filter(EnvFilter::from_default_env());
//! tracing_subscriber::registry().with(log).with(spans).init();
//! // driver_client::run(config, MyCloud).await?;
//! exporter.stop().await;
//! # Ok(())
//! # }
//! ```

use tracing::Subscriber;
use tracing_subscriber::registry::LookupSpan;

pub use broker_otlp::{BoxedLayer, Endpoint, Error, Exporter, NotAnEndpoint};

use crate::Config;

/// A layer that exports the spans of this library and of `crates`, and the hand that stops it. Needs a
/// Tokio runtime.
///
/// Other crates are left out: only their authors know what their spans tell. Nobody waits for the
/// collector; while it is away spans are dropped, and the log says so once a minute.
pub fn start<S>(
    endpoint: Endpoint,
    config: &Config,
    crates: &[&'static str],
) -> Result<(BoxedLayer<S>, Exporter), Error>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    broker_otlp::start(broker_otlp::Settings {
        endpoint,
        // Callers decide; what has none is rare.
        sample: 1.0,
        service: config.name.clone(),
        version: config.version.clone(),
        instance: config.instance_id.clone(),
        crates: [&["driver_client"], crates].concat(),
    })
}
