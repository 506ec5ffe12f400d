//! Lines that wait for the disk: whoever has a record writes its line here, and a thread takes them away.

use std::{
    mem,
    sync::{Condvar, Mutex, MutexGuard},
    time::Duration,
};

use super::{Record, line::Clock};

/// How much is worth a write of its own. Waking the thread is not cheap: with a quarter of this it was woken
/// three thousand times a second at full speed, for a twentieth of what the broker uses.
pub(super) const FULL: usize = 256 * 1024;
/// How long lines are waited for: so often it is looked whether lines that were lost can be owned up to,
/// without new ones.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub(super) struct Pending {
    /// How many bytes may wait.
    room: usize,
    /// How long a few lines are gathered: whoever writes one meanwhile wakes nobody, and many lines are
    /// one write.
    gather: Duration,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// Whole ones.
    lines: Vec<u8>,
    clock: Clock,
    is_closing: bool,
    /// Nobody takes any more.
    is_over: bool,
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
        let State { lines, clock, is_over, .. } = &mut *state;
        let before = lines.len();
        if before >= self.room || *is_over {
            return false;
        }
        record.write_to(lines, clock);
        let after = lines.len();
        drop(state);
        // The first line begins the gathering, and one ends it before its time. Waking is not cheap.
        if before == 0 || before < FULL && after >= FULL {
            self.news.notify_one();
        }
        true
    }

    /// Waits for lines, and for a while for more of them. Takes all, and leaves the room of `taken`.
    pub(super) fn take(&self, taken: &mut Vec<u8>) -> More {
        taken.clear();
        // A disk that hung makes much room.
        taken.shrink_to(2 * FULL);
        let wait = |state, time, until: fn(&State) -> bool| {
            let waited = self.news.wait_timeout_while(state, time, |state| !until(state));
            waited.expect("no panic while locked").0
        };
        let state = self.lock();
        let state = wait(state, LOOK_AGAIN, |state| !state.lines.is_empty() || state.is_closing);
        let mut state = match state.lines.len() {
            0 => state,
            _ => wait(state, self.gather, |state| state.lines.len() >= FULL || state.is_closing),
        };
        mem::swap(&mut state.lines, taken);
        if state.is_closing { More::Closing } else { More::MayCome }
    }

    /// Nothing is gathered any more.
    pub(super) fn close(&self) {
        self.lock().is_closing = true;
        self.news.notify_one();
    }

    /// Lets nothing in any more, unless there is something left to take. Says whether it did.
    pub(super) fn end_if_empty(&self) -> bool {
        let mut state = self.lock();
        state.is_over = state.lines.is_empty();
        state.is_over
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Event, Outcome};

    #[test]
    fn what_came_before_the_end_is_taken_and_nothing_comes_after_it() {
        let pending = Pending::new(FULL, Duration::MAX);
        let put = || pending.put(&Record::new(Event::Operation, Outcome::Ok));
        pending.close();
        assert!(put(), "it is not over yet");
        assert!(!pending.end_if_empty(), "there is a line");
        let mut lines = Vec::new();
        assert_eq!(pending.take(&mut lines), More::Closing);
        assert!(lines.ends_with(b"}\n"));
        assert!(pending.end_if_empty());
        assert!(!put());
    }
}
