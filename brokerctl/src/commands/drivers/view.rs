//! What the driver commands show.

use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use broker_proto::v1::{Driver, DriverState, Kind};
use serde::Serialize;

use crate::{
    age,
    commands::{age_of, ago, duration, rfc3339, seconds, time},
    output::{Look, View},
    table::{self, Cell, Column},
    watch::Watched,
};

/// Short enough to read, long enough to be the only one as a rule.
const SHORT_ID: usize = 8;

#[derive(Debug, Serialize)]
pub(crate) struct DriverList {
    pub(super) drivers: Vec<DriverView>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DriverView {
    pub(crate) session_id: String,
    pub(super) name: String,
    pub(crate) kinds: Vec<KindView>,
    pub(crate) instance_id: String,
    pub(super) boot_id: String,
    pub(super) driver_version: String,
    pub(super) protocol: String,
    pub(super) address: String,
    pub(crate) state: &'static str,
    pub(crate) state_reason: String,
    /// What is the matter with its kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) conditions: Vec<String>,
    pub(super) connected_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gone_at: Option<String>,
    last_heard_seconds: Option<f64>,
    pub(crate) capacity: u32,
    pub(crate) in_flight: u32,
    pub(crate) queued: u32,
    pub(super) verbs: Vec<String>,
    pub(super) identity: String,
    round_trip_seconds: Option<f64>,
    oldest_pending_seconds: Option<f64>,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    error_rate: f64,
    pub(super) takeovers: u32,
    pub(crate) last_error: String,
    last_error_at: Option<String>,
    pub(super) odd_frames: u64,
    /// The beginning of the session id, as far as it tells it from others.
    #[serde(skip)]
    pub(super) short: String,
    #[serde(skip)]
    pub(super) connected: Option<SystemTime>,
    #[serde(skip)]
    pub(super) gone: Option<SystemTime>,
    #[serde(skip)]
    pub(crate) last_heard: Option<Duration>,
    #[serde(skip)]
    pub(crate) round_trip: Option<Duration>,
    #[serde(skip)]
    pub(crate) oldest_pending: Option<Duration>,
    #[serde(skip)]
    pub(super) last_error_time: Option<SystemTime>,
}

#[derive(Clone, Debug, PartialEq, PartialOrd, Eq, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KindView {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) provider: String,
}

impl Watched for DriverView {
    const KEEPS_RESTLESS: bool = false;
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("SESSION", |driver, _| (&driver.short).into()),
        Column::new("KIND(S)", |driver, _| kinds(&driver.kinds).into()),
        Column::new("API VERSION", |driver, _| api_versions(&driver.kinds).into()),
        Column::new("INSTANCE", |driver, _| (&driver.instance_id).into()),
        Column::new("VERSION", |driver, _| (&driver.driver_version).into()),
        Column::new("PROTOCOL", |driver, _| (&driver.protocol).into()),
        Column::new("STATE", |driver, _| driver.state_cell()),
        Column::restless("LAST HEARD", |driver, _| driver.heard().into()),
        Column::new("IN-FLIGHT", |driver, _| driver.load().into()),
        Column::new("QUEUED", |driver, _| driver.queued.to_string().into()),
        Column::restless("AGE", |driver, look| ago(driver.connected, look).into()),
        Column::wide("IDENTITY", |driver, _| (&driver.identity).into()),
        Column::wide("ADDRESS", |driver, _| (&driver.address).into()),
        Column::wide_restless("ROUND TRIP", |driver, _| driver.trip().into()),
        Column::wide_restless("OLDEST PENDING", |driver, _| age_of(driver.oldest_pending).into()),
        Column::wide("OK/FAILED", |driver, _| {
            format!("{}/{}", driver.succeeded, driver.failed).into()
        }),
        Column::wide("ERRORS", |driver, _| driver.errors()),
        Column::wide("LAST ERROR", |driver, _| (&driver.last_error).into()),
    ];

    fn id(&self) -> &str {
        &self.session_id
    }
}

impl DriverView {
    pub(crate) fn state_cell(&self) -> Cell {
        Cell::styled(self.state, colour(self.state))
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    pub(crate) fn heard(&self) -> String {
        self.last_heard.map_or(String::new(), |ago| age::human(ago) + " ago")
    }

    pub(crate) fn trip(&self) -> String {
        self.round_trip.map_or(String::new(), age::precise)
    }

    pub(crate) fn load(&self) -> String {
        format!("{}/{}", self.in_flight, self.capacity)
    }

    /// The share of answers that were its own failures.
    pub(super) fn errors(&self) -> Cell {
        let style = match self.error_rate {
            rate if rate >= 0.5 => AnsiColor::Red.on_default(),
            rate if rate > 0.0 => AnsiColor::Yellow.on_default(),
            _ => Style::new(),
        };
        Cell::styled(format!("{:.0}%", self.error_rate * 100.0), style)
    }

    pub(crate) fn kinds(&self) -> String {
        kinds(&self.kinds)
    }

    /// As people speak of it: the instance, where it has a name, and the session.
    pub(crate) fn called(&self) -> String {
        match self.instance_id.as_str() {
            "" => format!("driver {}", self.short),
            instance => format!("driver {instance} ({})", self.short),
        }
    }
}

impl DriverList {
    pub(crate) fn new(drivers: Vec<Driver>) -> Self {
        let mut drivers: Vec<_> = drivers.into_iter().map(DriverView::from).collect();
        // The broker promises no order, and a table that shuffles is hard to compare.
        drivers.sort_by(|a, b| {
            (&a.kinds, &a.instance_id, &a.session_id).cmp(&(
                &b.kinds,
                &b.instance_id,
                &b.session_id,
            ))
        });
        let short = short(drivers.iter().map(|driver| driver.session_id.as_str()).collect());
        for driver in &mut drivers {
            driver.short = head(&driver.session_id, short).to_owned();
        }
        Self { drivers }
    }

