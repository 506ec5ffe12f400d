//! The maps that every operation looks something up in.
//!
//! They hash with foldhash instead of SipHash, which alone was a tenth of what an operation cost. It is
//! seeded anew in every process, and all of these maps are bounded or hold only what the broker let in.

use std::collections;

use dashmap::DashMap;
use foldhash::quality::RandomState;

/// For one owner.
pub(crate) type HashMap<K, V> = collections::HashMap<K, V, RandomState>;
/// For many tasks at once.
pub(crate) type SharedMap<K, V> = DashMap<K, V, RandomState>;
