//! What is read when somebody looks: the state of registry, ledger and catalog, and what is counted
//! by kind. Nothing of it is kept up to date in between.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, SystemTime},
};

use prometheus_client::{
    collector::Collector,
    encoding::{
        DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric as _, NoLabelSet,
    },
    metrics::MetricType,
    registry::Unit,
};

use tokio::runtime::Handle;

use super::{Failure, Metrics};
use crate::{
    inspect::Rooms,
    operation::{Delivery, Ledger},
    session::{Health, SessionHandle},
};

const STATES: [&str; 3] = ["ready", "suspect", "draining"];

#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) metrics: Metrics,
    pub(super) rooms: Arc<Rooms>,
}

/// The sessions of one kind.
#[derive(Debug, Default)]
struct Fleet {
    by_state: [usize; STATES.len()],
    last_heard: Option<Duration>,
    capacity: usize,
    in_flight: usize,
    queued: usize,
    queue_limit: usize,
}

/// The operations that are not settled.
#[derive(Debug, Default)]
struct Pending {
    not_sent: usize,
    sent: usize,
    accepted: usize,
    oldest: Duration,
    oldest_unaccepted: Duration,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.catalog(&mut page)?;
        self.sessions(&mut page)?;
        self.pending(&mut page)?;
        self.audit(&mut page)?;
        self.certificate(&mut page)?;
        let tasks = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        page.number("tasks", "Tasks of the runtime that are alive", None, tasks)?;
        self.counts(&mut page)
    }
}

