//! What is counted, for Prometheus.
//!
//! Rooms tell facts to [`Metrics`] by its verbs; totals live there, so they outlive sessions. What can
//! be read whenever somebody looks is not told but read, when `/metrics` is asked for: see `scrape`.
//! [`Exposition`] is the page with both. All label sets are bounded: kinds by `kinds`, all others by
//! their enums.

mod exposition;
mod kinds;
mod latency;
mod scrape;

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, SystemTime},
};

use broker_proto::v1::reject::Reason;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

pub use self::exposition::Exposition;
use self::{
    kinds::{Kind, Kinds},
    latency::Latencies,
};
use crate::{
    auth,
    catalog::Denied,
    dispatch,
    operation::{Operation, Outcome},
    session::{self, Oddities},
};

/// Cheap to clone: every clone counts into the same totals.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Totals>);

#[derive(Debug)]
struct Totals {
    kinds: Kinds,
    latencies: Latencies,
    handshakes: By,
    rejects: By,
    takeovers: Counter,
    odd_frames: By,
    class_reads: By,
    secret_reads: By,
    denials: By,
    token_reviews: By,
    failures: Family<Failure, Counter>,
    tls_refusals: By,
    connections: Ports,
    newcomers: Ports,
    connection_refusals: By,
    beyond_bounds: Bounds,
    tls_reload_failures: Counter,
    /// None without TLS.
    tls_expiry: Mutex<Option<SystemTime>>,
}

/// Counts by one label with few values.
type By = Family<[(&'static str, &'static str); 1], Counter>;

type Ports = Family<[(&'static str, &'static str); 1], Gauge>;
type Bounds = Family<[(&'static str, &'static str); 2], Counter>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    kind: Arc<str>,
    reason: &'static str,
}

/// A caller that waits for a driver to come, for as long as this lives.
#[derive(Debug)]
#[must_use = "dropped, it counts as not waiting any more"]
pub struct Waiting(Arc<Kind>);

const READS: [&str; 6] = ["ok", "bad_name", "missing", "foreign", "unreferenced", "ambiguous"];
const DENIALS: [&str; 6] =
    ["no_credentials", "bad_token", "bad_certificate", "policy", "no_such_method", "cross_site"];
const TOKEN_REVIEWS: [&str; 4] = ["answered", "failed", "cached", "refused"];
const BOUNDS: [&str; 5] = ["connections", "drivers", "unregistered", "streams", "registrations"];
const CONNECTION_REFUSALS: [&str; 3] = ["full", "crowded_out", "idle"];
const REJECTS: [&str; 9] = [
    "unspecified",
    "protocol",
    "duplicate",
    "denied",
    "draining",
    "busy",
    "invalid",
    "connected",
    "no_registration",
];

impl Default for Totals {
    fn default() -> Self {
        let sorts = odd_sorts(Oddities::default()).map(|(sort, _)| sort);
        Self {
            kinds: Kinds::default(),
            latencies: Latencies::default(),
            handshakes: from_zero("protocol", ["legacy", "native"]),
            rejects: from_zero("reason", REJECTS),
            takeovers: Counter::default(),
            odd_frames: from_zero("sort", sorts),
            class_reads: from_zero("result", READS),
            secret_reads: from_zero("result", READS),
            denials: from_zero("reason", DENIALS),
            token_reviews: from_zero("result", TOKEN_REVIEWS),
            failures: Family::default(),
            tls_refusals: from_zero("reason", broker_tls::server::REASONS),
            connections: ports(),
            newcomers: ports(),
            connection_refusals: from_zero("reason", CONNECTION_REFUSALS),
            beyond_bounds: bounds(),
            tls_reload_failures: Counter::default(),
            tls_expiry: Mutex::default(),
        }
    }
}

impl Metrics {
    /// An operation that a session had is over. Called once for each.
    pub fn operation_ended(&self, operation: &Operation, outcome: &Outcome, took: Duration) {
        let request = &operation.request;
        let ended = kinds::Ended::of(outcome, operation.delivery());
        self.0.kinds.with(&request.key.kind, |kind| kind.count(request.verb, ended));
        if let Outcome::Answered(_) = outcome {
            self.0.latencies.observe(operation, took);
        }
    }

