//! What makes two requests the same.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
    time::Duration,
};

use broker_proto::v1 as wire;

use crate::verb::Verb;

/// Names one machine class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClassRef {
    /// `group/version`, or `version` alone.
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// The provider, for kinds that several share; else empty.
    pub provider: String,
}

impl ClassRef {
    /// Whether both name one class. The provider only helps to find a driver: a caller may leave
    /// it out.
    pub(crate) fn is_same(&self, other: &ClassRef) -> bool {
        (&self.name, &self.namespace, &self.kind, &self.api_version)
            == (&other.name, &other.namespace, &other.kind, &other.api_version)
    }

    pub(crate) fn to_wire(&self) -> wire::ClassRef {
        wire::ClassRef {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            provider: self.provider.clone(),
        }
    }
}

impl fmt::Display for ClassRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// One machine, whatever class it has: the unit of mutual exclusion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MachineKey {
    api_version: String,
    kind: String,
    namespace: String,
    machine: String,
}

impl MachineKey {
    pub(crate) fn from_wire(forget: wire::Forget) -> Self {
        let wire::ClassRef { api_version, kind, namespace, .. } = forget.class.unwrap_or_default();
        Self { api_version, kind, namespace, machine: forget.machine_name }
    }
}

/// What the table knows of a request. It holds no user data, only a fingerprint of it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) class: ClassRef,
    pub(crate) machine: String,
    pub(crate) provider_id: String,
    pub(crate) request_id: String,
    pub(crate) user_data: Option<Fingerprint>,
    /// What is remembered from before may not be true any more.
    pub(crate) recall_within: Option<Duration>,
}

impl Request {
    pub(crate) fn machine_key(&self) -> MachineKey {
        MachineKey {
            api_version: self.class.api_version.clone(),
            kind: self.class.kind.clone(),
            namespace: self.class.namespace.clone(),
            machine: self.machine.clone(),
        }
    }

    /// Whether this is `first` once more. Brokers decide by the same rules. Without a request id it
    /// repeats any equal one; with one, only that of the same id. The provider's id may be known by
    /// now, or not any more: it tells requests apart only where both have one.
    pub(crate) fn repeats(&self, first: &Request) -> bool {
        let same_provider_id = self.provider_id == first.provider_id
            || self.provider_id.is_empty()
            || first.provider_id.is_empty();
        self.verb == first.verb
            && self.machine == first.machine
            && self.class.is_same(&first.class)
            && same_provider_id
            && self.user_data == first.user_data
            && (self.request_id.is_empty() || self.request_id == first.request_id)
    }
}

/// Tells user data apart without keeping them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        // Keyed at random once per process, so that nobody can prepare a collision.
        static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(KEYED.hash_one(bytes))
    }
}
