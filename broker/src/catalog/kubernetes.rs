//! A catalog from the API server of a cluster, watched.
//!
//! How an object arrives:
//!
//! 1. A driver registers a kind. [`Kubernetes::follow`] asks the API server what it calls that kind and
//!    watches its classes: one watch per kind, however many drivers serve it, until some time after the
//!    last of them left.
//! 2. Classes name secrets. Each one that some driver may be given is read and watched by its name
//!    alone. Nobody ever lists secrets.
//! 3. Every change goes into [`known`], which is pure, and the next snapshot comes out of it. Readers
//!    never wait for the API server, and while it is away they are answered from what was read before.
//! 4. What is deleted is kept, marked as such, so that machines made from it can be deleted.
//!
//! Besides this room only the adapter in [`replicas`](crate::replicas) knows the types of `kube`.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use kube::Client;
use tokio::sync::{Notify, Semaphore, broadcast};

use super::{Catalog, Class, Problem, Reading, Secret, SecretName, snapshot::Store};
use crate::{
    auth::Territory,
    driver::{ClassId, DriverKey},
};

mod classes;
mod connect;
mod contact;
mod drivers;
mod follow;
mod known;
mod object;
mod review;
mod secrets;
mod trouble;

pub use connect::{Cluster, Unusable};
pub use drivers::DriverObjects;
pub use follow::Demand;
pub use review::TokenReviews;
pub(crate) use trouble::innermost;

use contact::Contact;
use known::Known;

/// Requests to the API server at once. Watches that are open do not count.
const REQUESTS: usize = 8;

/// The classes and secrets in a cluster.
pub struct Kubernetes {
    client: Client,
    store: Store,
    known: Mutex<Known>,
    contact: Contact,
    /// So that all watches that broke together do not come back together.
    requests: Semaphore,
    /// Which secrets are needed may have changed.
    references: Notify,
}

/// A kind of classes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Kind {
    api_version: Arc<str>,
    kind: Arc<str>,
}

impl Kubernetes {
    /// A catalog that is empty until [`Kubernetes::follow`] runs.
    pub fn new(cluster: &Cluster) -> Arc<Self> {
        Arc::new(Self {
            client: cluster.client(),
            store: Store::default(),
            known: Mutex::default(),
            contact: Contact::new(),
            requests: Semaphore::new(REQUESTS),
            references: Notify::new(),
        })
    }

    /// Makes a change and puts what comes of it in force.
    fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known();
        let result = change(&mut known);
        // With the lock held, so that no snapshot overtakes a newer one.
        self.store.publish(known.snapshot());
        self.references.notify_one();
        result
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        // What is known is whole between any two statements that could panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Catalog for Kubernetes {
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
        self.contact.last_good()
    }

    fn changes(&self) -> broadcast::Receiver<SecretName> {
        self.store.changes()
    }

    fn problems(&self) -> Vec<Problem> {
        let away = self.contact.trouble().map(Problem::of_cluster);
        away.into_iter().chain(self.store.problems()).collect()
    }

    fn age(&self) -> Option<Duration> {
        self.contact.age()
    }

    fn reading(&self, api_version: &str, kind: &str) -> Reading {
        let kind = Kind { api_version: api_version.into(), kind: kind.into() };
        match (self.known().reading(&kind), self.contact.trouble()) {
            (Reading::Current, Some(away)) => Reading::Stale(away),
            (reading, _) => reading,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.api_version)
    }
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes").field("contact", &self.contact).finish_non_exhaustive()
    }
}

impl From<&DriverKey> for Kind {
    fn from(key: &DriverKey) -> Self {
        Self { api_version: key.api_version.clone(), kind: key.kind.clone() }
    }
}

/// The kinds that drivers of a territory serve.
fn kinds(territory: &Territory) -> impl Iterator<Item = Kind> {
    territory.keys().map(Kind::from)
}
