//! Presence in a cluster: a Lease of our own that is renewed, and a watch of everybody's.
//!
//! This is the one file of the room that knows the types of `kube`. Nothing waits for it: if the API
//! server is away, or does not let us, the replicas that were known stay known.

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams, Preconditions},
    runtime::watcher::{self, Event, watcher},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Replicas, Report,
    claim::{Claim, claim},
    presence::{LEASE, Presence, Presences, RENEW_EVERY},
};
use crate::{
    backoff::{Backoff, Pace},
    catalog::kubernetes::{Cluster, innermost},
};

/// The name of a replica's Lease is this and its own.
const PREFIX: &str = "machine-broker-";
/// What all of them are selected by.
const LABEL: (&str, &str) = ("machinebroker.dev/presence", "broker");
/// Where drivers reach the replica.
const ADDRESS: &str = "machinebroker.dev/address";
/// Which drivers it has.
const DRIVERS: &str = "machinebroker.dev/drivers";

const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// Drivers come in crowds: their report is made no more often than this.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// With a Lease of ours there is news more often than this, so the watch is dead.
const SILENT: Duration = Duration::from_secs(20);
/// How often the Leases of those that are gone for good are removed.
const TIDY_EVERY: Duration = Duration::from_secs(60);
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

const PACE: Pace = Pace {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(5),
    well_after: Duration::from_secs(10),
};

/// The presence of one replica among others.
pub struct Leases {
    api: Api<Lease>,
    namespace: String,
    replicas: Replicas,
    /// Which process of the replica this is.
    holder: String,
    address: String,
    /// What is said of the drivers here, and when that may have changed.
    report: Box<dyn Fn() -> Report + Send + Sync>,
    changes: watch::Receiver<()>,
}

/// The Lease with our name, as it was last seen.
struct Found {
    lease: Option<Lease>,
    /// Since when it has been as it is.
    since: Instant,
}

/// Why our presence could not be told.
enum Failure {
    /// Another process does the same under the same name.
    Taken(String),
    Other(String),
}

impl Leases {
    /// The Leases of `namespace`, or of the one that this process belongs to. `address` is where drivers
    /// reach us.
    pub fn new(
        cluster: &Cluster,
        namespace: Option<String>,
        replicas: Replicas,
        address: String,
        report: impl Fn() -> Report + Send + Sync + 'static,
        changes: watch::Receiver<()>,
    ) -> Self {
        let client = cluster.client();
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let holder = format!("{}_{:016x}", replicas.id(), rand::random::<u64>());
        let api = Api::namespaced(client, &namespace);
        Self { api, namespace, replicas, holder, address, report: Box::new(report), changes }
    }

    /// Is present, and looks who else is, until `leaving`. Then the others are told that we are gone.
    pub async fn run(self, leaving: CancellationToken) {
        info!(namespace = self.namespace, address = self.address, "presence is told by a Lease");
        let abandoned = watch::Sender::new(Vec::new());
        let tidy = self.tidy(abandoned.subscribe());
        let all = async { tokio::join!(self.be_present(), self.look(&abandoned), tidy) };
        leaving.run_until_cancelled(all).await;
        let is_ours = |presence: &Presence| presence.holder == self.holder;
        if timeout(ANSWER_WITHIN, self.remove(&self.name(), is_ours)).await.is_err() {
            warn!("the Lease could not be removed; the others see that when its time is over");
        }
    }

    fn name(&self) -> String {
        format!("{PREFIX}{}", self.replicas.id())
    }