impl Scrape {
    fn catalog(&self, page: &mut Page<'_>) -> fmt::Result {
        let classes = self.rooms.catalog.classes();
        for class in &classes {
            // A kind whose driver never came is one that operators want to see.
            self.metrics.kind(&class.id.kind);
        }
        page.number("catalog_classes", "Machine classes", None, classes.len())?;
        page.number("catalog_secrets", "Secrets", None, self.rooms.catalog.secrets())?;
        let since_epoch = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).ok();
        let last = self.rooms.catalog.last_good().and_then(since_epoch).unwrap_or_default();
        let help = "When the catalog was last read without a problem, since the epoch; 0: never";
        let name = "catalog_last_good_read_timestamp";
        page.number(name, help, Some(Unit::Seconds), last.as_secs_f64())?;
        let age = self.rooms.catalog.age().unwrap_or_default();
        let help = "How old what is known may be, while the source of the catalog is away";
        page.number("catalog_age", help, Some(Unit::Seconds), age.as_secs_f64())?;
        let kept = classes.iter().filter(|class| class.deleted.is_some()).count();
        let help = "Classes that were deleted, and are kept so that their machines can be";
        page.number("catalog_deleted_classes", help, None, kept)?;
        let problems = self.rooms.catalog.problems().len();
        let help = "What is wrong with the catalog now";
        page.number("catalog_problems", help, None, problems)
    }

    fn sessions(&self, page: &mut Page<'_>) -> fmt::Result {
        let fleets = self.fleets();
        let each = |read: fn(&Fleet) -> usize| {
            fleets.iter().map(move |(kind, fleet)| ([("kind", Arc::clone(kind))], read(fleet)))
        };
        let states = fleets.iter().flat_map(|(kind, fleet)| {
            STATES.into_iter().zip(fleet.by_state).map(move |(state, count)| {
                ([("kind", Arc::clone(kind)), ("state", state.into())], count)
            })
        });
        page.gauge("sessions", "Connected drivers", None, states)?;
        let heard = fleets.iter().filter_map(|(kind, fleet)| {
            fleet.last_heard.map(|age| ([("kind", Arc::clone(kind))], age.as_secs_f64()))
        });
        let help = "Since the most silent driver was heard";
        page.gauge("session_last_heard_age", help, Some(Unit::Seconds), heard)?;
        let help = "Operations that drivers run at once at most";
        page.gauge("driver_capacity", help, None, each(|fleet| fleet.capacity))?;
        let help = "Operations that drivers have";
        page.gauge("driver_in_flight", help, None, each(|fleet| fleet.in_flight))?;
        let help = "Operations that wait for room in a driver";
        page.gauge("driver_queued", help, None, each(|fleet| fleet.queued))?;
        let help = "Operations that may wait for room in a driver";
        page.gauge("driver_queue_limit", help, None, each(|fleet| fleet.queue_limit))
    }

    /// By kind, those without a driver included. A session of several kinds counts for each.
    fn fleets(&self) -> BTreeMap<Arc<str>, Fleet> {
        let sessions = self.rooms.registry.sessions();
        let mut fleets: BTreeMap<Arc<str>, Fleet> = BTreeMap::new();
        for session in &sessions {
            let mut kinds: Vec<_> =
                session.info().keys.iter().map(|key| self.metrics.kind(&key.kind).name()).collect();
            // Several of its keys may share a label.
            kinds.sort_unstable();
            kinds.dedup();
            for kind in kinds {
                fleets.entry(kind).or_default().add(session);
            }
        }
        for kind in self.metrics.0.kinds.all() {
            fleets.entry(kind.name()).or_default();
        }
        fleets
    }

    fn pending(&self, page: &mut Page<'_>) -> fmt::Result {
        let pending = Pending::of(&self.rooms.ledger);
        let by_delivery = [
            ([("delivery", "not_sent")], pending.not_sent),
            ([("delivery", "sent")], pending.sent),
            ([("delivery", "accepted")], pending.accepted),
        ];
        page.gauge("pending", "Operations without an answer", None, by_delivery)?;
        let oldest = pending.oldest.as_secs_f64();
        let help = "Of the oldest operation without an answer";
        page.number("oldest_pending_age", help, Some(Unit::Seconds), oldest)?;
        let help = "Operations that were sent and that no driver accepted so far";
        page.number("unaccepted_operations", help, None, pending.sent)?;
        let oldest = pending.oldest_unaccepted.as_secs_f64();
        let help = "Since the oldest of those was sent";
        page.number("oldest_unaccepted_age", help, Some(Unit::Seconds), oldest)
    }

    fn audit(&self, page: &mut Page<'_>) -> fmt::Result {
        let lost = self.rooms.audit.lost();
        let help = "Lines that the audit log lacks";
        let mut lines =
            page.0.encode_descriptor("audit_lines_lost", help, None, MetricType::Counter)?;
        lines.encode_counter::<NoLabelSet, _, u64>(&lost, None)
    }

    fn certificate(&self, page: &mut Page<'_>) -> fmt::Result {
        let expiry = *self.metrics.0.tls_expiry.lock().unwrap_or_else(PoisonError::into_inner);
        let expiry = expiry.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        let expiry = expiry.map(|at| ([("certificate", "broker")], at.as_secs_f64()));
        let help = "Until when the certificate in force is good, since the epoch";
        page.gauge("tls_certificate_expiry_timestamp", help, Some(Unit::Seconds), expiry)
    }

    fn counts(&self, page: &mut Page<'_>) -> fmt::Result {
        let kinds = self.metrics.0.kinds.all();
        let waiting = kinds
            .iter()
            .map(|kind| ([("kind", kind.name())], kind.waiting.load(Ordering::Relaxed)));
        let help = "Callers that wait for a driver to come";
        page.gauge("waiting_for_driver", help, None, waiting)?;
        for kind in &kinds {
            // There from the start, so that the first one is an increase.
            let none = Failure { kind: kind.name(), reason: "no_driver" };
            drop(self.metrics.0.failures.get_or_create(&none));
        }
        let help = "Requests that got no answer from a driver";
        let failures =
            page.0.encode_descriptor("requests_failed", help, None, MetricType::Counter)?;
        self.metrics.0.failures.encode(failures)?;
        let help = "Operations that ended, of those that a driver was chosen for";
        let mut ended = page.0.encode_descriptor("operations", help, None, MetricType::Counter)?;
        for kind in &kinds {
            for (verb, outcome, count) in kind.counts() {
                let name = kind.name();
                let labels = [("verb", verb.as_str()), ("kind", &*name), ("outcome", outcome)];
                ended.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }
}

impl Fleet {
    fn add(&mut self, session: &SessionHandle) {
        let state = match session.health() {
            Health::Ready => 0,
            Health::Suspect(_) => 1,
            Health::Draining(_) => 2,
        };
        let capacity = session.info().capacity;
        self.by_state[state] += 1;
        self.last_heard = self.last_heard.max(Some(session.last_heard()));
        self.capacity += capacity;
        self.in_flight += session.in_flight();
        self.queued += session.queued();
        self.queue_limit += session.limit().saturating_sub(capacity);
    }
}

impl Pending {
    fn of(ledger: &Ledger) -> Self {
        let mut pending = Self::default();
        for operation in ledger.running() {
            let age = operation.submitted.elapsed();
            match operation.delivery() {
                Delivery::NotSent => pending.not_sent += 1,
                Delivery::Sent => {
                    let since = age.saturating_sub(operation.sent_after().unwrap_or(age));
                    pending.oldest_unaccepted = pending.oldest_unaccepted.max(since);
                    pending.sent += 1;
                }
                Delivery::Accepted => pending.accepted += 1,
                // It is about to leave the books.
                Delivery::Answered => continue,
            }
            pending.oldest = pending.oldest.max(age);
        }
        pending
    }
}

struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn number(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        metric.encode_gauge(&value)
    }

    fn gauge<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}
