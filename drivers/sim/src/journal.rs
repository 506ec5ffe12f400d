//! What drivers did, a line each, for tests that have to know all of it: which operations were
//! executed, from when to when, and which VMs there were.
//!
//! Several processes append to one file, and any of them may be killed. So a line is one write, and what
//! may be cut short is announced first: a VM is known before it is there, and its end before it goes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use driver_client::Operation;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Cheap to clone. Without a file nothing is written.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    file: Option<Arc<File>>,
    executions: Arc<AtomicU64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// By [`Journal::now`].
    pub at: u64,
    pub process: u32,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum What {
    /// The driver's code begins; the number is the process's own.
    Began {
        number: u64,
        verb: String,
        machine: String,
        traceparent: Option<String>,
    },
    Ended {
        number: u64,
    },
    /// A VM is about to be there.
    Making {
        id: String,
        machine: String,
    },
    /// A VM is about to go.
    Removing {
        id: String,
    },
    Removed {
        id: String,
    },
}

impl Journal {
    pub fn open(file: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(file)?;
        Ok(Self { file: Some(Arc::new(file)), ..Self::default() })
    }

    /// Nanoseconds on a clock that all processes of this system share, and that nobody sets.
    pub fn now() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        let parts = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
        let (Ok(seconds), Ok(nanos)) = parts else { unreachable!("it counts from the start") };
        seconds * 1_000_000_000 + nanos
    }

    pub(crate) fn write(&self, what: What) {
        let Some(mut file) = self.file.as_deref() else { return };
        let line = Line { at: Self::now(), process: process::id(), what };
        let mut text = serde_json::to_vec(&line).expect("a line is plain data");
        text.push(b'\n');
        if let Err(error) = file.write_all(&text) {
            // A test that reads on would believe that nothing happened.
            panic!("cannot write the journal: {error}");
        }
    }

    /// Until the guard is dropped, however that comes about.
    pub(crate) fn executing(&self, op: &Operation) -> Executing {
        let number = self.executions.fetch_add(1, Ordering::Relaxed);
        let (verb, machine) = (op.verb().to_string(), op.machine_name().to_owned());
        let traceparent = op.traceparent().map(str::to_owned);
        self.write(What::Began { number, verb, machine, traceparent });
        Executing { journal: self.clone(), number }
    }
}

#[derive(Debug)]
pub(crate) struct Executing {
    journal: Journal,
    number: u64,
}

impl Drop for Executing {
    fn drop(&mut self) {
        self.journal.write(What::Ended { number: self.number });
    }
}
