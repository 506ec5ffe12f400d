//! The nouns every room shares: what a driver serves, and the names of sessions, instances,
//! classes and machines.

use std::{
    fmt,
    hash::{BuildHasher as _, Hash, Hasher},
    ops::Deref,
    sync::{Arc, LazyLock},
};

use crate::maps;

/// What a driver serves and dispatch looks up: a machine-class kind, for one provider or for all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DriverKey {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    /// Only classes that name this provider; `None` serves every class of the kind.
    pub provider: Option<Arc<str>>,
}

/// Stands in a key where no apiVersion was given.
const ANY_VERSION: &str = "any version";

impl DriverKey {
    /// The key of a kind that was asked for without its apiVersion.
    pub fn of_any_version(kind: &str) -> Self {
        Self { api_version: ANY_VERSION.into(), kind: kind.into(), provider: None }
    }

    pub fn has_any_version(&self) -> bool {
        &*self.api_version == ANY_VERSION
    }
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

impl ClassId {
    pub fn realm(&self) -> Arc<Realm> {
        Realm::new(self.api_version.clone(), self.kind.clone(), self.namespace.clone())
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// What can be asked of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Create,
    Initialize,
    Delete,
    GetStatus,
    List,
    GetVolumeIds,
}

impl Verb {
    /// The verbs of 2018, which every driver has.
    pub const HISTORIC: [Verb; 3] = [Verb::Create, Verb::Delete, Verb::List];
    pub const ALL: [Verb; 6] = [
        Verb::Create,
        Verb::Initialize,
        Verb::Delete,
        Verb::GetStatus,
        Verb::List,
        Verb::GetVolumeIds,
    ];

    /// The `operation_type` on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Initialize => "initialize",
            Verb::Delete => "delete",
            Verb::GetStatus => "get_status",
            Verb::List => "list",
            Verb::GetVolumeIds => "get_volume_ids",
        }
    }

    pub fn from_wire(operation_type: &str) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.as_str() == operation_type)
    }

    /// Whether it changes a machine: at most one such operation runs per machine.
    pub fn is_mutation(self) -> bool {
        matches!(self, Verb::Create | Verb::Initialize | Verb::Delete)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where the name of a machine means one machine: a kind and a namespace. Classes have it at hand.
#[derive(Debug, PartialEq, Eq)]
pub struct Realm {
    hash: u64,
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
}

impl Realm {
    pub fn new(api_version: Arc<str>, kind: Arc<str>, namespace: Arc<str>) -> Arc<Self> {
        let hash = HASHER.hash_one((&api_version, &kind, &namespace));
        Arc::new(Self { hash, api_version, kind, namespace })
    }
}

/// One machine, whatever class makes it. Cheap to clone, and hashed once, since every operation looks it up
/// in several maps.
#[derive(Clone, Debug)]
pub struct MachineId(Arc<MachineName>);

/// The parts of a [`MachineId`].
#[derive(Debug)]
pub struct MachineName {
    hash: u64,
    pub realm: Arc<Realm>,
    pub name: Arc<str>,
}

static HASHER: LazyLock<maps::State> = LazyLock::new(maps::State::default);

impl MachineId {
    pub fn new(realm: Arc<Realm>, name: Arc<str>) -> Self {
        let hash = HASHER.hash_one((realm.hash, &name));
        Self(Arc::new(MachineName { hash, realm, name }))
    }
}

impl Deref for MachineId {
    type Target = MachineName;

    fn deref(&self) -> &MachineName {
        &self.0
    }
}

impl PartialEq for MachineId {
    fn eq(&self, other: &Self) -> bool {
        let same_realm = || Arc::ptr_eq(&self.realm, &other.realm) || self.realm == other.realm;
        Arc::ptr_eq(&self.0, &other.0)
            || self.hash == other.hash && self.name == other.name && same_realm()
    }
}

impl Eq for MachineId {}

impl Hash for MachineId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

/// One connection of a driver. Random, so that no two broker processes ever use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

impl SessionId {
    pub fn random() -> Self {
        Self(rand::random())
    }

    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One process of a driver: which of several equal ones (`id`, kept over restarts), and which start
/// of it (`boot`).
#[derive(Clone, Debug, Eq)]
pub struct Instance {
    pub id: Arc<str>,
    /// `None` for a historic driver, which does not tell its starts apart.
    pub boot: Option<Arc<str>>,
}

impl PartialEq for Instance {
    /// Those of one session share their texts, which then need not be compared.
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Arc<str>, other: &Arc<str>| Arc::ptr_eq(one, other) || one == other;
        let same_boot = match (&self.boot, &other.boot) {
            (Some(one), Some(other)) => same(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same_boot && same(&self.id, &other.id)
    }
}

impl Hash for Instance {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
        self.boot.hash(state);
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

/// One execution of an operation, unique over broker restarts for all practical purposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub u64);

impl OperationId {
    /// What its name begins with.
    pub const PREFIX: &'static str = "op-";
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:016x}", Self::PREFIX, self.0)
    }
}

/// One connection to the broker, of whatever peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u64);
