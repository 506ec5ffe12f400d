//! What the page is told, as JSON: the same facts as those of the Registry service, in seconds and
//! in words.

use std::time::{Duration, SystemTime};

use broker_proto::v1::{self, Delivery, DriverState};
use serde::Serialize;

use crate::operation::pace;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Driver {
    pub(super) session: String,
    pub(super) name: String,
    pub(super) instance: String,
    boot: String,
    pub(super) state: &'static str,
    state_reason: String,
    kinds: Vec<Kind>,
    version: String,
    protocol: u32,
    address: String,
    connected_at: Option<String>,
    gone_at: Option<String>,
    last_heard: Option<f64>,
    round_trip: Option<f64>,
    oldest_pending: Option<f64>,
    capacity: u32,
    in_flight: u32,
    queued: u32,
    verbs: Vec<String>,
    succeeded: u64,
    failed: u64,
    error_rate: f64,
    takeovers: u32,
    last_error: String,
    last_error_at: Option<String>,
    odd_frames: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    api_version: String,
    kind: String,
    provider: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operation {
    id: String,
    verb: String,
    kind: String,
    class: String,
    machine: String,
    instance: String,
    pub(super) session: String,
    delivery: &'static str,
    submitted_at: Option<String>,
    age: Option<f64>,
    pub(super) finished: bool,
    outcome: String,
    message: String,
    attempts: u32,
    time_left: Option<f64>,
    pub(super) stuck: String,
    queued_for: Option<f64>,
    accepted_after: Option<f64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    replica: String,
    version: String,
    started_at: Option<String>,
    now: Option<String>,
    ready: bool,
    concerns: Vec<Concern>,
    drivers_ready: u32,
    drivers_suspect: u32,
    drivers_draining: u32,
    operations_running: u32,
    oldest_pending: Option<f64>,
    classes: u32,
}

#[derive(Debug, Serialize)]
struct Concern {
    what: String,
    advice: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    at: Option<String>,
    what: String,
    details: String,
    session: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Series {
    verb: &'static str,
    kind: String,
    total: Point,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    ago: u64,
    count: u64,
    failed: u64,
    p50: f64,
    p99: f64,
}

impl From<v1::Driver> for Driver {
    fn from(driver: v1::Driver) -> Self {
        let state = match driver.state() {
            DriverState::Ready => "ready",
            DriverState::Suspect => "suspect",
            DriverState::Draining => "draining",
            DriverState::Gone => "gone",
            DriverState::Unspecified => "unknown",
        };
        let kind = |kind: v1::Kind| Kind {
            api_version: kind.api_version,
            kind: kind.kind,
            provider: kind.provider,
        };
        Self {
            session: driver.session_id,
            name: driver.name,
            instance: driver.instance_id,
            boot: driver.boot_id,
            state,
            state_reason: driver.state_reason,
            kinds: driver.kinds.into_iter().map(kind).collect(),
            version: driver.driver_version,
            protocol: driver.protocol,
            address: driver.address,
            connected_at: driver.connected_at.and_then(time),
            gone_at: driver.gone_at.and_then(time),
            last_heard: driver.last_heard.and_then(seconds),
            round_trip: driver.round_trip.and_then(seconds),
            oldest_pending: driver.oldest_pending.and_then(seconds),
            capacity: driver.capacity,
            in_flight: driver.in_flight,
            queued: driver.queued,
            verbs: driver.verbs,
            succeeded: driver.succeeded,
            failed: driver.failed,
            error_rate: driver.error_rate,
            takeovers: driver.takeovers,
            last_error: driver.last_error,
            last_error_at: driver.last_error_at.and_then(time),
            odd_frames: driver.odd_frames,
        }
    }
}

impl From<v1::Operation> for Operation {
    fn from(operation: v1::Operation) -> Self {
        let delivery = match operation.delivery() {
            Delivery::NotSent => "queued",
            Delivery::Sent => "sent",
            Delivery::Accepted => "accepted",
            Delivery::Answered => "answered",
            Delivery::Unspecified => "unknown",
        };
        let class = operation.class.unwrap_or_default();
        Self {
            id: operation.operation_id,
            verb: operation.verb,
            kind: class.kind,
            class: format!("{}/{}", class.namespace, class.name),
            machine: operation.machine_name,
            instance: operation.driver_instance,
            session: operation.session_id,
            delivery,
            submitted_at: operation.submitted_at.and_then(time),
            age: operation.age.and_then(seconds),
            finished: operation.finished,
            outcome: operation.outcome,
            message: operation.message,
            attempts: operation.attempts,
            time_left: operation.time_left.and_then(seconds),
            stuck: operation.stuck,
            queued_for: operation.queued_for.and_then(seconds),
            accepted_after: operation.accepted_after.and_then(seconds),
        }
    }
}

impl From<v1::BrokerStatus> for Status {
    fn from(status: v1::BrokerStatus) -> Self {
        let concern = |c: v1::Concern| Concern { what: c.what, advice: c.advice };
        Self {
            replica: status.replica_id,
            version: status.version,
            started_at: status.started_at.and_then(time),
            now: time(SystemTime::now().into()),
            ready: status.ready,
            concerns: status.concerns.into_iter().map(concern).collect(),
            drivers_ready: status.drivers_ready,
            drivers_suspect: status.drivers_suspect,
            drivers_draining: status.drivers_draining,
            operations_running: status.operations_running,
            oldest_pending: status.oldest_pending.and_then(seconds),
            classes: status.classes,
        }
    }
}

impl From<v1::HistoryEntry> for Event {
    fn from(entry: v1::HistoryEntry) -> Self {
        let at = entry.at.and_then(time);
        Self { at, what: entry.what, details: entry.details, session: entry.session_id }
    }
}

impl From<pace::Series> for Series {
    fn from(series: pace::Series) -> Self {
        Self {
            verb: series.verb.as_str(),
            kind: series.kind.to_string(),
            total: series.total.into(),
            points: series.points.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<pace::Point> for Point {
    fn from(point: pace::Point) -> Self {
        let pace::Point { ago, count, failed, p50, p99 } = point;
        Self { ago, count, failed, p50: p50.as_secs_f64(), p99: p99.as_secs_f64() }
    }
}

fn seconds(duration: prost_types::Duration) -> Option<f64> {
    Duration::try_from(duration).ok().map(|duration| duration.as_secs_f64())
}

fn time(timestamp: prost_types::Timestamp) -> Option<String> {
    let time = SystemTime::try_from(timestamp).ok()?;
    Some(humantime::format_rfc3339_millis(time).to_string())
}
