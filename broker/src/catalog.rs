//! Machine classes and secrets, for dispatch and for drivers that ask.
//!
//! One trait, [`Catalog`], answered from memory; where the objects come from is its
//! implementation's affair: a folder of YAML ([`Directory`]), a cluster ([`Kubernetes`]), a text
//! ([`Static`]). What one driver
//! may see of a catalog is its [`Scope`]; nobody hands a class or a secret to a driver around it.

use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::sync::broadcast;

use crate::driver::ClassId;

mod class;
pub mod class_name;
mod directory;
mod fixed;
pub mod kubernetes;
mod metadata;
mod objects;
mod revision;
mod scope;
mod secret;
mod snapshot;

pub use class::Class;
pub use class_name::{NameError, valid_name};
pub use directory::Directory;
pub use fixed::Static;
pub use kubernetes::Kubernetes;
pub use scope::{Denied, Scope, secret_revision};
pub use secret::{Secret, SecretName};

/// Where an object without a namespace lives, and where a plain class name is looked up.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The machine classes and secrets that exist now.
///
/// Every read is answered at once from memory, so it may be called from any task. Two reads may
/// see two states of the catalog; one read never sees half a change.
pub trait Catalog: Send + Sync + fmt::Debug + 'static {
    /// One that was deleted says so.
    fn class(&self, id: &ClassId) -> Option<Arc<Class>>;

    /// All classes, ordered by their id.
    fn classes(&self) -> Vec<Arc<Class>>;

    /// The plain secret of that name. Drivers are answered through a [`Scope`].
    fn secret(&self, name: &SecretName) -> Option<Arc<Secret>>;

    /// How many secrets there are.
    fn secrets(&self) -> usize;

    /// Another one whenever a class or secret is. Who looked at this first may keep what it found, for as long
    /// as this stays the same.
    fn version(&self) -> u64;

    /// When it was last read without finding anything wrong; that it was read anew and is the same
    /// counts.
    fn last_good(&self) -> Option<SystemTime>;

    /// The secrets that change (rotation) from now on, to be pushed to drivers. A receiver that
    /// lags loses the oldest, which is fine: revisions and drivers' maximum ages catch up.
    fn changes(&self) -> broadcast::Receiver<SecretName>;

    /// What is wrong with the catalog now, for operators; empty when all is well.
    fn problems(&self) -> Vec<Problem>;

    /// How old what is known may be, while where it comes from cannot be reached.
    fn age(&self) -> Option<Duration> {
        None
    }

    /// How it is about the classes of a kind as a whole.
    fn reading(&self, _api_version: &str, _kind: &str) -> Reading {
        Reading::Current
    }
}

/// How it is about the classes of a kind. The texts are for people, and say what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// What is known is what there is.
    Current,
    /// They were read before, and cannot be now.
    Stale(String),
    /// They were never read: a class that is not known may exist.
    Never(String),
}

impl Reading {
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Current => None,
            Self::Stale(why) | Self::Never(why) => Some(why),
        }
    }
}

/// Why there is no catalog.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the catalog folder {0} does not exist; create it and put the YAML of machine classes and \
         secrets into it, or name another one with --catalog dir:PATH"
    )]
    NoFolder(PathBuf),

    #[error(
        "the catalog {0} is not a folder; name the folder that holds the YAML files with \
         --catalog dir:PATH"
    )]
    NotAFolder(PathBuf),

    #[error("the catalog folder {0} cannot be read; the broker needs read and search permission")]
    Unreadable(PathBuf, #[source] std::io::Error),

    #[error(
        "the kubeconfig {0} cannot be used; name another one with --catalog kubernetes:FILE, or leave \
         the name out in a cluster"
    )]
    Kubeconfig(PathBuf, #[source] kubernetes::Unusable),

    #[error(
        "there is no cluster to read from: name a kubeconfig with --catalog kubernetes:FILE or \
         KUBECONFIG, or run in a pod with a service account"
    )]
    NoCluster(#[source] kubernetes::Unusable),

    /// A text that was given as a whole has to be right as a whole.
    #[error("the catalog is not right: {}", join(.0))]
    Broken(Vec<Problem>),
}

/// Something in the catalog that a person has to mend. Never quotes a secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Problem {
    /// `None` when the catalog does not come from files.
    pub file: Option<PathBuf>,
    /// Counted from 1.
    pub line: Option<u64>,
    pub message: String,
}

impl Problem {
    /// Something that is not in a file.
    fn of_cluster(message: String) -> Self {
        Self { file: None, line: None, message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.message)
    }
}

fn join(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
}
