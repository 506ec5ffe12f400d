//! What is done to a seed.

use proptest::{collection::vec, prelude::*, sample::Index};

/// Longer input finds nothing that shorter does not.
const MOST: usize = 64 * 1024;

/// A seed, and what is changed in it.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    seed: usize,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    /// A word that the reader knows.
    Word(Index, usize),
    Remove(Index, Index),
    /// Several times, for what must not grow.
    Repeat(Index, Index, u8),
    /// The rest comes from another seed.
    Splice(Index, usize, Index),
}

/// A seed of the corpus with some changes.
pub(crate) fn several(
    seeds: usize,
    words: &'static [&'static str],
) -> impl Strategy<Value = Changes> {
    // Mostly few: after many changes hardly any frame is a frame.
    let few = vec(change(seeds, words.len()), 1..3);
    let many = vec(change(seeds, words.len()), 3..12);
    (0..seeds, prop_oneof![3 => few, 1 => many])
        .prop_map(|(seed, changes)| Changes { seed, changes })
}

fn change(seeds: usize, words: usize) -> impl Strategy<Value = Change> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0x7f), Just(0x80), Just(0xff)];
    prop_oneof![
        2 => (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        2 => (any::<Index>(), byte).prop_map(|(at, byte)| Change::Set(at, byte)),
        2 => (any::<Index>(), vec(any::<u8>(), 1..12)).prop_map(|(at, b)| Change::Insert(at, b)),
        4 => (any::<Index>(), 0..words.max(1)).prop_map(|(at, word)| Change::Word(at, word)),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Change::Remove(from, to)),
        1 => (any::<Index>(), any::<Index>(), any::<u8>())
            .prop_map(|(from, to, times)| Change::Repeat(from, to, times)),
        2 => (any::<Index>(), 0..seeds, any::<Index>())
            .prop_map(|(at, seed, from)| Change::Splice(at, seed, from)),
    ]
}

impl Changes {
    pub(crate) fn apply(&self, corpus: &[Vec<u8>], words: &[&str], input: &mut Vec<u8>) {
        input.clone_from(&corpus[self.seed]);
        for change in &self.changes {
            change.apply(corpus, words, input);
            input.truncate(MOST);
        }
    }
}

impl Change {
    fn apply(&self, corpus: &[Vec<u8>], words: &[&str], input: &mut Vec<u8>) {
        // The end is a place too.
        let place = |index: &Index, length: usize| index.index(length + 1);
        let range = |one: &Index, other: &Index, length: usize| {
            let (one, other) = (place(one, length), place(other, length));
            one.min(other)..one.max(other)
        };
        match self {
            Self::Flip(at, bit) if !input.is_empty() => *at.get_mut(input) ^= 1 << bit,
            Self::Set(at, byte) if !input.is_empty() => *at.get_mut(input) = *byte,
            Self::Flip(..) | Self::Set(..) => {}
            Self::Insert(at, bytes) => {
                let at = place(at, input.len());
                input.splice(at..at, bytes.iter().copied());
            }
            Self::Word(at, word) => {
                let at = place(at, input.len());
                let word = words.get(*word).copied().unwrap_or_default();
                input.splice(at..at, word.bytes());
            }
            Self::Remove(from, to) => drop(input.drain(range(from, to, input.len()))),
            Self::Repeat(from, to, times) => {
                let range = range(from, to, input.len());
                let most = MOST / range.len().max(1);
                let again = input[range.clone()].repeat(usize::from(*times).min(most));
                input.splice(range.end..range.end, again);
            }
            Self::Splice(at, seed, from) => {
                let at = place(at, input.len());
                input.truncate(at);
                let other = &corpus[*seed];
                input.extend_from_slice(&other[place(from, other.len())..]);
            }
        }
    }
}
