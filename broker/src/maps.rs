//! The maps that every operation looks something up in.
//!
//! They hash with foldhash instead of SipHash, which alone was a tenth of what an operation cost. All of
//! these maps are bounded or hold only what the broker let in.

use std::{collections, hash::BuildHasher, sync::LazyLock};

use dashmap::DashMap;
use foldhash::{
    SharedSeed,
    quality::{FoldHasher, SeedableRandomState},
};

/// For one owner.
pub(crate) type HashMap<K, V> = collections::HashMap<K, V, State>;
/// For many tasks at once.
pub(crate) type SharedMap<K, V> = DashMap<K, V, State>;

/// Seeded from the system's random numbers, anew in every process: foldhash's own seed is made of
/// addresses and the time, which others may guess and a simulation cannot repeat.
#[derive(Clone)]
pub(crate) struct State(SeedableRandomState);

impl Default for State {
    fn default() -> Self {
        static SEED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(rand::random()));
        Self(SeedableRandomState::with_seed(rand::random(), &SEED))
    }
}

impl BuildHasher for State {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}