    pub(crate) fn into_drivers(self) -> Vec<DriverView> {
        self.drivers
    }
}

/// How much of an id tells each from all others.
fn short(ids: Vec<&str>) -> usize {
    let unique = |length: &usize| {
        let mut heads: Vec<_> = ids.iter().map(|id| head(id, *length)).collect();
        heads.sort_unstable();
        heads.windows(2).all(|pair| pair[0] != pair[1])
    };
    let longest = ids.iter().map(|id| id.len()).max();
    (SHORT_ID..longest.unwrap_or_default()).find(unique).unwrap_or(usize::MAX)
}

impl View for DriverList {
    fn text(&self, look: Look) -> String {
        table::of(DriverView::COLUMNS, &self.drivers, look)
    }
}

impl From<Driver> for DriverView {
    fn from(driver: Driver) -> Self {
        let (connected, last_heard) = (time(driver.connected_at), duration(driver.last_heard));
        let (round_trip, oldest) = (duration(driver.round_trip), duration(driver.oldest_pending));
        let (last_error_time, gone) = (time(driver.last_error_at), time(driver.gone_at));
        Self {
            state: state(driver.state()),
            short: head(&driver.session_id, SHORT_ID).to_owned(),
            session_id: driver.session_id,
            name: driver.name,
            kinds: driver.kinds.into_iter().map(KindView::from).collect(),
            instance_id: driver.instance_id,
            boot_id: driver.boot_id,
            driver_version: driver.driver_version,
            protocol: match driver.protocol {
                0 => "legacy".to_owned(),
                version => format!("v{version}"),
            },
            address: driver.address,
            state_reason: driver.state_reason,
            conditions: driver.conditions,
            connected_at: connected.map(rfc3339),
            gone_at: gone.map(rfc3339),
            last_heard_seconds: last_heard.map(seconds),
            capacity: driver.capacity,
            in_flight: driver.in_flight,
            queued: driver.queued,
            verbs: driver.verbs,
            identity: driver.identity,
            round_trip_seconds: round_trip.map(|time| time.as_secs_f64()),
            oldest_pending_seconds: oldest.map(seconds),
            succeeded: driver.succeeded,
            failed: driver.failed,
            error_rate: driver.error_rate,
            takeovers: driver.takeovers,
            last_error: driver.last_error,
            last_error_at: last_error_time.map(rfc3339),
            odd_frames: driver.odd_frames,
            connected,
            gone,
            last_heard,
            round_trip,
            oldest_pending: oldest,
            last_error_time,
        }
    }
}

impl From<Kind> for KindView {
    fn from(Kind { api_version, kind, provider }: Kind) -> Self {
        Self { api_version, kind, provider }
    }
}

fn state(state: DriverState) -> &'static str {
    match state {
        DriverState::Unspecified => "Unknown",
        DriverState::Ready => "Ready",
        DriverState::Suspect => "Suspect",
        DriverState::Draining => "Draining",
        DriverState::Gone => "Gone",
    }
}

fn colour(state: &str) -> Style {
    match state {
        "Ready" => AnsiColor::Green.on_default(),
        "Draining" => AnsiColor::Yellow.on_default(),
        _ => AnsiColor::Red.on_default(),
    }
}

pub(super) fn kinds(kinds: &[KindView]) -> String {
    kinds.iter().map(KindView::called).collect::<Vec<_>>().join(",")
}

impl KindView {
    pub(super) fn called(&self) -> String {
        match self.provider.as_str() {
            "" => self.kind.clone(),
            provider => format!("{}({provider})", self.kind),
        }
    }
}

/// One when all kinds share it, else one for each kind in the same order.
pub(super) fn api_versions(kinds: &[KindView]) -> String {
    let mut versions: Vec<_> = kinds.iter().map(|kind| kind.api_version.as_str()).collect();
    if versions.windows(2).all(|pair| pair[0] == pair[1]) {
        versions.truncate(1);
    }
    versions.join(",")
}

/// The first characters of `id`.
pub(super) fn head(id: &str, length: usize) -> &str {
    id.char_indices().nth(length).map_or(id, |(end, _)| &id[..end])
}
