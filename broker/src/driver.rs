//! The nouns every room shares: what a driver serves, and the names of sessions, instances,
//! classes and machines.

use std::{fmt, sync::Arc};

/// What a driver serves and dispatch looks up: a machine-class kind, for one provider or for all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DriverKey {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    /// Only classes that name this provider; `None` serves every class of the kind.
    pub provider: Option<Arc<str>>,
}

impl fmt::Display for DriverKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.kind, self.api_version)?;
        if let Some(provider) = &self.provider {
            write!(f, ", provider {provider}")?;
        }
        f.write_str(")")
    }
}

/// The full name of one machine class.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
