//! The end of an operation, and who is told of it.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    task::{Context, Poll, Waker},
};

use futures::task::AtomicWaker;
use smallvec::SmallVec;

use super::Outcome;

/// Whether an operation is over, and whom that concerns.
#[derive(Debug, Default)]
pub(super) struct End {
    outcome: OnceLock<Outcome>,
    listeners: Mutex<Listeners>,
}

/// There is nearly always one.
type Listeners = SmallVec<[Listener; 1]>;

/// Who is told, each for the waiter of this number.
#[derive(Debug)]
struct Listener {
    waiter: u64,
    ear: Ear,
}

#[derive(Debug)]
enum Ear {
    Task(Waker),
    Bell(Arc<Bell>, usize),
}

impl End {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().expect("no panic while locked")
    }

    pub(super) fn has_come(&self) -> bool {
        self.outcome.get().is_some()
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.outcome.get().cloned()
    }

    /// Settles it and tells everyone.
    pub(super) fn come(&self, outcome: Outcome) {
        // It comes once: there is one ticket. Whoever begins to listen looks for it under the lock, so
        // they find it there or are found here.
        self.outcome.set(outcome).ok();
        let listeners = mem::take(&mut *self.listeners());
        for listener in listeners {
            match listener.ear {
                Ear::Task(waker) => waker.wake(),
                Ear::Bell(bell, number) => bell.ring(number),
            }
        }
    }

    pub(super) fn poll(&self, waiter: u64, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut listeners = self.listeners();
        if let Some(outcome) = self.outcome.get() {
            return Poll::Ready(outcome.clone());
        }
        let waker = context.waker();
        match listeners.iter_mut().find(|listener| listener.waiter == waiter) {
            Some(Listener { ear: Ear::Task(known), .. }) => known.clone_from(waker),
            Some(listener) => listener.ear = Ear::Task(waker.clone()),
            None => listeners.push(Listener { waiter, ear: Ear::Task(waker.clone()) }),
        }
        Poll::Pending
    }

    /// Rings the bell with `number` once it is over, which may be at once.
    pub(super) fn listen(&self, waiter: u64, bell: Arc<Bell>, number: usize) {
        let mut listeners = self.listeners();
        if self.has_come() {
            drop(listeners);
            bell.ring(number);
        } else {
            listeners.push(Listener { waiter, ear: Ear::Bell(bell, number) });
        }
    }

    /// This waiter does not want to know any more.
    pub(super) fn ignore(&self, waiter: u64) {
        self.listeners().retain(|listener| listener.waiter != waiter);
    }
}

/// Tells one task which of its many operations are over.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<Vec<usize>>,
    task: AtomicWaker,
}

impl Bell {
    fn ring(&self, number: usize) {
        let first = {
            let mut rung = self.rung.lock().expect("no panic while locked");
            rung.push(number);
            rung.len() == 1
        };
        // Whoever rings next finds the task awake already.
        if first {
            self.task.wake();
        }
    }

    /// Puts the numbers that were rung into `rung`, which has to be empty. If there are none, the task is
    /// woken by the next one.
    pub fn poll(&self, rung: &mut Vec<usize>, context: &mut Context<'_>) -> Poll<()> {
        // Before looking, so that what comes in between is not missed.
        self.task.register(context.waker());
        mem::swap(rung, &mut self.rung.lock().expect("no panic while locked"));
        if rung.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }
}
