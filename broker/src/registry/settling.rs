//! Since when a broker that has just started waits for its drivers to return.
//!
//! A broker remembers nothing over a restart, not even that there was one. An operation may still run
//! in a driver that is on its way back, while another instance is here already: a retry sent to that one
//! would be executed twice. So every broker waits from its start on, and where drivers say that they
//! had a session before, from the first of these on: it may have come late because they all do.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dashmap::{DashMap, DashSet};
use tokio::time::Instant;

use crate::driver::{DriverKey, Instance};

/// How long after its start a broker takes returning drivers for a sign of its own restart. Longer
/// than they take to dial again.
const NEW: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Settling {
    born: Instant,
    /// The driver processes that this broker met while it was new.
    met: DashSet<Instance>,
    since: DashMap<DriverKey, Instant>,
    /// Whether anything is in there: mostly not, and it is asked for every change of a machine.
    has_strangers: AtomicBool,
}

impl Settling {
    pub(super) fn new() -> Self {
        Self {
            born: Instant::now(),
            met: DashSet::new(),
            since: DashMap::new(),
            has_strangers: AtomicBool::new(false),
        }
    }

    fn is_new(&self) -> bool {
        self.born.elapsed() < NEW
    }

    pub(super) fn met(&self, instance: &Instance) {
        if self.is_new() {
            self.met.insert(instance.clone());
        }
    }

    /// A driver says that it is back. If we never met it, it is we who are new, and others of the same
    /// keys may be on their way, with operations that nobody has told of yet.
    pub(super) fn returned(&self, instance: &Instance, keys: &[DriverKey]) -> bool {
        let stranger = self.is_new() && !self.met.contains(instance);
        if stranger {
            for key in keys {
                self.since.entry(key.clone()).or_insert_with(Instant::now);
            }
            self.has_strangers.store(true, Ordering::Release);
        }
        stranger
    }

    pub(super) fn since(&self, key: &DriverKey) -> Instant {
        if !self.has_strangers.load(Ordering::Acquire) {
            return self.born;
        }
        self.since.get(key).map_or(self.born, |since| *since)
    }
}
