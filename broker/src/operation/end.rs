//! The end of an operation, and who is told of it.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use futures::task::AtomicWaker;
use smallvec::SmallVec;

use super::Outcome;

/// Whether an operation is over, and whom that concerns.
#[derive(Debug, Default)]
pub(super) struct End {
    /// As the state says, for those who only ask whether it is.
    has_come: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    /// There is nearly always one.
    listeners: SmallVec<[Listener; 1]>,
}

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
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }

    pub(super) fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Acquire)
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        // Mostly it is asked for at once, when it cannot have come.
        if !self.has_come() {
            return None;
        }
        self.state().outcome.clone()
    }

    /// Settles it and tells everyone.
    pub(super) fn come(&self, outcome: Outcome) {
        let listeners = {
            let mut state = self.state();
            state.outcome = Some(outcome);
            self.has_come.store(true, Ordering::Release);
            mem::take(&mut state.listeners)
        };
        for listener in listeners {
            match listener.ear {
                Ear::Task(waker) => waker.wake(),
                Ear::Bell(bell, number) => bell.ring(number),
            }
        }
    }

    pub(super) fn poll(&self, waiter: u64, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.state();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        let waker = context.waker();
        match state.listeners.iter_mut().find(|listener| listener.waiter == waiter) {
            Some(Listener { ear: Ear::Task(known), .. }) => known.clone_from(waker),
            Some(listener) => listener.ear = Ear::Task(waker.clone()),
            None => state.listeners.push(Listener { waiter, ear: Ear::Task(waker.clone()) }),
        }
        Poll::Pending
    }

    /// Rings the bell with `number` once it is over, which may be at once.
    pub(super) fn listen(&self, waiter: u64, bell: Arc<Bell>, number: usize) {
        let mut state = self.state();
        if state.outcome.is_some() {
            drop(state);
            bell.ring(number);
        } else {
            state.listeners.push(Listener { waiter, ear: Ear::Bell(bell, number) });
        }
    }

    /// This waiter does not want to know any more.
    pub(super) fn ignore(&self, waiter: u64) {
        self.state().listeners.retain(|listener| listener.waiter != waiter);
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
