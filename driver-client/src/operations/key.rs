//! What makes two requests the same.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock},
    time::Duration,
};

use broker_proto::v1 as wire;
use tokio::time::Instant;

use crate::{answer::Outcome, maps, verb::Verb};

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
    pub(crate) fn from_wire(class: wire::ClassRef) -> Self {
        let wire::ClassRef { api_version, kind, namespace, name, provider } = class;
        Self { api_version, kind, namespace, name, provider }
    }

    /// Whether both name one class. The provider only helps to find a driver: a caller may leave
    /// it out.
    pub(crate) fn is_same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.name == other.name && self.family() == other.family()
    }

    /// What the names of machines are unique in.
    fn family(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.kind, &self.api_version)
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

/// One machine, whatever class it has: the unit of mutual exclusion. Cheap to clone, and hashed once.
#[derive(Clone, Debug)]
pub(crate) struct MachineKey {
    hash: u64,
    /// Of which the name and the provider do not count.
    class: Arc<ClassRef>,
    /// Begins with the machine's name. What follows is the request's that it is a part of.
    texts: Arc<str>,
    name_end: usize,
}

impl MachineKey {
    pub(crate) fn new(class: Arc<ClassRef>, name: &str) -> Self {
        Self::first_of(name.into(), name.len(), class)
    }

    fn first_of(texts: Arc<str>, name_end: usize, class: Arc<ClassRef>) -> Self {
        static STATE: LazyLock<maps::State> = LazyLock::new(maps::State::default);
        let hash = STATE.hash_one((class.family(), &texts[..name_end]));
        Self { hash, class, texts, name_end }
    }

    pub(crate) fn from_wire(forget: wire::Forget) -> Self {
        let class = ClassRef::from_wire(forget.class.unwrap_or_default());
        Self::new(Arc::new(class), &forget.machine_name)
    }

    /// Equal ones have the same.
    pub(super) fn hashed(&self) -> u64 {
        self.hash
    }

    pub(crate) fn class(&self) -> &Arc<ClassRef> {
        &self.class
    }

    /// The machine's name.
    pub(crate) fn name(&self) -> &str {
        &self.texts[..self.name_end]
    }
}

impl PartialEq for MachineKey {
    fn eq(&self, other: &Self) -> bool {
        // Nearly always they are clones, of which nothing need be looked at.
        let same_machine = || Arc::ptr_eq(&self.texts, &other.texts) || self.name() == other.name();
        self.hash == other.hash
            && same_machine()
            && (Arc::ptr_eq(&self.class, &other.class)
                || self.class.family() == other.class.family())
    }
}

impl Eq for MachineKey {}

/// What the table knows of a request. It holds no user data, only a fingerprint of it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    /// With the class that it was asked for with.
    pub(crate) machine: MachineKey,
    /// Where the provider's id ends in the texts, and the request's begins.
    provider_id_end: usize,
    pub(crate) user_data: Option<Fingerprint>,
    /// What is remembered from before may not be true any more.
    pub(crate) recall_within: Option<Duration>,
}

/// An ended operation and its answer. Cheap to clone, since it is remembered in several places.
#[derive(Clone, Debug)]
pub(crate) struct Report(Arc<Ended>);

#[derive(Debug)]
struct Ended {
    request: Request,
    outcome: Outcome,
    at: Instant,
}

impl Request {
    /// `scratch` is memory to put the texts together in.
    pub(crate) fn new(
        verb: Verb,
        class: Arc<ClassRef>,
        [name, provider_id, request_id]: [&str; 3],
        scratch: &mut String,
    ) -> Self {
        scratch.clear();
        for text in [name, provider_id, request_id] {
            scratch.push_str(text);
        }
        Self {
            verb,
            machine: MachineKey::first_of(scratch.as_str().into(), name.len(), class),
            provider_id_end: name.len() + provider_id.len(),
            user_data: None,
            recall_within: None,
        }
    }

    /// Empty if it is not known.
    pub(crate) fn provider_id(&self) -> &str {
        &self.machine.texts[self.machine.name_end..self.provider_id_end]
    }

    /// Empty if the caller gave none.
    pub(crate) fn request_id(&self) -> &str {
        &self.machine.texts[self.provider_id_end..]
    }

    pub(crate) fn class(&self) -> &Arc<ClassRef> {
        self.machine.class()
    }

    /// Whether this is `first` once more. Brokers decide by the same rules. Without a request id it
    /// repeats any equal one; with one, only that of the same id. The provider's id may be known by
    /// now, or not any more: it tells requests apart only where both have one.
    pub(crate) fn repeats(&self, first: &Request) -> bool {
        let (provider_id, firsts) = (self.provider_id(), first.provider_id());
        let same_provider_id = provider_id == firsts || provider_id.is_empty() || firsts.is_empty();
        self.verb == first.verb
            && (self.request_id().is_empty() || self.request_id() == first.request_id())
            && self.machine == first.machine
            && self.class().is_same(first.class())
            && same_provider_id
            && self.user_data == first.user_data
    }
}

impl Report {
    pub(crate) fn new(request: Request, outcome: Outcome, at: Instant) -> Self {
        Self(Arc::new(Ended { request, outcome, at }))
    }

    pub(crate) fn request(&self) -> &Request {
        &self.0.request
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        &self.0.outcome
    }

    /// When it ended.
    pub(crate) fn ended(&self) -> Instant {
        self.0.at
    }

    /// Whether both are of the same execution.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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
