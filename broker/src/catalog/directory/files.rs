//! What each file of the folder says, and what it said when it was last right.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    str,
    sync::Arc,
};

use tracing::{error, info};

use super::{
    super::{
        Problem,
        objects::{self, Fault, Objects},
        snapshot::Snapshot,
    },
    listing::{self, Listing, MAX_FILE, MAX_TOTAL, Unread},
};

/// The files by path: the order decides which of two equal objects is in force.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: BTreeMap<PathBuf, File>,
    /// Those beyond the files' own faults, to be logged when they are new.
    problems: Vec<Problem>,
}

/// The outcome of reading the folder.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) snapshot: Snapshot,
    /// Whether it differs from the one before, in its objects or its problems.
    pub(super) changed: bool,
    /// Whether there was something to take in: a new file or content without faults, or a file
    /// that went.
    pub(super) taken: bool,
}

#[derive(Debug, Default)]
struct File {
    /// A hash of what it held when last looked at; `None` while it cannot be read.
    content: Option<u64>,
    size: u64,
    /// What it said when it was last right.
    good: Arc<Objects>,
    /// What is wrong with it now.
    faults: Vec<Fault>,
}

impl Files {
    /// Reads everything that is new under `root`.
    pub(super) fn read(&mut self, root: &Path) -> Reading {
        let Listing { files, unseen, problems: mut remarks } = listing::list(root);
        let before = self.files.len();
        self.files.retain(|path, _| {
            files.contains(path) || unseen.iter().any(|folder| path.starts_with(folder))
        });
        let mut taken = self.files.len() != before;
        let mut changed = taken;

        let mut left = MAX_TOTAL;
        for path in files {
            match listing::read(&path, left.min(MAX_FILE)) {
                Err(Unread::Gone) => taken |= self.files.remove(&path).is_some(),
                Err(Unread::Because(why)) => {
                    changed |= self.files.entry(path.clone()).or_default().unread(&path, why);
                }
                Ok(content) => {
                    let file = self.files.entry(path.clone()).or_default();
                    let updated = file.update(&path, &content);
                    changed |= updated;
                    taken |= updated && file.faults.is_empty();
                    left -= file.size;
                }
            }
        }

        let files = self.files.iter();
        let mut snapshot = Snapshot::of(files.map(|(path, file)| (Some(&**path), &*file.good)));
        remarks.append(&mut snapshot.problems);
        remarks.append(&mut snapshot.dangling);
        for new in remarks.iter().filter(|remark| !self.problems.contains(remark)) {
            error!("catalog: {new}");
        }
        for old in self.problems.iter().filter(|remark| !remarks.contains(remark)) {
            info!("catalog: this is over: {old}");
        }
        changed |= taken || remarks != self.problems;
        self.problems.clone_from(&remarks);

        snapshot.problems =
            self.files.iter().flat_map(|(path, file)| file.problems(path)).collect();
        snapshot.problems.append(&mut remarks);
        Reading { snapshot, changed, taken }
    }
}

impl File {
    /// Takes new content in. Returns whether it was new; only then is anything logged.
    fn update(&mut self, path: &Path, content: &[u8]) -> bool {
        self.size = content.len() as u64;
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let hash = Some(hasher.finish());
        if self.content == hash {
            return false;
        }
        self.content = hash;
        let was_broken = !self.faults.is_empty();
        match parse(path, content) {
            Ok(objects) => {
                for note in &objects.notes {
                    info!("catalog: {}", problem(path, note));
                }
                if was_broken {
                    info!("catalog: {} is in order again", path.display());
                }
                self.good = Arc::new(objects);
                self.faults.clear();
            }
            Err(faults) => self.fail(path, faults),
        }
        true
    }

    fn unread(&mut self, path: &Path, why: String) -> bool {
        let faults = vec![Fault { line: None, message: why }];
        if self.content.is_none() && self.faults == faults {
            return false;
        }
        self.content = None;
        self.fail(path, faults);
        true
    }

    fn fail(&mut self, path: &Path, faults: Vec<Fault>) {
        self.faults = faults;
        let rest = if self.good.classes.is_empty() && self.good.secrets.is_empty() {
            "nothing of this file is in force"
        } else {
            "what the file said before stays in force"
        };
        for fault in &self.faults {
            error!("catalog: {}; {rest}", problem(path, fault));
        }
    }

    fn problems<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = Problem> + 'a {
        self.faults.iter().map(move |fault| problem(path, fault))
    }
}

fn parse(path: &Path, content: &[u8]) -> Result<Objects, Vec<Fault>> {
    let text = str::from_utf8(content).map_err(|error| {
        let line = 1 + content[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
        vec![Fault { line: Some(line as u64), message: "this is not UTF-8 text".to_owned() }]
    })?;
    let format = listing::format(path).unwrap_or(objects::Format::Yaml);
    objects::read(text, format)
}

fn problem(path: &Path, fault: &Fault) -> Problem {
    Problem { file: Some(path.to_owned()), line: fault.line, message: fault.message.clone() }
}