    /// Renews our Lease for ever, and out of turn when the drivers here have changed.
    async fn be_present(&self) {
        let mut changes = self.changes.clone();
        let mut found = Found { lease: None, since: Instant::now() };
        let mut told = true;
        loop {
            let written = Instant::now();
            let report = (self.report)().to_text();
            match self.renew(&mut found, &report).await {
                Ok(()) => {
                    self.replicas.note_unseen(None);
                    if !std::mem::replace(&mut told, true) {
                        info!("present again");
                    }
                }
                Err(failure) => {
                    let why = failure.to_string();
                    if std::mem::replace(&mut told, false) {
                        warn!(why, "the other replicas are not told that this one is here");
                    }
                    self.replicas.note_unseen(Some(why));
                }
            }
            let news = async {
                let mut looked = written;
                // The registry lives as long as we do.
                while changes.changed().await.is_ok() {
                    sleep_until(looked + REPORT_EVERY).await;
                    looked = Instant::now();
                    changes.mark_unchanged();
                    if (self.report)().to_text() != report {
                        return;
                    }
                }
                std::future::pending().await
            };
            tokio::select! {
                () = sleep_until(written + RENEW_EVERY) => {}
                () = news => {}
            }
        }
    }

    /// Writes our Lease, if it is ours to write.
    async fn renew(&self, found: &mut Found, report: &str) -> Result<(), Failure> {
        if found.lease.is_none() {
            found.see(answered(self.api.get_opt(&self.name())).await?);
        }
        let presence = found.lease.as_ref().and_then(presence);
        let unchanged = found.since.elapsed();
        let written = match claim(presence.as_ref(), &self.holder, &self.address, unchanged) {
            Claim::Create => {
                answered(self.api.create(&PostParams::default(), &self.lease(None, report))).await
            }
            Claim::Take => {
                let lease = self.lease(found.lease.as_ref(), report);
                answered(self.api.replace(&self.name(), &PostParams::default(), &lease)).await
            }
            Claim::Leave => {
                // Looked at again: it may have been renewed, or be gone.
                found.see(answered(self.api.get_opt(&self.name())).await?);
                let holder = presence.map(|presence| presence.holder).unwrap_or_default();
                return Err(Failure::Taken(holder));
            }
        };
        match written {
            Ok(lease) => {
                found.see(Some(lease));
                Ok(())
            }
            Err(failure) => {
                // Whatever it was, the next turn begins with a look.
                if let Ok(lease) = answered(self.api.get_opt(&self.name())).await {
                    found.see(lease);
                }
                Err(failure)
            }
        }
    }

