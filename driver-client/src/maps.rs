//! The maps that every operation looks something up in.
//!
//! They hash with foldhash: SipHash was a sixth of what an operation cost here. All of them are bounded.

use std::{
    collections,
    hash::{BuildHasher, BuildHasherDefault, Hasher},
    sync::LazyLock,
};

use foldhash::{
    SharedSeed,
    quality::{FoldHasher, SeedableRandomState},
};

pub(crate) type HashMap<K, V> = collections::HashMap<K, V, State>;

/// Of keys that have their hash with them, made with [`State`].
pub(crate) type HashedMap<K, V> = collections::HashMap<K, V, BuildHasherDefault<Hashed>>;

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

/// The hash that it is told.
#[derive(Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a key that has its hash with it tells nothing else");
    }
}
