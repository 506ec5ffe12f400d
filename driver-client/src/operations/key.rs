//! What makes two requests the same.

use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::{Arc, LazyLock, OnceLock},
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
    texts: Texts,
}

/// The texts of a request, in one piece of memory: the machine's name, the provider's id, the request's.
#[derive(Clone, Debug)]
struct Texts {
    all: Arc<str>,
    /// Where the name ends.
    name_end: usize,
}

impl MachineKey {
    pub(crate) fn new(class: Arc<ClassRef>, name: &str) -> Self {
        Self::among(class, Texts { all: name.into(), name_end: name.len() })
    }

    fn among(class: Arc<ClassRef>, texts: Texts) -> Self {
        static STATE: LazyLock<maps::State> = LazyLock::new(maps::State::default);
        let hash = STATE.hash_one((class.family(), texts.name()));
        Self { hash, class, texts }
    }

    pub(crate) fn from_wire(forget: wire::Forget) -> Self {
        let class = ClassRef::from_wire(forget.class.unwrap_or_default());
        Self::new(Arc::new(class), &forget.machine_name)
    }

    pub(crate) fn class(&self) -> &Arc<ClassRef> {
        &self.class
    }

    /// The machine's name.
    pub(crate) fn name(&self) -> &str {
        self.texts.name()
    }
}

impl Texts {
    fn name(&self) -> &str {
        &self.all[..self.name_end]
    }
}

impl PartialEq for MachineKey {
    fn eq(&self, other: &Self) -> bool {
        // Nearly always they are clones, of which nothing need be looked at.
        let same_machine =
            || Arc::ptr_eq(&self.texts.all, &other.texts.all) || self.name() == other.name();
        self.hash == other.hash
            && same_machine()
            && (Arc::ptr_eq(&self.class, &other.class)
                || self.class.family() == other.class.family())
    }
}

impl Eq for MachineKey {}

impl Hash for MachineKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// What the table knows of a request. It holds no user data, only a fingerprint of it.
///
/// Thousands are remembered, so it is in as few pieces of memory as may be.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    /// With the class that it was asked for with.
    pub(crate) machine: MachineKey,
    /// Where the provider's id ends in the texts, and the request's begins.
    provider_id_end: usize,
    pub(crate) user_data: Option<Fingerprint>,
    /// What is remembered from before may not be true any more.
    pub(crate) recall_within: Option<Duration>,
    /// When it is over.
    end: OnceLock<End>,
}

#[derive(Debug)]
struct End {
    outcome: Outcome,
    at: Instant,
}

/// An ended operation and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Report(Arc<Request>);

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
        let texts = Texts { all: scratch.as_str().into(), name_end: name.len() };
        Self {
            verb,
            provider_id_end: name.len() + provider_id.len(),
            machine: MachineKey::among(class, texts),
            user_data: None,
            recall_within: None,
            end: OnceLock::new(),
        }
    }

    /// Empty if it is not known.
    pub(crate) fn provider_id(&self) -> &str {
        &self.machine.texts.all[self.machine.texts.name_end..self.provider_id_end]
    }

    /// Empty if the caller gave none.
    pub(crate) fn request_id(&self) -> &str {
        &self.machine.texts.all[self.provider_id_end..]
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
            && self.machine == first.machine
            && self.class().is_same(first.class())
            && same_provider_id
            && self.user_data == first.user_data
            && (self.request_id().is_empty() || self.request_id() == first.request_id())
    }
}

impl Report {
    /// Of a request that was executed, which happens once.
    pub(crate) fn new(request: Arc<Request>, outcome: Outcome, at: Instant) -> Self {
        request.end.get_or_init(|| End { outcome, at });
        Self(request)
    }

    pub(crate) fn request(&self) -> &Request {
        &self.0
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        &self.end().outcome
    }

    /// When it ended.
    pub(crate) fn ended(&self) -> Instant {
        self.end().at
    }

    /// Whether both are of the same execution.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn end(&self) -> &End {
        self.0.end.get().expect("it was set when this was made")
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
