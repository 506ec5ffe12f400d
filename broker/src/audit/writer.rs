//! The thread that writes lines to where the operator wants them.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    Event, Outcome, Record, Sink,
    line::Clock,
    pending::{Batch, More, Pending},
};

const SAY_AGAIN: Duration = Duration::from_secs(60);

/// What the world and the thread tell each other besides the lines.
#[derive(Debug)]
pub(super) struct Counts {
    born: Instant,
    lost: AtomicU64,
    /// When a line was last lost, in milliseconds since the start.
    last_lost: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        let (lost, last_lost) = Default::default();
        Self { born: Instant::now(), lost, last_lost }
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

    /// Writes until it is told to close and nothing is left.
    pub(super) fn run(mut self, pending: &Pending) {
        let mut batch = Batch::default();
        loop {
            let more = pending.take(&mut batch);
            self.write(&batch);
            batch.clear();
            if more == More::Closing && pending.is_over() {
                return;
            }
        }
    }

    fn write(&mut self, batch: &Batch) {
        let Batch { lines, count } = batch;
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
                if *count > 0 {
                    self.counts.lose(*count);
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
