//! The queue of ended spans: bounded, and what finds it full is counted.
//!
//! The batch processor would drop it, too, but say so once and no more, and on the thread of whoever
//! ended the span.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use opentelemetry::Context;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanProcessor},
};

use crate::export::Watched;

/// How many ended spans may wait to be sent.
const ROOM: usize = 8192;

#[derive(Debug)]
pub(crate) struct Queue {
    batches: BatchSpanProcessor,
    room: Arc<Room>,
}

/// What the queue and the one who empties it both know.
#[derive(Debug, Default)]
pub(crate) struct Room {
    taken: AtomicUsize,
    turned_away: AtomicUsize,
}

impl Queue {
    pub(crate) fn new(exporter: Watched) -> Self {
        let room = exporter.room();
        let config = BatchConfigBuilder::default().with_max_queue_size(ROOM).build();
        Self { batches: BatchSpanProcessor::new(exporter, config), room }
    }
}

impl Room {
    fn enter(&self) -> bool {
        // Relaxed: numbers only, nothing is read by them.
        if self.taken.fetch_add(1, Ordering::Relaxed) < ROOM {
            return true;
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// So many left. How many were turned away since the last time?
    pub(crate) fn leave(&self, spans: usize) -> usize {
        self.taken.fetch_sub(spans, Ordering::Relaxed);
        self.turned_away.swap(0, Ordering::Relaxed)
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.room.enter() {
            self.batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_room_is_turned_away_and_counted() {
        let room = Room::default();
        let entered = (0..ROOM + 3).filter(|_| room.enter()).count();
        assert_eq!(entered, ROOM);
        assert_eq!(room.leave(ROOM), 3);
        assert!(room.enter());
        assert_eq!(room.leave(1), 0);
    }
}
