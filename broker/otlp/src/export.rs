//! Sending, and saying so when it does not work, but not every time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter as Export},
};

use crate::{Endpoint, queue::Room};

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long a batch may take.
const SEND_WITHIN: Duration = Duration::from_secs(5);
/// How often a failure is worth a line.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// An exporter that says what is lost, in the log, at most once a minute.
#[derive(Debug)]
pub(crate) struct Watched {
    exporter: SpanExporter,
    room: Arc<Room>,
    losses: Mutex<Losses>,
}

impl Watched {
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, String> {
        // Our own channel, since that of the crate waits for a connection without a bound.
        let channel = tonic::transport::Endpoint::from_shared(endpoint.as_str().to_owned())
            .map_err(|error| error.to_string())?
            .connect_timeout(CONNECT_WITHIN)
            .timeout(SEND_WITHIN)
            .connect_lazy();
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_channel(channel)
            .with_timeout(SEND_WITHIN)
            .build();
        let exporter = exporter.map_err(|error| error.to_string())?;
        Ok(Self { exporter, room: Arc::default(), losses: Mutex::default() })
    }

    pub(crate) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }
}

impl Export for Watched {
    /// Never fails, since the caller could only log it, every time.
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        let turned_away = self.room.leave(spans);
        let (lost, why) = match result {
            Ok(()) => (turned_away, "more come than the collector takes".to_owned()),
            Err(error) => (turned_away + spans, error.to_string()),
        };
        // No code under this lock panics.
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        if lost > 0 {
            if let Some(lost) = losses.more(lost, Instant::now()) {
                tracing::warn!(lost, why, "spans are lost");
            }
        } else if let Some(lost) = losses.over() {
            tracing::info!(lost, "spans are exported again");
        }
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// What was lost since spans last got through. Pure.
#[derive(Debug, Default)]
struct Losses {
    spans: usize,
    said: Option<Instant>,
}

impl Losses {
    /// How many were lost by now, if it is time to say so.
    fn more(&mut self, spans: usize, now: Instant) -> Option<usize> {
        self.spans += spans;
        if self.said.is_some_and(|said| now < said + SAY_AGAIN) {
            return None;
        }
        self.said = Some(now);
        Some(self.spans)
    }

    /// How many were lost in all, if any were.
    fn over(&mut self) -> Option<usize> {
        // A collector that comes and goes is no reason to say it more often, so `said` stays.
        Some(std::mem::take(&mut self.spans)).filter(|&lost| lost > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_is_away_is_a_line_a_minute() {
        let start = Instant::now();
        let mut losses = Losses::default();
        assert_eq!(losses.over(), None);
        assert_eq!(losses.more(3, start), Some(3));
        for second in 1..60 {
            assert_eq!(losses.more(1, start + Duration::from_secs(second)), None);
        }
        assert_eq!(losses.more(1, start + SAY_AGAIN), Some(63));
        assert_eq!(losses.over(), Some(63));
        assert_eq!(losses.over(), None);
        assert_eq!(losses.more(1, start + SAY_AGAIN + Duration::from_secs(1)), None);
    }
}
