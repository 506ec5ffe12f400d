//! A catalog from a folder of ordinary Kubernetes YAML, watched.
//!
//! How a change on disk arrives:
//!
//! 1. The operating system's notification wakes [`Directory::watch`]; a slow timer does so too,
//!    because notifications can be lost (network file systems, full queues, a folder that was
//!    itself exchanged).
//! 2. Once the folder is quiet, all of it is read again and files with new content are parsed.
//! 3. A file that is broken is reported with its line, and what it said last stays in force.
//! 4. The new snapshot replaces the old one in one step, and changed secrets are announced.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use tokio::sync::broadcast;
use tracing::info;

use super::{Catalog, Class, Error, Problem, Secret, SecretName, snapshot::Store};
use crate::driver::ClassId;

mod files;
mod listing;
mod watch;

use files::Files;

/// The classes and secrets in the files of a folder.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    store: Store,
    /// Locked for the whole of a reload, so that two of them cannot overtake each other.
    files: Mutex<Files>,
}

impl Directory {
    /// Loads a folder: every `*.yaml`, `*.yml` and `*.json` in it and below it, except what begins
    /// with a dot. Reads from disk, so call it before serving. A file that is broken is a
    /// [`Problem`]; only a folder that cannot be read at all is an error.
    pub fn open(root: impl Into<PathBuf>) -> Result<Arc<Self>, Error> {
        let root = root.into();
        check(&root)?;
        let mut files = Files::default();
        let snapshot = files.read(&root).snapshot;
        Ok(Arc::new(Self { root, store: Store::new(snapshot), files: Mutex::new(files) }))
    }

    /// Reads the folder again, now. Blocks while it reads. Says whether anything is different.
    pub fn reload(&self) -> bool {
        // A panic half-way leaves some files new and some old, which the next reload mends.
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = files.read(&self.root);
        match reading.changed {
            true => self.store.publish(reading.snapshot),
            false => self.store.confirm(),
        }
        if reading.taken {
            info!(folder = %self.root.display(), "catalog reloaded");
        }
        reading.changed
    }
}

impl Catalog for Directory {
    fn class(&self, id: &ClassId) -> Option<Arc<Class>> {
        self.store.class(id)
    }

    fn classes(&self) -> Vec<Arc<Class>> {
        self.store.classes()
    }

    fn secret(&self, name: &SecretName) -> Option<Arc<Secret>> {
        self.store.secret(name)
    }

    fn secrets(&self) -> usize {
        self.store.secrets()
    }

    fn version(&self) -> u64 {
        self.store.version()
    }

    fn last_good(&self) -> Option<SystemTime> {
        self.store.last_good()
    }

    fn changes(&self) -> broadcast::Receiver<SecretName> {
        self.store.changes()
    }

    fn problems(&self) -> Vec<Problem> {
        self.store.problems()
    }
}

fn check(root: &Path) -> Result<(), Error> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoFolder(root.to_owned()),
        _ => Error::Unreadable(root.to_owned(), error),
    };
    if !fs::metadata(root).map_err(unreadable)?.is_dir() {
        return Err(Error::NotAFolder(root.to_owned()));
    }
    fs::read_dir(root).map(drop).map_err(unreadable)
}

#[cfg(test)]
mod tests;
