//! Which files of a folder belong to the catalog, and reading one of them, within bounds.

use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use super::super::{Problem, objects::Format};

/// The API server takes no object larger than 1.5 MiB, so this is a file of many.
pub(super) const MAX_FILE: u64 = 8 << 20;
/// All files together, since all of it is kept in memory.
pub(super) const MAX_TOTAL: u64 = 128 << 20;
/// Files, and as many folders.
pub(super) const MAX_FILES: usize = 10_000;

/// What a walk through the folder found.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) files: BTreeSet<PathBuf>,
    /// Folders that could not be looked into. What is below them is not gone, only unseen.
    pub(super) unseen: Vec<PathBuf>,
    pub(super) problems: Vec<Problem>,
}

/// Why a file could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It went away since it was listed.
    Gone,
    /// For a person to mend.
    Because(String),
}

/// How a file of this name is written; `None` when it is not for us. Names that begin with a dot
/// are not: editors' swap files, and `..data` of a mounted ConfigMap, whose files appear in the
/// folder itself as links through it.
pub(super) fn format(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()? {
        "yaml" | "yml" => Some(Format::Yaml),
        "json" => Some(Format::Json),
        _ => None,
    }
}

/// Walks through `root`, following links, each folder once.
pub(super) fn list(root: &Path) -> Listing {
    let mut listing = Listing::default();
    let mut folders = vec![root.to_owned()];
    // By their real paths, since a link may lead back up.
    let mut visited = HashSet::new();
    while let Some(folder) = folders.pop() {
        let walked = fs::canonicalize(&folder).and_then(|real| {
            if visited.insert(real) { walk(&folder, &mut listing, &mut folders) } else { Ok(()) }
        });
        if let Err(error) = walked {
            // A subfolder that went away meanwhile is just gone; the root never goes by itself.
            if folder == root || error.kind() != io::ErrorKind::NotFound {
                listing.problems.push(Problem {
                    file: Some(folder.clone()),
                    line: None,
                    message: format!(
                        "the folder cannot be read ({error}); what it held stays in force"
                    ),
                });
                listing.unseen.push(folder);
            }
        }
        if listing.files.len() > MAX_FILES || visited.len() > MAX_FILES {
            listing.problems.push(Problem {
                file: Some(root.to_owned()),
                line: None,
                message: format!("more than {MAX_FILES} files or folders; the others are not read"),
            });
            break;
        }
    }
    listing
}

fn walk(folder: &Path, listing: &mut Listing, folders: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        // Through links. One that leads nowhere is listed, and reported when it is read.
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => folders.push(path),
            _ if format(&path).is_some() && listing.files.len() <= MAX_FILES => {
                listing.files.insert(path);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads a file, if it has at most `limit` bytes.
pub(super) fn read(path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, Unread> {
    let because = |error: io::Error| {
        // Not there, and no link that leads nowhere either.
        if fs::symlink_metadata(path).is_err() {
            Unread::Gone
        } else {
            Unread::Because(format!("cannot be read: {error}"))
        }
    };
    // Asked before it is opened, since to open a pipe would wait for someone to write to it.
    let metadata = fs::metadata(path).map_err(because)?;
    if !metadata.is_file() {
        return Err(Unread::Because("is not an ordinary file".to_owned()));
    }
    // With room for all of it from the start: what grows leaves pieces of itself behind.
    let size = usize::try_from(metadata.len().min(limit) + 1).unwrap_or_default();
    let mut content = Zeroizing::new(Vec::with_capacity(size + 32));
    let file = File::open(path).map_err(because)?;
    file.take(limit + 1).read_to_end(&mut content).map_err(because)?;
    if content.len() as u64 > limit {
        let message = if limit < MAX_FILE {
            format!("the catalog has more than {} MiB; this is not read", MAX_TOTAL >> 20)
        } else {
            format!("has more than {} MiB", MAX_FILE >> 20)
        };
        return Err(Unread::Because(message));
    }
    Ok(content)
}