    /// A caller got no answer. `kind` is believed only where the error shows that it exists.
    pub fn request_failed(&self, kind: &str, error: &dispatch::Error) {
        let reason = reason_of(error);
        let kind = if error.knows_kind() { self.kind(kind).name() } else { "".into() };
        self.0.failures.get_or_create(&Failure { kind, reason }).inc();
    }

    /// A caller waits for a driver to come, until the value is dropped.
    pub fn waits_for_driver(&self, kind: &str) -> Waiting {
        let kind = self.kind(kind);
        kind.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(kind)
    }

    pub fn driver_registered(&self, info: &session::Info) {
        let protocol = if info.protocol > 0 { "native" } else { "legacy" };
        count(&self.0.handshakes, "protocol", protocol, 1);
    }

    pub fn driver_rejected(&self, reason: Reason) {
        let reason = match reason {
            Reason::Unspecified => "unspecified",
            Reason::Protocol => "protocol",
            Reason::Duplicate => "duplicate",
            Reason::Denied => "denied",
            Reason::Draining => "draining",
            Reason::Busy => "busy",
            Reason::Invalid => "invalid",
            Reason::Connected => "connected",
        };
        count(&self.0.rejects, "reason", reason, 1);
    }

    /// A stream was ended since no registration came on it.
    pub fn driver_said_nothing(&self) {
        count(&self.0.rejects, "reason", "no_registration", 1);
    }

    /// A driver that came took the place of so many sessions, whether it was let in or not.
    pub fn took_over(&self, sessions: u32) {
        self.0.takeovers.inc_by(sessions.into());
    }

    /// A session's frames that made no sense grew in number.
    pub fn odd_frames(&self, before: Oddities, now: Oddities) {
        for ((sort, now), (_, before)) in odd_sorts(now).into_iter().zip(odd_sorts(before)) {
            count(&self.0.odd_frames, "sort", sort, now.saturating_sub(before));
        }
    }

    pub fn class_read<T>(&self, result: &Result<T, Denied>) {
        count(&self.0.class_reads, "result", result_of(result), 1);
    }

    pub fn secret_read<T>(&self, result: &Result<T, Denied>) {
        count(&self.0.secret_reads, "result", result_of(result), 1);
    }

    /// Somebody was not let in, or may not do what they wanted.
    pub fn caller_denied(&self, denied: &auth::Denied) {
        use auth::Denied as D;
        let reason = match denied {
            D::NoCredentials => "no_credentials",
            D::NotBearer | D::UnknownToken | D::LoggedOut => "bad_token",
            D::CannotTell { .. } => "not_reviewed",
            D::NamelessCertificate | D::BadCertificate(_) => "bad_certificate",
            D::Refused(_) | D::Moved => "policy",
            D::NoSuchMethod => "no_such_method",
            D::CrossSite(_) => "cross_site",
        };
        count(&self.0.denials, "reason", reason, 1);
    }

    /// Somebody showed a token that others have to be asked about; what came of it.
    pub fn token_reviewed(&self, result: &'static str) {
        count(&self.0.token_reviews, "result", result, 1);
    }

    #[cfg(test)]
    pub(crate) fn token_reviews(&self, result: &'static str) -> u64 {
        self.0.token_reviews.get_or_create(&[("result", result)]).get()
    }

    /// A connection got no further than its TLS handshake.
    pub fn tls_refused(&self, reason: &'static str) {
        count(&self.0.tls_refusals, "reason", reason, 1);
    }

    /// So many connections are open, and on so many of them nobody was let in.
    pub fn connections(&self, port: &'static str, open: usize, newcomers: usize) {
        let set = |family: &Ports, number: usize| {
            family.get_or_create(&[("port", port)]).set(i64::try_from(number).unwrap_or(i64::MAX));
        };
        set(&self.0.connections, open);
        set(&self.0.newcomers, newcomers);
    }

    /// A connection was not taken, or had to go.
    pub fn connection_refused(&self, reason: &'static str) {
        count(&self.0.connection_refusals, "reason", reason, 1);
    }

    /// Somebody wanted more than the bound on `what` that is `of` the broker or of one identity.
    pub fn beyond_bound(&self, what: &'static str, of: &'static str) {
        self.0.beyond_bounds.get_or_create(&[("what", what), ("of", of)]).inc();
    }

