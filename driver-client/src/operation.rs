//! One operation, as the driver's code sees it.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use broker_proto::driving::Asked;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    classes::{Class, ClassQuery, Classes, LookupError},
    error::Error,
    operations::{ClassRef, Fingerprint, Request},
    secret::{Secret, Sensitive},
    verb::Verb,
};

/// What is asked, and the way to what is needed for it. Cheap to clone.
#[derive(Clone)]
pub struct Operation(Arc<Inner>);

struct Inner {
    job: Job,
    deadline: Mutex<Instant>,
    /// Made when somebody asks for it or cancels: most operations end before.
    cancelled: OnceLock<CancellationToken>,
}

/// An operation as it came from the wire, before it has an execution.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) deadline: Instant,
    query: Arc<ClassQuery>,
    secret_revision: i32,
    classes: Arc<Classes>,
    rare: Option<Box<Rare>>,
}

/// What most operations come without, apart from them: a job is moved about.
struct Rare {
    last_known_state: String,
    user_data: Option<Sensitive>,
    volume_specs: Vec<String>,
    traceparent: String,
    tracestate: String,
}

impl Operation {
    pub(crate) fn new(job: Job) -> Self {
        let deadline = Mutex::new(job.deadline);
        Self(Arc::new(Inner { job, deadline, cancelled: OnceLock::new() }))
    }

    /// One that is cancelled when `token` is.
    pub(crate) fn with_cancellation(job: Job, token: CancellationToken) -> Self {
        let operation = Self::new(job);
        operation.0.cancelled.get_or_init(|| token);
        operation
    }

