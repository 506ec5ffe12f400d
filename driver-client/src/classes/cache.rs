//! A small cache in which many may wait for one question.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::OnceCell, time::Instant};

use crate::operations::ClassRef;

/// Far more classes than a driver has in use; beyond it the cache starts afresh.
const AT_MOST: usize = 1024;

pub(super) struct Cache<T> {
    max_age: Duration,
    entries: Mutex<HashMap<ClassRef, Entry<T>>>,
}

/// Only the newest revision of each class: the older ones are of no use any more.
struct Entry<T> {
    revision: i32,
    asked: Instant,
    cell: Arc<OnceCell<Arc<T>>>,
}

impl<T> Cache<T> {
    pub(super) fn new(max_age: Duration) -> Self {
        Self { max_age, entries: Mutex::default() }
    }

    /// The place of this revision. Whoever finds it empty asks the broker, the others wait.
    pub(super) fn cell(&self, class: &ClassRef, revision: i32) -> Arc<OnceCell<Arc<T>>> {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(class)
            && entry.revision == revision
            && now.duration_since(entry.asked) < self.max_age
        {
            return entry.cell.clone();
        }
        if entries.len() >= AT_MOST {
            entries.clear();
        }
        let cell = Arc::new(OnceCell::new());
        entries.insert(class.clone(), Entry { revision, asked: now, cell: cell.clone() });
        cell
    }

    /// A question that is under way is not disturbed, but its answer will not be kept.
    pub(super) fn clear(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
