//! Who did what: one JSON line per operation and per administrative act, also for those that were
//! refused or denied.
//!
//! The doors and dispatch [`write`](Audit::write) records, which become lines at once; a thread of its own
//! puts these where the operator wants them. Whoever writes never waits for that: when the disk is full
//! or slow lines are lost, counted, and a line says how many once it works again.
//!
//! Nothing secret has a place in a [`Record`]: no user data, no secret, no last known state.

mod file;
mod line;
mod pending;
mod piece;
mod record;
mod target;
mod writer;

use std::{
    fmt, io,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::Duration,
};

use tokio::task::spawn_blocking;

use self::{
    file::File,
    pending::Pending,
    writer::{Counts, Writer},
};
pub use self::{
    piece::{Class, Driver, Who},
    record::{Event, Machine, Outcome, Record, bounded},
    target::{Rotation, Size, Target},
};

/// How many bytes may wait for the disk: some hundred thousand lines, as come within half a second when all
/// is busy. That long a disk may hang, such as when a file of a hundred megabytes is removed.
const ROOM: usize = 64 * 1024 * 1024;
/// How long a line waits for others.
const GATHER: Duration = Duration::from_millis(10);

/// Where records are written. Cheap to clone: every clone is the same audit log; the default is none.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Shared>>);

struct Shared {
    pending: Arc<Pending>,
    counts: Arc<Counts>,
    over: Mutex<Option<Receiver<()>>>,
}

/// What lines are written to.
trait Sink: Send + 'static {
    /// Writes whole lines, all or none.
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;
}

impl Audit {
    /// Opens the file, or says why it cannot be written to.
    pub fn open(target: &Target) -> io::Result<Self> {
        let pending = Pending::new(ROOM, GATHER);
        match target {
            Target::Stdout => Self::to(io::stdout(), pending),
            Target::File(path, rotation) => Self::to(File::open(path.clone(), *rotation)?, pending),
        }
    }

    fn to(sink: impl Sink, pending: Pending) -> io::Result<Self> {
        let (ended, over) = sync_channel(1);
        let counts = Arc::new(Counts::default());
        let writer = Writer::new(sink, Arc::clone(&counts));
        let pending = Arc::new(pending);
        let over = Mutex::new(Some(over));
        let audit = Self(Some(Arc::new(Shared { pending: Arc::clone(&pending), counts, over })));
        // A thread and not a task: a disk that hangs must not keep the runtime from ending. It is
        // waited for in `close`.
        thread::Builder::new().name("audit".to_owned()).spawn(move || {
            writer.run(&pending);
            // Nobody waits for it after a stop that was not in order.
            ended.send(()).ok();
        })?;
        Ok(audit)
    }

    /// Whether there is one: if not, no record needs to be made.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a line, without ever waiting for the disk. The record is made only if there is an audit log.
    pub fn write<'a>(&self, record: impl FnOnce() -> Record<'a>) {
        let Some(shared) = &self.0 else { return };
        if !shared.pending.put(&record()) {
            shared.counts.lose(1);
        }
    }

    /// How many lines were lost since the start.
    pub fn lost(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.counts.lost())
    }

    /// How long ago the last of them was lost.
    pub fn last_lost(&self) -> Option<Duration> {
        self.0.as_ref().and_then(|shared| shared.counts.last_lost())
    }

    /// Writes what still waits, for at most `patience`. What comes after that is lost.
    pub async fn close(&self, patience: Duration) {
        let Some(shared) = &self.0 else { return };
        shared.pending.close();
        let over = shared.over.lock().expect("no panic while locked").take();
        let Some(over) = over else { return };
        // In a thread, since it is one that is waited for: by the clock that it goes by.
        let in_time = spawn_blocking(move || over.recv_timeout(patience).is_ok()).await;
        if !in_time.unwrap_or(false) {
            tracing::error!("the audit log could not be written to its end in time");
        }
    }
}

impl Drop for Shared {
    /// Nobody has it any more: the thread writes the rest and ends.
    fn drop(&mut self) {
        self.pending.close();
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.is_on()).finish()
    }
}

impl Sink for io::Stdout {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut stdout = self.lock();
        io::Write::write_all(&mut stdout, lines)?;
        io::Write::flush(&mut stdout)
    }
}

#[cfg(test)]
mod tests;