    /// Our Lease in place of `before`.
    fn lease(&self, before: Option<&Lease>, report: &str) -> Lease {
        let now = MicroTime(Timestamp::now());
        let spec = before.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = spec.holder_identity.as_ref() == Some(&self.holder);
        let transitions = spec.lease_transitions.unwrap_or(0);
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name()),
                labels: Some([text(LABEL.0, LABEL.1)].into()),
                annotations: Some([text(ADDRESS, &self.address), text(DRIVERS, report)].into()),
                // So that nobody's change is overwritten unseen.
                resource_version: before.and_then(|lease| lease.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: Some(LEASE.as_secs() as i32),
                acquire_time: if ours { spec.acquire_time } else { Some(now.clone()) },
                lease_transitions: Some(transitions + i32::from(before.is_some() && !ours)),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Follows everybody's Leases, for ever.
    async fn look(&self, abandoned: &watch::Sender<Vec<Presence>>) {
        let mut presences = Presences::default();
        let mut backoff = Backoff::new(PACE);
        loop {
            let started = Instant::now();
            self.follow(&mut presences, abandoned).await;
            sleep(backoff.next(started.elapsed())).await;
        }
    }

    /// Follows them until the watch breaks.
    async fn follow(&self, presences: &mut Presences, abandoned: &watch::Sender<Vec<Presence>>) {
        let selector = format!("{}={}", LABEL.0, LABEL.1);
        let config = watcher::Config::default().labels(&selector);
        let mut events = pin!(watcher(self.api.clone(), config));
        let mut listing = Vec::new();
        loop {
            let Ok(event) = timeout(SILENT, events.next()).await else {
                debug!("nothing is heard of Leases");
                self.replicas.note_blind(Some(format!("nothing heard for {SILENT:?}")));
                return;
            };
            let Some(event) = event else { return };
            let now = Instant::now();
            match event {
                Ok(Event::Init) => {
                    listing.clear();
                    continue;
                }
                Ok(Event::InitApply(lease)) => {
                    listing.extend(presence(&lease));
                    continue;
                }
                Ok(Event::InitDone) => {
                    self.replicas.note_blind(None);
                    presences.listed(std::mem::take(&mut listing), now);
                }
                Ok(Event::Apply(lease)) => {
                    if let Some(presence) = presence(&lease) {
                        presences.put(presence, now);
                    }
                }
                Ok(Event::Delete(lease)) => {
                    if let Some(presence) = presence(&lease) {
                        presences.remove(&presence.replica, now);
                    }
                }
                Err(error) => {
                    debug!(%error, "the watch of Leases broke");
                    self.replicas.note_blind(Some(innermost(&error)));
                    return;
                }
            }
            self.see(presences);
            abandoned.send_replace(presences.abandoned(self.replicas.id()));
        }
    }

    fn see(&self, presences: &Presences) {
        let before = self.replicas.peers().revision;
        self.replicas.present(presences.live(self.replicas.id()));
        let peers = self.replicas.peers();
        if peers.revision != before {
            let names: Vec<_> = peers.peers.iter().map(super::Peer::name).collect();
            info!(peers = names.join(", "), "the other replicas have changed");
        }
    }

    /// Removes what replicas that are gone for good have left behind, for ever. Each lost pod leaves a
    /// Lease, and whoever starts takes it for that of one who lives until its time is over.
    async fn tidy(&self, abandoned: watch::Receiver<Vec<Presence>>) {
        loop {
            sleep(TIDY_EVERY).await;
            let abandoned = abandoned.borrow().clone();
            for gone in abandoned {
                let is_still_so = |presence: &Presence| presence.is_same_renewal(&gone);
                self.remove(&format!("{PREFIX}{}", gone.replica), is_still_so).await;
            }
        }
    }

    /// Removes a Lease, if it is the one that is meant, and nobody changes it meanwhile.
    async fn remove(&self, name: &str, is_meant: impl Fn(&Presence) -> bool) {
        let lease = match answered(self.api.get_opt(name)).await {
            Ok(Some(lease)) => lease,
            Ok(None) => return,
            Err(failure) => return debug!(%failure, "the Lease could not be read"),
        };
        if !presence(&lease).is_some_and(|presence| is_meant(&presence)) {
            return;
        }
        let preconditions = Some(Preconditions {
            resource_version: lease.metadata.resource_version,
            uid: lease.metadata.uid,
        });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match answered(self.api.delete(name, &params)).await {
            Ok(_) => debug!(name, "a Lease was removed"),
            Err(failure) => debug!(%failure, name, "the Lease could not be removed"),
        }
    }
}

impl Found {
    fn see(&mut self, lease: Option<Lease>) {
        let version = |lease: &Option<Lease>| {
            lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone())
        };
        if version(&lease) != version(&self.lease) {
            self.since = Instant::now();
        }
        self.lease = lease;
    }
}

/// What a Lease says; `None` for one that is not of a broker.
fn presence(lease: &Lease) -> Option<Presence> {
    let replica = lease.metadata.name.as_deref()?.strip_prefix(PREFIX)?;
    let spec = lease.spec.clone().unwrap_or_default();
    let annotation =
        |key| lease.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Some(Presence {
        replica: replica.into(),
        holder: spec.holder_identity.unwrap_or_default(),
        address: annotation(ADDRESS).map(Arc::from),
        renewed: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
        lasts: seconds.map_or(LEASE, Duration::from_secs),
        report: Arc::new(annotation(DRIVERS).map(Report::from_text).unwrap_or_default()),
    })
}

