//! Lines that wait for the disk: whoever has a record writes its line here, and a thread takes them away.

use std::{
    mem,
    sync::{Condvar, Mutex, MutexGuard},
    time::Duration,
};

use super::{Record, line::Clock};

/// How much is worth a write of its own.
pub(super) const FULL: usize = 64 * 1024;
/// How long an empty one is waited at: so often it is looked whether lines that were lost can be owned
/// up to, without new ones.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub(super) struct Pending {
    /// How many bytes may wait.
    room: usize,
    /// How long lines are gathered from the first one on: whoever writes one meanwhile wakes nobody, and
    /// many lines are one write.
    gather: Duration,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    batch: Batch,
    clock: Clock,
    closing: bool,
    /// Nobody takes any more.
    is_over: bool,
}

/// Whole lines.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) lines: Vec<u8>,
    pub(super) count: u64,
}

/// Whether more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    MayCome,
    /// Only what was on its way.
    Closing,
}

impl Pending {
    pub(super) fn new(room: usize, gather: Duration) -> Self {
        Self { room, gather, state: Mutex::default(), news: Condvar::new() }
    }

    /// Adds a line, unless there is no room, or nobody to take it. Says whether it did.
    #[must_use]
    pub(super) fn put(&self, record: &Record<'_>) -> bool {
        let mut state = self.lock();
        let State { batch, clock, is_over, .. } = &mut *state;
        let before = batch.lines.len();
        if before >= self.room || *is_over {
            return false;
        }
        record.write_to(&mut batch.lines, clock);
        batch.count += 1;
        let after = batch.lines.len();
        drop(state);
        // The first line begins the gathering, and one ends it before its time. Waking is not cheap.
        if before == 0 || before < FULL && after >= FULL {
            self.news.notify_one();
        }
        true
    }

    /// Waits for lines, and for a while for more of them. Takes all, for the room that `batch` has.
    pub(super) fn take(&self, batch: &mut Batch) -> More {
        let wait = |state, time, until: fn(&State) -> bool| {
            let waited = self.news.wait_timeout_while(state, time, |state| !until(state));
            waited.expect("no panic while locked").0
        };
        let state = self.lock();
        let state = wait(state, LOOK_AGAIN, |state| state.batch.count > 0 || state.closing);
        let mut state = match state.batch.count {
            0 => state,
            _ => wait(state, self.gather, |state| state.batch.lines.len() >= FULL || state.closing),
        };
        mem::swap(&mut state.batch, batch);
        if state.closing { More::Closing } else { More::MayCome }
    }

    /// Nothing is gathered any more.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.news.notify_one();
    }

    /// Lets nothing in any more, if nothing has come in: else it is not over.
    pub(super) fn is_over(&self) -> bool {
        let mut state = self.lock();
        state.is_over = state.batch.count == 0;
        state.is_over
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }
}

impl Batch {
    /// Without what it holds, but not all of the room: a disk that hung makes large ones.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.lines.shrink_to(4 * FULL);
        self.count = 0;
    }
}
