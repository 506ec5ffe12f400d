//! Operations that came together, on their way.
//!
//! Much of what a task costs is its way to another thread, and what ends when it is first polled needs none.
//! So those that came together are first polled one after the other, in one task; what goes on keeps that
//! task for itself, and the others get a new one. Code that blocks its thread would keep the others from
//! beginning: the session that submitted them looks after them before long, and has each of them begin by
//! itself.

use std::{
    collections::VecDeque,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OwnedSemaphorePermit;

use crate::{operation::Operation, operations::ExecutionId};

/// An operation that is to be executed, with its slot, if there was one.
pub(super) struct Execution {
    pub(super) id: ExecutionId,
    pub(super) operation: Operation,
    pub(super) slot: Option<OwnedSemaphorePermit>,
}

/// Those that have not begun.
#[derive(Default)]
pub(crate) struct Round(Mutex<VecDeque<Execution>>);

impl Round {
    pub(super) fn push(&self, execution: Execution) {
        self.lock().push_back(execution);
    }

    pub(super) fn next(&self) -> Option<Execution> {
        self.lock().pop_front()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_empty()
    }

    pub(super) fn take(&self) -> VecDeque<Execution> {
        mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Execution>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
