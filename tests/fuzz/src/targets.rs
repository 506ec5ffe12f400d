//! What is fed, and what has to hold whatever it is fed.

mod frames;
mod names;
mod texts;

use std::{fs, path::Path};

use anyhow::Context as _;

/// A reader of what others wrote.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// What it knows, to be put in anywhere.
    pub(crate) words: &'static [&'static str],
    /// Panics if something is wrong.
    pub(crate) run: fn(&[u8]),
}

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "session", words: frames::WORDS, run: frames::session },
    Target { name: "handshake", words: frames::WORDS, run: frames::handshake },
    Target { name: "class-name", words: names::WORDS, run: names::class_name },
    Target { name: "catalog", words: texts::CATALOG_WORDS, run: texts::catalog },
    Target { name: "policy", words: texts::POLICY_WORDS, run: texts::policy },
    Target { name: "tokens", words: texts::TOKEN_WORDS, run: texts::tokens },
];

/// The seeds that no editor can write.
pub(crate) fn write_seeds(corpus: &Path) -> anyhow::Result<()> {
    let sessions = frames::sessions().into_iter().map(|(name, seed)| ("session", name, seed));
    let hellos = frames::hellos().into_iter().map(|(name, seed)| ("handshake", name, seed));
    for (target, name, seed) in sessions.chain(hellos) {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder).context("cannot make a folder in the corpus")?;
        fs::write(folder.join(name), seed).context("cannot write a seed")?;
    }
    Ok(())
}
