//! Callers that make machines, each repeating its request until it knows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use broker_tests::{
    caller::{Ask, Caller},
    chance::Chance,
    history::Verb,
};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use crate::presence::Presence;

/// Most calls wait until they know.
const PATIENT: Duration = Duration::from_secs(60);
/// The others are gone before a restarted broker has settled.
const IMPATIENT_MILLIS: std::ops::Range<usize> = 500..5_000;
const IMPATIENT_PERCENT: usize = 20;
/// Between a failure and the next try.
const PAUSE_MILLIS: std::ops::Range<usize> = 20..200;

/// Dropping it ends the callers.
pub(super) struct Load {
    creates: usize,
    at_once: usize,
    made: watch::Receiver<usize>,
    callers: JoinSet<()>,
}

impl Load {
    pub(super) fn start(
        creates: usize,
        at_once: usize,
        seed: u64,
        caller: &Caller,
        presence: &Arc<Presence>,
    ) -> Self {
        let (done, made) = watch::channel(0);
        let (done, next) = (Arc::new(done), Arc::new(AtomicUsize::new(0)));
        let mut callers = JoinSet::new();
        // So few that most machines are still to be asked for when the first are made.
        let at_once = at_once.min(creates.div_ceil(4));
        for number in 0..at_once {
            let (caller, presence) = (caller.clone(), Arc::clone(presence));
            let (done, next) = (Arc::clone(&done), Arc::clone(&next));
            let chance = Chance::new(seed, &format!("caller-{number}"));
            callers.spawn(async move {
                loop {
                    let machine = next.fetch_add(1, Ordering::Relaxed);
                    if machine >= creates {
                        return;
                    }
                    create(&format!("worker-{machine}"), &caller, &presence, &chance).await;
                    done.send_modify(|done| *done += 1);
                }
            });
        }
        Self { creates, at_once, made, callers }
    }

    /// After so many are made there are still some to come when a kill comes a moment later.
    pub(super) fn last_moment(&self) -> usize {
        self.creates.saturating_sub(2 * self.at_once).max(1)
    }

    /// Waits until so many are made.
    pub(super) async fn made(&mut self, wanted: usize) {
        // An error says that all callers have ended, and with them what they made.
        drop(self.made.wait_for(|made| *made >= wanted).await);
    }

    pub(super) fn missing(&self) -> usize {
        self.creates - *self.made.borrow()
    }

    /// Waits for all callers.
    pub(super) async fn ended(&mut self) {
        while let Some(ended) = self.callers.join_next().await {
            ended.expect("a caller does not panic");
        }
    }
}

/// Whoever runs this gives up, not the caller.
async fn create(machine: &str, caller: &Caller, presence: &Presence, chance: &Chance) {
    loop {
        let time = match chance.percent(IMPATIENT_PERCENT) {
            true => chance.millis(IMPATIENT_MILLIS),
            false => PATIENT,
        };
        let ask = Ask::new(Verb::Create, machine, time);
        if presence.ask(caller, &ask).await.is_success() {
            return;
        }
        sleep(chance.millis(PAUSE_MILLIS)).await;
    }
}
