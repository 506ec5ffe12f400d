//! What the broker serves with: looked at again and again, in force for every new handshake.
//!
//! [`Server::look`] reads the files of the broker's own identity and those of the clients' CAs, each
//! apart: what is new, good and the same as at the look before replaces what was in force. Content is
//! compared, not times or events: so a file that is rewritten in place, one that is renamed over
//! another, the swapped link of a mounted Kubernetes secret and a network file system are all the same.

mod handshake;
mod in_force;
mod sight;

use std::{
    hash::RandomState,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use rustls::pki_types::UnixTime;
use tokio::sync::watch;

pub use tokio_rustls::server::TlsStream;

pub use self::handshake::{HANDSHAKE_WITHIN, Protocol, REASONS, Refusal, Secured};
use self::{
    in_force::{Clients, InForce, Loaded, Own},
    sight::Sight,
};
use crate::{Certificate, PeerCertificate, Problem};

/// Where it all comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The broker's certificate, with those that lead to its CA.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The CAs whose clients are known by their certificates. Without it nobody is asked for one.
    pub client_ca: Option<PathBuf>,
}

/// Cheap to clone: every clone is the same server.
#[derive(Clone, Debug)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    files: Files,
    in_force: watch::Sender<Arc<InForce>>,
    /// Counts the changes of the CAs.
    cas: watch::Sender<u64>,
    sights: Mutex<Sights>,
    /// Instead of the contents, to see that they changed: one of them is a key.
    hasher: RandomState,
}

/// What the looks have seen so far, of either part.
#[derive(Debug, Default)]
struct Sights {
    own: Sight,
    clients: Sight,
}

/// What a look at the files brought.
#[derive(Debug)]
pub enum Look {
    /// In force is what was before. If the files have something new, the next look shows whether it
    /// was all of it.
    Same,
    /// Something that the files say is in force now.
    Changed,
    /// These files are not good, so that what they said before is in force. Told once, not at every
    /// look.
    Failed(Problem),
}

impl Server {
    /// Reads the files for the first time.
    pub fn open(files: Files) -> Result<Self, Problem> {
        let hasher = RandomState::new();
        let own = Loaded::<Own>::read(&files, &hasher, None)?.expect("nothing was before");
        let clients = Loaded::<Clients>::read(&files, &hasher, None)?.expect("nothing was before");
        let in_force = Arc::new(InForce::new(Arc::new(own), Arc::new(clients)));
        Ok(Self(Arc::new(Inner {
            files,
            in_force: watch::Sender::new(in_force),
            cas: watch::Sender::new(0),
            sights: Mutex::default(),
            hasher,
        })))
    }

    /// Reads the files again, and puts what they say in force if it is new, good and what the look
    /// before saw. Blocks for as long as the file system does.
    pub fn look(&self) -> Look {
        let Inner { files, hasher, in_force, cas, .. } = &*self.0;
        // Held throughout, so that of two looks the later one wins.
        let mut sights = self.sights();
        let before = self.in_force();
        let own = sights.own.note(Loaded::<Own>::read(files, hasher, Some(&before.own)));
        let clients =
            sights.clients.note(Loaded::<Clients>::read(files, hasher, Some(&before.clients)));
        if own.is_none() && clients.is_none() {
            let problem = sights.own.tell().or_else(|| sights.clients.tell());
            return problem.map_or(Look::Same, Look::Failed);
        }
        // What is wrong with the other part is told by the next look.
        let other_cas = clients.is_some();
        let own = own.map_or_else(|| Arc::clone(&before.own), Arc::new);
        let clients = clients.map_or_else(|| Arc::clone(&before.clients), Arc::new);
        in_force.send_replace(Arc::new(InForce::new(own, clients)));
        if other_cas {
            cas.send_modify(|changes| *changes += 1);
        }
        Look::Changed
    }

    /// The broker's own certificate, as new connections see it.
    pub fn certificate(&self) -> Arc<Certificate> {
        Arc::clone(&self.in_force().own.part.certificate)
    }

    pub fn files(&self) -> &Files {
        &self.0.files
    }

    /// Why the files as they are now are not in force, if they are not: all that is wrong.
    pub fn problem(&self) -> Option<String> {
        let sights = self.sights();
        let problems: Vec<_> =
            [&sights.own, &sights.clients].into_iter().filter_map(Sight::problem).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Whether a certificate that was good in its handshake is good `now`, by the CAs in force now.
    pub fn verify(&self, peer: &PeerCertificate, now: SystemTime) -> Result<(), Problem> {
        let in_force = self.in_force();
        let (Some(clients), Some(file), [leaf, rest @ ..]) =
            (&in_force.clients.part, &self.0.files.client_ca, peer.chain())
        else {
            return Err(Problem::Unacceptable("clients have no certificates here".to_owned()));
        };
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match clients.verify_client_cert(leaf, rest, UnixTime::since_unix_epoch(now)) {
            Ok(_) => Ok(()),
            Err(rustls::Error::InvalidCertificate(error)) => Err(Problem::of(&error, file)),
            Err(error) => Err(Problem::Unacceptable(error.to_string())),
        }
    }

    /// Changes whenever the CAs of the clients do: time to verify again who is connected.
    pub fn ca_changes(&self) -> watch::Receiver<u64> {
        self.0.cas.subscribe()
    }

    fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.0.in_force.borrow())
    }

    fn sights(&self) -> MutexGuard<'_, Sights> {
        self.0.sights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, feature = "issue"))]
mod tests;
