//! Spans to an OpenTelemetry collector, by OTLP over gRPC.
//!
//! Nobody waits for the collector: a span that ended goes into a bounded queue, a thread of its own
//! sends batches, and what cannot be sent is dropped and [told of](export), now and then.
//!
//! [`start`] gives a layer for the subscriber, with a filter of its own, so that spans are exported
//! whatever is logged. [`join`] makes a span a part of its caller's trace.

mod context;
mod endpoint;
mod export;
mod queue;

use std::time::Duration;

use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use tracing::{Metadata, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{Layer, filter::FilterFn, registry::LookupSpan};

pub use self::{
    context::{Headers, ended, join},
    endpoint::{Endpoint, NotAnEndpoint},
};
use self::{export::Watched, queue::Queue};

/// How long the last spans may take to get out when the program stops.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// Whose spans go where.
#[derive(Clone, Debug)]
pub struct Settings {
    pub endpoint: Endpoint,
    /// Of traces that begin here, how many are exported: from 0 to 1. Those that began elsewhere are
    /// if they are there.
    pub sample: f64,
    /// `service.name`
    pub service: String,
    /// `service.version`
    pub version: String,
    /// `service.instance.id`
    pub instance: Option<String>,
    /// Only spans of these crates are exported: those of others may say what is nobody's business.
    pub crates: Vec<&'static str>,
}

/// Why spans cannot be exported at all.
#[derive(Debug, thiserror::Error)]
#[error("spans cannot be exported to {endpoint}: {why}")]
pub struct Error {
    endpoint: Endpoint,
    why: String,
}

/// A part of a subscriber.
pub type BoxedLayer<S> = Box<dyn Layer<S> + Send + Sync>;

/// The layer that exports spans, and the hand that stops it. Needs a Tokio runtime.
pub fn start<S>(settings: Settings) -> Result<(BoxedLayer<S>, Exporter), Error>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let Settings { endpoint, sample, service, version, instance, crates } = settings;
    let exporter = Watched::new(&endpoint).map_err(|why| Error { endpoint, why })?;
    let instance = instance.map(|instance| KeyValue::new("service.instance.id", instance));
    let resource = Resource::builder()
        .with_service_name(service)
        .with_attribute(KeyValue::new("service.version", version))
        .with_attributes(instance)
        .build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Queue::new(exporter))
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample))))
        .with_resource(resource)
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("machine-broker"))
        // Nothing but the fields that a span was given.
        .with_location(false)
        .with_threads(false)
        .with_level(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(
            FilterFn::new(move |metadata| is_wanted(metadata, &crates))
                .with_max_level_hint(LevelFilter::DEBUG),
        );
    Ok((layer.boxed(), Exporter(provider)))
}

/// Spans, and no events: their messages may hold what a cloud or a driver said. Without the filter by
/// crate the export of spans would make spans itself, without end.
fn is_wanted(metadata: &Metadata<'_>, crates: &[&str]) -> bool {
    let (of, _) = metadata.target().split_once("::").unwrap_or((metadata.target(), ""));
    metadata.is_span() && *metadata.level() <= LevelFilter::DEBUG && crates.contains(&of)
}

/// Ends the export. Dropped without a [`stop`](Self::stop), the last few seconds are lost.
#[derive(Debug)]
#[must_use]
pub struct Exporter(SdkTracerProvider);

impl Exporter {
    /// Sends what is left, for two seconds at most. Spans that end later are dropped.
    pub async fn stop(self) {
        let flush = move || self.0.shutdown_with_timeout(FLUSH_WITHIN);
        match tokio::task::spawn_blocking(flush).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans were not exported in time"),
            Err(panic) => tracing::error!(%panic, "the export of spans did not stop"),
        }
    }
}
