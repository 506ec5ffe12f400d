//! Whether a caller has every reason to expect the broker's own answer.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use broker_tests::{
    caller::{Ask, Caller},
    history::{Delivery, End},
};

/// The broker answers shortly before a call's deadline. On a busy machine that may come too late, so
/// only calls that seldom get there are held to it.
const LONG_ENOUGH: Duration = Duration::from_secs(20);

/// Which broker process there is, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Even while there is one.
    process: AtomicU64,
    /// The last process that was heard from, plus one: whoever was heard is connected.
    heard: AtomicU64,
    waiting: AtomicUsize,
}

impl Presence {
    /// The broker is about to be killed, stopped or cut off.
    pub(crate) fn leaves(&self) {
        self.process.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn is_back(&self) {
        self.process.fetch_add(1, Ordering::SeqCst);
    }

    /// How many calls are under way.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Asks once.
    pub(crate) async fn ask(&self, caller: &Caller, ask: &Ask) -> End {
        let process = self.process.load(Ordering::SeqCst);
        let connected = self.heard.load(Ordering::SeqCst) == process + 1;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let end = caller
            .ask(ask, |end| {
                let same = self.process.load(Ordering::SeqCst) == process;
                if same && process.is_multiple_of(2) && is_of_the_broker(end) {
                    self.heard.store(process + 1, Ordering::SeqCst);
                }
                same && connected && ask.time >= LONG_ENOUGH
            })
            .await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        end
    }
}

fn is_of_the_broker(end: &End) -> bool {
    match end {
        End::Left | End::Failed { delivery: Delivery::Untold, .. } => false,
        End::Machine { .. } | End::Gone | End::Listed(_) | End::Failed { .. } => true,
    }
}