    /// Without making a token that nobody else wants.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.cancelled.get().is_some_and(CancellationToken::is_cancelled)
    }

    /// Someone waits for longer.
    pub(crate) fn postpone(&self, deadline: Instant) {
        *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    pub fn verb(&self) -> Verb {
        self.0.job.request.verb
    }

    /// The class that the machine belongs to.
    pub fn class_ref(&self) -> &ClassRef {
        self.0.job.request.class()
    }

    /// The machine's name; empty for `list` and `get_volume_ids`.
    pub fn machine_name(&self) -> &str {
        self.0.job.request.machine.name()
    }

    /// The provider's id of the machine, where it is known. For `list`: if set, only this machine
    /// is asked for.
    pub fn provider_id(&self) -> Option<&str> {
        Some(self.0.job.request.provider_id()).filter(|id| !id.is_empty())
    }

    /// What this driver last said of the machine.
    pub fn last_known_state(&self) -> &str {
        self.rare().map_or("", |rare| &rare.last_known_state)
    }

    /// The caller's own id of the request, if it gave one.
    pub fn request_id(&self) -> Option<&str> {
        Some(self.0.job.request.request_id()).filter(|id| !id.is_empty())
    }

    /// For `get_volume_ids`: Kubernetes PersistentVolumeSpecs, as JSON.
    pub fn volume_specs(&self) -> &[String] {
        self.rare().map_or(&[], |rare| &rare.volume_specs)
    }

    /// The W3C trace context that this belongs to: the broker's span where it exports spans, or else
    /// that of the caller that this was started for, if it sent one. With the feature `otlp` the span
    /// around your code is a child of it; without, pass it on or make your spans its children.
    pub fn traceparent(&self) -> Option<&str> {
        self.rare().map(|rare| rare.traceparent.as_str()).filter(|parent| !parent.is_empty())
    }

    /// What belongs to [`traceparent`](Self::traceparent).
    pub fn tracestate(&self) -> Option<&str> {
        self.rare().map(|rare| rare.tracestate.as_str()).filter(|state| !state.is_empty())
    }

    /// When the last caller stops waiting. Moves if another one joins, here or at a broker.
    pub fn deadline(&self) -> Instant {
        *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancelled when nobody wants the answer any more, or the deadline has passed. Then stop
    /// where that leaves nothing half-made, and answer; after a grace time the call is dropped.
    pub fn cancellation(&self) -> &CancellationToken {
        self.0.cancelled.get_or_init(CancellationToken::new)
    }

    /// The class, from the cache or from the broker.
    pub async fn class(&self) -> Result<Arc<Class>, LookupError> {
        self.0.job.classes.class(&self.0.job.query, self.deadline()).await
    }

    /// The class's provider-specific part as `T`: its `spec` if it has one, else `providerSpec`.
    pub async fn spec<T: DeserializeOwned>(&self) -> Result<T, LookupError> {
        self.class().await?.spec()
    }

    /// Whether the class refers to a secret.
    pub fn has_secret(&self) -> bool {
        self.0.job.secret_revision != 0
    }

    /// The class's secret: `secretRef` and `credentialsSecretRef` merged, values decoded.
    ///
    /// Fails with [`LookupError::NoSecret`] if the class refers to none: where that is allowed, ask
    /// [`has_secret`](Self::has_secret) first.
    pub async fn secret(&self) -> Result<Arc<Secret>, LookupError> {
        if !self.has_secret() {
            return Err(LookupError::NoSecret(self.class_ref().to_string()));
        }
        let Job { query, secret_revision, classes, .. } = &self.0.job;
        classes.secret(query, *secret_revision, self.deadline()).await
    }

    /// The machine's user data: the caller's, else `userData` of the class's secret, if any.
    pub async fn user_data(&self) -> Result<Option<Sensitive>, LookupError> {
        if let Some(given) = self.rare().and_then(|rare| rare.user_data.as_ref()) {
            return Ok(Some(given.clone()));
        }
        if !self.has_secret() {
            return Ok(None);
        }
        Ok(self.secret().await?.get("userData").cloned())
    }

    fn rare(&self) -> Option<&Rare> {
        self.0.job.rare.as_deref()
    }
}

impl Job {
    /// Reads an operation frame whose class is that of `query`. `Err` is the answer to a frame that
    /// makes no sense. `scratch` is memory to put its texts together in.
    pub(crate) fn from_wire(
        verb: Verb,
        asked: &Asked<'_>,
        query: Arc<ClassQuery>,
        classes: Arc<Classes>,
        now: Instant,
        scratch: &mut String,
    ) -> Result<Self, Error> {
        if verb.names_a_machine() && asked.machine_name.is_empty() {
            return Err(Error::invalid_argument("no machine name"));
        }
        let deadline = now + time_for(verb, asked.time_left)?;
        let texts = [asked.machine_name, asked.machine_id, asked.request_id];
        let mut request = Request::new(verb, query.class.clone(), texts, scratch);
        request.user_data = asked.user_data.map(Fingerprint::of);
        // What is no time, such as a negative one, lets nothing be recalled.
        request.recall_within = asked.recall_within.map(|time| time.try_into().unwrap_or_default());
        Ok(Self {
            deadline,
            request,
            query,
            secret_revision: asked.secret_revision,
            classes,
            rare: Rare::of(asked).map(Box::new),
        })
    }
}

impl Rare {
    fn of(asked: &Asked<'_>) -> Option<Self> {
        let texts = [asked.last_known_state, asked.traceparent, asked.tracestate];
        let is_there = texts.iter().any(|text| !text.is_empty())
            || asked.user_data.is_some()
            || !asked.volume_specs.is_empty();
        is_there.then(|| Self {
            last_known_state: asked.last_known_state.to_owned(),
            // A copy: what it arrived in belongs to the transport and cannot be wiped.
            user_data: asked.user_data.map(Sensitive::new),
            volume_specs: asked.volume_specs.iter().map(|spec| (*spec).to_owned()).collect(),
            traceparent: asked.traceparent.to_owned(),
            tracestate: asked.tracestate.to_owned(),
        })
    }
}

/// Enormous times are cut to this: nobody waits longer, and clocks do not overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

fn time_for(verb: Verb, given: Option<prost_types::Duration>) -> Result<Duration, Error> {
    let Some(given) = given else { return Ok(verb.default_time()) };
    let over = || Error::new(crate::Code::DeadlineExceeded, "the time was over before it began");
    time_left(given).ok_or_else(over)
}

/// A caller's time, bounded; `None` if it is over.
pub(crate) fn time_left(given: prost_types::Duration) -> Option<Duration> {
    match Duration::try_from(given) {
        Ok(left) if !left.is_zero() => Some(left.min(LONGEST)),
        // Zero and, which does not convert, negative.
        _ => None,
    }
}