    /// The files of certificates changed and cannot be used.
    pub fn tls_reload_failed(&self) {
        self.0.tls_reload_failures.inc();
    }

    /// New connections get a certificate that is good until then.
    pub fn tls_certificate(&self, not_after: SystemTime) {
        *self.0.tls_expiry.lock().unwrap_or_else(PoisonError::into_inner) = Some(not_after);
    }

    fn kind(&self, name: &str) -> Arc<Kind> {
        self.0.kinds.with(name, Arc::clone)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// With every value there from the start, so that the first event is an increase.
fn from_zero<const N: usize>(label: &'static str, values: [&'static str; N]) -> By {
    let family = By::default();
    for value in values {
        count(&family, label, value, 0);
    }
    family
}

fn ports() -> Ports {
    let family = Ports::default();
    for port in ["grpc", "admin"] {
        family.get_or_create(&[("port", port)]).set(0);
    }
    family
}

fn bounds() -> Bounds {
    let family = Bounds::default();
    for what in BOUNDS {
        for of in ["broker", "identity"] {
            family.get_or_create(&[("what", what), ("of", of)]).inc_by(0);
        }
    }
    family
}

fn count(family: &By, label: &'static str, value: &'static str, by: u64) {
    family.get_or_create(&[(label, value)]).inc_by(by);
}

fn odd_sorts(oddities: Oddities) -> [(&'static str, u64); 5] {
    let Oddities { unknown_id, wrong_verb, empty, unexpected, forgotten } = oddities;
    [
        ("unknown_id", unknown_id),
        ("wrong_verb", wrong_verb),
        ("empty", empty),
        ("unexpected", unexpected),
        ("forgotten", forgotten),
    ]
}

fn result_of<T>(result: &Result<T, Denied>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Denied::BadName(_)) => "bad_name",
        Err(Denied::Missing(_)) => "missing",
        Err(Denied::Foreign(_)) => "foreign",
        Err(Denied::Unreferenced(_)) => "unreferenced",
        Err(Denied::Elsewhere { .. }) => "elsewhere",
        Err(Denied::Ambiguous(_)) => "ambiguous",
    }
}

/// A label for an error, and whether the request was for a class that exists.
fn reason_of(error: &dispatch::Error) -> &'static str {
    use dispatch::Error;
    match error {
        Error::Invalid { .. } => "invalid",
        Error::Denied(_) => "denied",
        Error::NoClass(_) => "no_class",
        Error::Unread { .. } => "unread",
        Error::Deleted { .. } => "deleted",
        Error::Stopping => "stopping",
        Error::NoDriver { .. } => "no_driver",
        Error::NoneReady { .. } => "none_ready",
        Error::Unsupported { .. } => "unsupported",
        Error::ProviderIdRequired { .. } => "provider_id_required",
        Error::Conflict(_) => "conflict",
        Error::Busy(..) => "busy",
        Error::Settling => "settling",
        Error::Away { .. } => "away",
        Error::Lost(_) => "lost",
        Error::TooLate | Error::Deadline(_) => "deadline",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_frames_add_up_over_sessions() {
        let metrics = Metrics::default();
        let none = Oddities::default();
        let first = Oddities { empty: 2, ..none };
        metrics.odd_frames(none, first);
        metrics.odd_frames(first, Oddities { empty: 3, ..none });
        metrics.odd_frames(none, Oddities { empty: 4, ..none });
        assert_eq!(metrics.0.odd_frames.get_or_create(&[("sort", "empty")]).get(), 7);
    }

    #[test]
    fn a_kind_that_only_a_caller_speaks_of_is_no_label() {
        let metrics = Metrics::default();
        let error = dispatch::Error::Invalid { field: "class", problem: "is missing".to_owned() };
        metrics.request_failed("made-up", &error);
        assert!(metrics.0.kinds.all().is_empty());
    }

    #[test]
    fn who_waits_for_a_driver_is_counted_until_it_stops() {
        let metrics = Metrics::default();
        let waiting = [metrics.waits_for_driver("K"), metrics.waits_for_driver("K")];
        assert_eq!(metrics.kind("K").waiting.load(Ordering::Relaxed), 2);
        drop(waiting);
        assert_eq!(metrics.kind("K").waiting.load(Ordering::Relaxed), 0);
    }
}
