//! The thread that writes lines to where the operator wants them.

use std::{
    io, iter,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    Event, Outcome, Record, Sink,
    line::Clock,
    pending::{FULL, More, Pending},
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
    /// Lines found no room, or could not be written.
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
}

impl<S: Sink> Writer<S> {
    pub(super) fn new(sink: S, counts: Arc<Counts>) -> Self {
        Self { sink, counts, owned_up: 0, said: (0, None), error: None }
    }

    /// Writes until it is told to close and nothing is left.
    pub(super) fn run(mut self, pending: &Pending) {
        let mut lines = Vec::new();
        loop {
            let more = pending.take(&mut lines);
            for piece in pieces(&lines) {
                self.own_up();
                self.write(piece);
            }
            let is_over = more == More::Closing && pending.end_if_empty();
            self.own_up();
            self.say();
            if is_over {
                return;
            }
        }
    }

    /// Writes how many lines are missing, if some are and that was not said.
    fn own_up(&mut self) {
        let lost = self.counts.lost();
        if lost > self.owned_up {
            let missing = Some(lost - self.owned_up);
            let line = Record { lines: missing, ..Record::new(Event::LinesLost, Outcome::Failed) };
            let mut bytes = Vec::new();
            line.write_to(&mut bytes, &mut Clock::default());
            match self.sink.write(&bytes) {
                Ok(()) => self.owned_up = lost,
                Err(error) => self.error = Some(error),
            }
        }
    }

    fn write(&mut self, lines: &[u8]) {
        if let Err(error) = self.sink.write(lines) {
            let count = lines.iter().filter(|byte| **byte == b'\n').count();
            self.counts.lose(count as u64);
            self.error = Some(error);
        }
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

/// Whole lines, together not much more than is worth a write: of a disk that has room for some of them only,
/// or of a file that is to have a size, no more should be asked at once.
fn pieces(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = lines;
    iter::from_fn(move || {
        let beyond = rest.get(FULL..).unwrap_or_default();
        let end = beyond.iter().position(|byte| *byte == b'\n');
        let end = end.map_or(rest.len(), |end| FULL + end + 1);
        rest.split_off(..end).filter(|piece| !piece.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_whole_lines_and_not_too_many() {
        let line = [&[b'x'; 999], b"\n".as_slice()].concat();
        let lines = line.repeat(3 * FULL / line.len());
        let found: Vec<_> = pieces(&lines).collect();
        assert_eq!(found.concat(), lines);
        assert_eq!(found.len(), 3);
        for piece in found {
            assert!(piece.ends_with(b"\n") && piece.len() <= FULL + line.len());
        }
        assert_eq!(pieces(b"").count(), 0);
    }
}
