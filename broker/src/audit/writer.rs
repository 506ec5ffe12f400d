//! The thread that makes lines of records.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use super::{Event, Outcome, Record, Sink, line::Clock};

/// How much is written at once, roughly.
pub(super) const BATCH: usize = 64 * 1024;
/// How often it is looked whether lines that were lost can be owned up to, without new ones.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// What the world and the thread tell each other besides the records.
#[derive(Debug)]
pub(super) struct Counts {
    born: Instant,
    lost: AtomicU64,
    /// When a line was last lost, in milliseconds since the start.
    last_lost: AtomicU64,
    pub(super) closing: AtomicBool,
}

impl Default for Counts {
    fn default() -> Self {
        let (lost, last_lost, closing) = Default::default();
        Self { born: Instant::now(), lost, last_lost, closing }
    }
}

impl Counts {
    /// Lines found the queue full, or could not be written.
    pub(super) fn lose(&self, lines: u64) {
        let now = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_lost.store(now, Ordering::Relaxed);
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// How long ago the last line was lost, if any was.
    pub(super) fn last_lost(&self) -> Option<Duration> {
        let at = Duration::from_millis(self.last_lost.load(Ordering::Relaxed));
        (self.lost() > 0).then(|| self.born.elapsed().saturating_sub(at))
    }
}

pub(super) struct Writer<S> {
    sink: S,
    counts: Arc<Counts>,
    /// How many lost lines a line has owned up to.
    owned_up: u64,
    /// How many of them the log knows of, and since when.
    said: (u64, Option<Instant>),
    error: Option<io::Error>,
    clock: Clock,
}

impl<S: Sink> Writer<S> {
    pub(super) fn new(sink: S, counts: Arc<Counts>) -> Self {
        Self { sink, counts, owned_up: 0, said: (0, None), error: None, clock: Clock::default() }
    }

    /// Writes until it is told to close and nothing is left. Before it takes more than the first record it
    /// has `gather` wait for others, unless there were more than it could take.
    pub(super) fn run(mut self, records: &Receiver<Option<Box<Record>>>, mut gather: impl FnMut()) {
        let mut lines = Vec::with_capacity(2 * BATCH);
        let mut are_more = false;
        loop {
            // Looked at before the queue is, so that nothing queued before the end is left there.
            let closing = self.counts.closing.load(Ordering::Acquire);
            let wait = if closing { Duration::ZERO } else { LOOK_AGAIN };
            let first = match records.recv_timeout(wait) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if first.is_some() && !closing && !are_more {
                gather();
            }
            let mut batch = first.into_iter().chain(records.try_iter().flatten());
            let mut count = 0;
            lines.clear();
            while lines.len() < BATCH
                && let Some(record) = batch.next()
            {
                record.write_to(&mut lines, &mut self.clock);
                count += 1;
            }
            are_more = lines.len() >= BATCH;
            self.write(&lines, count);
            if count == 0 && closing {
                return;
            }
        }
    }

    fn write(&mut self, lines: &[u8], count: u64) {
        let lost = self.counts.lost();
        let result = if lost > self.owned_up {
            let mut all = Vec::with_capacity(lines.len() + 128);
            let missing = Some(lost - self.owned_up);
            let line = Record { lines: missing, ..Record::new(Event::LinesLost, Outcome::Failed) };
            line.write_to(&mut all, &mut self.clock);
            all.extend_from_slice(lines);
            self.sink.write(&all)
        } else if lines.is_empty() {
            return;
        } else {
            self.sink.write(lines)
        };
        match result {
            Ok(()) => self.owned_up = lost,
            Err(error) => {
                if count > 0 {
                    self.counts.lose(count);
                }
                self.error = Some(error);
            }
        }
        self.say();
    }

    /// Tells the log how many lines were lost, not too often.
    fn say(&mut self) {
        let lost = self.counts.lost();
        let (said, at) = self.said;
        if lost > said && at.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            let error = self.error.take().map(|error| error.to_string());
            let why = error.as_deref().unwrap_or("they came faster than they could be written");
            tracing::error!(lines = lost - said, in_all = lost, why, "audit lines are lost");
            self.said = (lost, Some(Instant::now()));
        }
    }
}
