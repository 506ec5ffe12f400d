//! Which of several equal drivers this one is.
//!
//! An instance id has to survive a restart of the process and to differ between two processes of
//! one host. So it is made of the host, the driver's first kind and the first slot of that kind that
//! is free on the host: a locked file in the temporary folder, freed by the system when the process
//! ends, however it ends.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

const SLOTS: u32 = 256;

/// An instance id, and the slot it depends on. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) id: String,
    _slot: Option<File>,
}

impl Instance {
    /// Uses the given id, or finds one for a driver of `kind`.
    pub(crate) fn new(given: Option<String>, kind: &str, folder: &Path) -> Self {
        if let Some(id) = given {
            return Self { id, _slot: None };
        }
        let (host, kind) = (hostname(), plain(kind));
        match first_free_slot(&kind, folder) {
            Some((number, slot)) => {
                Self { id: format!("{host}-{kind}-{number}"), _slot: Some(slot) }
            }
            None => {
                let id = format!("{host}-{kind}-{:08x}", rand::random::<u32>());
                tracing::warn!(id, "no slot could be locked: the instance id changes on a restart");
                Self { id, _slot: None }
            }
        }
    }
}

/// The kind in lower case. It came from a flag perhaps, and must not lead out of the folder.
///
/// Slots have this form as well, so kinds that look alike in it still get numbers of their own.
fn plain(kind: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    kind.chars().map(plain).collect()
}

fn first_free_slot(kind: &str, folder: &Path) -> Option<(u32, File)> {
    (0..SLOTS).find_map(|number| match lock(kind, number, folder) {
        Ok(slot) => Some((number, slot)),
        // Taken, or another user's: both are not ours.
        Err(_) => None,
    })
}

fn lock(kind: &str, number: u32, folder: &Path) -> io::Result<File> {
    let path = folder.join(format!("machine-broker-driver-{kind}-{number}.lock"));
    let slot = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    slot.try_lock()?;
    Ok(slot)
}

fn hostname() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if host.is_empty() { "localhost".to_owned() } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_drivers_of_one_host_differ_and_a_restart_gets_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let first = Instance::new(None, "K", folder.path());
        let second = Instance::new(None, "K", folder.path());
        assert!(first.id.ends_with("-k-0") && second.id.ends_with("-k-1"), "{first:?} {second:?}");

        let before = first.id.clone();
        drop(first);
        assert_eq!(Instance::new(None, "K", folder.path()).id, before);
    }

    #[test]
    fn kinds_differ_in_their_ids_and_stay_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let ids = ["../K", "L", "l"].map(|kind| Instance::new(None, kind, folder.path()));
        let ends = ["-___k-0", "-l-0", "-l-1"];
        for (instance, end) in ids.iter().zip(ends) {
            assert!(instance.id.ends_with(end), "{instance:?}");
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 3);
    }

    #[test]
    fn without_a_folder_the_id_is_random() {
        let missing = Path::new("/nonexistent/folder");
        let one = Instance::new(None, "K", missing);
        assert_ne!(one.id, Instance::new(None, "K", missing).id);
    }

    #[test]
    fn a_given_id_is_taken_as_it_is() {
        let given = Some("mine".to_owned());
        assert_eq!(Instance::new(given, "K", Path::new("/nonexistent")).id, "mine");
    }
}
