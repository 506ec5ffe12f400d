//! The maps that every operation looks something up in.
//!
//! They hash with foldhash instead of SipHash, which alone was a tenth of what an operation cost. All of
//! these maps are bounded or hold only what the broker let in.

use std::{
    collections,
    hash::{BuildHasher, BuildHasherDefault, Hasher},
    sync::LazyLock,
};

use dashmap::DashMap;
use foldhash::{
    SharedSeed,
    quality::{FoldHasher, SeedableRandomState},
};

/// For one owner.
pub(crate) type HashMap<K, V> = collections::HashMap<K, V, State>;
/// By numbers that we give out ourselves: nobody can choose them so that they meet.
pub(crate) type Numbered<V> = collections::HashMap<i32, V, BuildHasherDefault<NumberHasher>>;
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

/// One multiplication, which spreads numbers in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_i32(i32::from(*byte));
        }
    }

    fn write_i32(&mut self, number: i32) {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0 ^ u64::from(number.cast_unsigned())).wrapping_mul(SPREAD);
    }
}
