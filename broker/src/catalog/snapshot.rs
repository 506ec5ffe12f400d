//! One consistent state of a catalog, and the place where it is exchanged for the next.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use tokio::sync::broadcast;

use super::{
    Catalog, Class, Problem, Secret, SecretName,
    objects::{Line, Objects},
};
use crate::{driver::ClassId, maps::HashMap};

/// How many changes a receiver may lag behind before it loses some.
const CHANGES: usize = 1024;

/// All classes and secrets at one moment, and what is wrong with them. Never modified.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    classes: HashMap<ClassId, Arc<Class>>,
    secrets: HashMap<SecretName, Arc<Secret>>,
    pub(super) problems: Vec<Problem>,
    /// References to secrets that do not exist. Apart from the problems, since the secret may be
    /// still to come.
    pub(super) dangling: Vec<Problem>,
}

impl Snapshot {
    /// Puts the objects of all files together. Where two files have the same object, the first
    /// path wins, on every replica alike, and the other is a problem that names both.
    ///
    /// `None` as a file stands for a text without one.
    pub(super) fn of<'a>(files: impl Iterator<Item = (Option<&'a Path>, &'a Objects)>) -> Self {
        let mut classes = Gathered::default();
        let mut secrets = Gathered::default();
        let mut problems = Vec::new();
        for (file, objects) in files {
            for (line, class) in &objects.classes {
                let what = || class.id.to_string();
                problems.extend(classes.add(class.id.clone(), class, file, *line, what));
            }
            for (line, secret) in &objects.secrets {
                let what = || format!("Secret {}", secret.name());
                problems.extend(secrets.add(secret.name().clone(), secret, file, *line, what));
            }
        }
        let dangling = classes.found.values().flat_map(|(class, file, line)| {
            let refs = class.secret_ref.iter().chain(&class.credentials_ref);
            refs.filter(|name| !secrets.found.contains_key(*name)).map(|name| Problem {
                file: file.map(PathBuf::from),
                line: Some(*line),
                message: format!("{} refers to the secret {name}, which does not exist", class.id),
            })
        });
        let dangling = dangling.collect();
        Self { classes: classes.finish(), secrets: secrets.finish(), problems, dangling }
    }

    /// Of what was read elsewhere.
    pub(super) fn new(
        classes: impl Iterator<Item = Arc<Class>>,
        secrets: impl Iterator<Item = Arc<Secret>>,
        problems: Vec<Problem>,
    ) -> Self {
        Self {
            classes: classes.map(|class| (class.id.clone(), class)).collect(),
            secrets: secrets.map(|secret| (secret.name().clone(), secret)).collect(),
            problems,
            dangling: Vec::new(),
        }
    }

    /// The secrets that came, went or have other data in `next`.
    fn changed_secrets(&self, next: &Self) -> Vec<SecretName> {
        let revision = |secrets: &HashMap<_, Arc<Secret>>, name| {
            secrets.get(name).map(|secret: &Arc<Secret>| secret.revision())
        };
        let came = next.secrets.keys().filter(|name| !self.secrets.contains_key(*name));
        self.secrets
            .keys()
            .filter(|name| revision(&self.secrets, *name) != revision(&next.secrets, *name))
            .chain(came)
            .cloned()
            .collect()
    }
}

/// The first object of each name, and where it was.
struct Gathered<'a, K, V> {
    found: BTreeMap<K, (&'a Arc<V>, Option<&'a Path>, Line)>,
}

impl<K, V> Default for Gathered<'_, K, V> {
    fn default() -> Self {
        Self { found: BTreeMap::new() }
    }
}

impl<'a, K: Ord + std::hash::Hash, V> Gathered<'a, K, V> {
    fn add(
        &mut self,
        key: K,
        value: &'a Arc<V>,
        file: Option<&'a Path>,
        line: Line,
        what: impl FnOnce() -> String,
    ) -> Option<Problem> {
        if let Some((_, first_file, first_line)) = self.found.get(&key) {
            let first = Problem {
                file: first_file.map(PathBuf::from),
                line: Some(*first_line),
                message: String::new(),
            };
            let first = first.to_string();
            let message = format!(
                "{} is already defined in {}; that one is in force",
                what(),
                first.trim_end_matches([':', ' '])
            );
            return Some(Problem { file: file.map(PathBuf::from), line: Some(line), message });
        }
        self.found.insert(key, (value, file, line));
        None
    }

    fn finish(self) -> HashMap<K, Arc<V>> {
        self.found.into_iter().map(|(key, (value, ..))| (key, value.clone())).collect()
    }
}

/// Holds the snapshot that is in force, and answers as a catalog from it. Readers take it whole, so they never see half a change.
#[derive(Debug)]
pub(super) struct Store {
    current: RwLock<Arc<Snapshot>>,
    /// Grows after each exchange.
    version: AtomicU64,
    last_good: RwLock<Option<SystemTime>>,
    changes: broadcast::Sender<SecretName>,
}

impl Store {
    pub(super) fn new(first: Snapshot) -> Self {
        let store = Self {
            current: RwLock::new(Arc::new(first)),
            version: AtomicU64::new(0),
            last_good: RwLock::new(None),
            changes: broadcast::Sender::new(CHANGES),
        };
        store.confirm();
        store
    }

    fn current(&self) -> Arc<Snapshot> {
        // Nothing panics while it holds the lock; and if it did, the snapshot is still whole.
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is in force has just been read: that is worth a note if there is nothing wrong with it.
    pub(super) fn confirm(&self) {
        if self.current().problems.is_empty() {
            let mut last_good = self.last_good.write().unwrap_or_else(PoisonError::into_inner);
            *last_good = Some(SystemTime::now());
        }
    }

    /// Puts `next` in force, then tells which secrets changed: whoever hears of a change and looks
    /// sees the new one.
    pub(super) fn publish(&self, next: Snapshot) {
        let next = Arc::new(next);
        let previous = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, next.clone())
        };
        self.version.fetch_add(1, Ordering::Release);
        self.confirm();
        for name in previous.changed_secrets(&next) {
            // An error only says that nobody listens at the moment.
            self.changes.send(name).ok();
        }
    }
}

/// Nothing, so far.
impl Default for Store {
    fn default() -> Self {
        Self::new(Snapshot::default())
    }
}

impl Catalog for Store {
    fn class(&self, id: &ClassId) -> Option<Arc<Class>> {
        self.current().classes.get(id).cloned()
    }

    fn classes(&self) -> Vec<Arc<Class>> {
        let mut classes: Vec<_> = self.current().classes.values().cloned().collect();
        classes.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        classes
    }

    fn secret(&self, name: &SecretName) -> Option<Arc<Secret>> {
        self.current().secrets.get(name).cloned()
    }

    fn secrets(&self) -> usize {
        self.current().secrets.len()
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn last_good(&self) -> Option<SystemTime> {
        *self.last_good.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> broadcast::Receiver<SecretName> {
        self.changes.subscribe()
    }

    fn problems(&self) -> Vec<Problem> {
        self.current().problems.clone()
    }
}
