//! What is left to chance, all of it drawn from the seed.

use std::{
    hash::{Hash as _, Hasher as _},
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use siphasher::sip::SipHasher13;

/// A stream of draws. Cheap to clone: all clones draw from the same one.
#[derive(Clone, Debug)]
pub struct Chance(Arc<Mutex<StdRng>>);

impl Chance {
    /// A stream of its own for each `purpose`, so that one more draw here changes nothing there.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut hasher = SipHasher13::new();
        (seed, purpose).hash(&mut hasher);
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(hasher.finish()))))
    }

    pub fn among(&self, range: Range<usize>) -> usize {
        self.0.lock().expect("no panic while locked").random_range(range)
    }

    pub fn percent(&self, percent: usize) -> bool {
        self.among(0..100) < percent
    }

    pub fn pick<'a, T>(&self, things: &'a [T]) -> &'a T {
        &things[self.among(0..things.len())]
    }

    pub fn millis(&self, range: Range<usize>) -> Duration {
        Duration::from_millis(self.among(range) as u64)
    }
}