async fn answered<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match timeout(ANSWER_WITHIN, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == CONFLICT => {
            Err(Failure::Other("somebody else has just written it".to_owned()))
        }
        Ok(Err(kube::Error::Api(status))) if status.code == NOT_FOUND => {
            Err(Failure::Other("it has just been removed".to_owned()))
        }
        Ok(Err(error)) => Err(Failure::Other(innermost(&error))),
        Err(_) => Err(Failure::Other(format!("no answer within {ANSWER_WITHIN:?}"))),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(holder) => write!(
                f,
                "another process ({holder}) calls itself by the same name: give each replica its own \
                 with --replica"
            ),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("holder", &self.holder).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::{body::Body, http};
    use kube::Client;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tower::service_fn;

    use super::*;

    const EARLY: &str = "2026-01-01T00:00:00.000000Z";
    const LATE: &str = "2026-01-01T00:10:00.000000Z";

    type Request = http::Request<kube::client::Body>;
    type Response = http::Response<Body>;

    /// The replica `own` with an API server that answers like this.
    fn leases<A>(answer: impl Fn(Request) -> A + Clone + Send + 'static) -> Leases
    where
        A: Future<Output = Response> + Send + 'static,
    {
        let answer = move |request| {
            let answer = answer(request);
            async { Ok::<_, Infallible>(answer.await) }
        };
        Leases {
            api: Api::namespaced(Client::new(service_fn(answer), "here"), "here"),
            namespace: "here".to_owned(),
            replicas: Replicas::new("own", None),
            holder: "own_1".to_owned(),
            address: "own:1".to_owned(),
            report: Box::new(Report::default),
            changes: watch::Sender::new(()).subscribe(),
        }
    }

    fn lease(replica: &str, renewed: &str) -> Value {
        let name = format!("{PREFIX}{replica}");
        json!({
            "metadata": {"name": name, "uid": "u", "resourceVersion": "7"},
            "spec": {"holderIdentity": format!("{replica}_1"), "renewTime": renewed},
        })
    }

    /// News of our own Lease whenever it is renewed.
    fn news() -> Body {
        Body::from_stream(futures::stream::repeat(()).then(async |()| {
            sleep(RENEW_EVERY).await;
            let event = json!({"type": "MODIFIED", "object": lease("own", EARLY)});
            Ok::<_, Infallible>(format!("{event}\n"))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_abandoned_is_removed_unless_it_was_renewed_meanwhile() {
        for (found, removed) in [(EARLY, true), (LATE, false)] {
            let (sender, mut deletes) = mpsc::channel(16);
            let leases = leases(move |request| {
                let sender = sender.clone();
                async move {
                    let (path, query) = (request.uri().path(), request.uri().query());
                    let body = match path.rsplit('/').next() {
                        Some("leases") if query.is_some_and(|query| query.contains("watch")) => news(),
                        Some("leases") => Body::from(
                            json!({"metadata": {"resourceVersion": "1"}, "items": [lease("gone", EARLY)]})
                                .to_string(),
                        ),
                        _ => Body::from(lease("gone", found).to_string()),
                    };
                    if request.method() == http::Method::DELETE {
                        let path = path.to_owned();
                        let body = request.into_body().collect_bytes().await.expect("it is whole");
                        sender
                            .try_send((Instant::now(), path, body))
                            .expect("the test looks at it");
                    }
                    Response::new(body)
                }
            });
            let began = Instant::now();
            let abandoned = watch::Sender::new(Vec::new());
            let tidy = leases.tidy(abandoned.subscribe());
            let all = async { tokio::join!(leases.look(&abandoned), tidy) };
            assert!(timeout(Duration::from_secs(12 * 60), all).await.is_err(), "it goes on");
            let deleted = deletes.try_recv().ok();
            assert_eq!(deleted.is_some(), removed);
            if let Some((at, path, body)) = deleted {
                assert!(at - began >= Duration::from_secs(10 * 60), "{:?}", at - began);
                assert!(path.ends_with("/namespaces/here/leases/machine-broker-gone"), "{path}");
                let body: Value = serde_json::from_slice(&body).expect("JSON");
                assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_says_nothing_is_a_problem_that_is_told() {
        let leases = leases(|_| std::future::pending());
        leases.follow(&mut Presences::default(), &watch::Sender::new(Vec::new())).await;
        let told = ["this one cannot see which others are here: nothing heard for 20s"];
        assert_eq!(leases.replicas.problems(), told);
    }
}
