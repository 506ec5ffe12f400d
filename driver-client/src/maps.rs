//! The maps that every operation looks something up in.
//!
//! They hash with foldhash: SipHash was a sixth of what an operation cost here. All of them are bounded.

use std::{collections, hash::BuildHasher, sync::LazyLock};

use foldhash::{
    SharedSeed,
    quality::{FoldHasher, SeedableRandomState},
};

pub(crate) type HashMap<K, V> = collections::HashMap<K, V, State>;

/// Seeded from the system's random numbers, anew in every process: foldhash's own seed is made of
/// addresses and the time, which others may guess.
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
