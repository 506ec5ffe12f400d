//! `brokerctl drivers`: who is connected.

use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use broker_proto::v1::{Driver, DriverState, Kind, ListDriversRequest};
use serde::Serialize;

use super::{Session, duration, rfc3339, seconds, time};
use crate::{
    Failure, age,
    output::{Look, View},
    table::{Cell, Table},
};

/// Short enough to read, long enough to be the only one as a rule.
const SHORT_ID: usize = 8;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Drivers {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the drivers that are connected now
    List(List),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only the drivers of this kind of machine class
    #[arg(long)]
    kind: Option<String>,
}

impl Drivers {
    pub(crate) async fn run(self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        match self.command {
            None => self.list.run(session).await,
            Some(Command::List(list)) => list.run(session).await,
        }
    }
}

impl List {
    async fn run(self, Session { broker, output }: &mut Session<'_, '_>) -> Result<(), Failure> {
        let kind = self.kind.unwrap_or_default();
        let request = broker.look(ListDriversRequest { kind: kind.clone() });
        let answer = broker.registry().list_drivers(request).await;
        let drivers = answer.map_err(|status| broker.look_failed(&status))?.into_inner();
        if drivers.drivers.is_empty() {
            let of = if kind.is_empty() { String::new() } else { format!(" for {kind}") };
            let address = broker.address();
            output.remark(format!(
                "no driver{of} is connected to {address}\n  \
                 point a driver there, or try `machine-broker dev`, which brings one"
            ));
        }
        output.print(&DriverList::new(drivers.drivers))
    }
}

#[derive(Debug, Serialize)]
struct DriverList {
    drivers: Vec<DriverView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DriverView {
    session_id: String,
    name: String,
    kinds: Vec<KindView>,
    instance_id: String,
    boot_id: String,
    driver_version: String,
    protocol: String,
    address: String,
    state: &'static str,
    state_reason: String,
    connected_at: Option<String>,
    last_heard_seconds: Option<f64>,
    capacity: u32,
    in_flight: u32,
    queued: u32,
    verbs: Vec<String>,
    #[serde(skip)]
    connected: Option<SystemTime>,
    #[serde(skip)]
    last_heard: Option<Duration>,
}

#[derive(Debug, PartialEq, PartialOrd, Eq, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct KindView {
    api_version: String,
    kind: String,
    provider: String,
}

impl DriverList {
    fn new(drivers: Vec<Driver>) -> Self {
        let mut drivers: Vec<_> = drivers.into_iter().map(DriverView::from).collect();
        // The broker promises no order, and a table that shuffles is hard to compare.
        drivers.sort_by(|a, b| {
            (&a.kinds, &a.instance_id, &a.session_id).cmp(&(
                &b.kinds,
                &b.instance_id,
                &b.session_id,
            ))
        });
        Self { drivers }
    }

    /// How much of a session id tells it from all others.
    fn short(&self) -> usize {
        let unique = |length: &usize| {
            let mut ids: Vec<_> =
                self.drivers.iter().map(|driver| head(&driver.session_id, *length)).collect();
            ids.sort_unstable();
            ids.windows(2).all(|pair| pair[0] != pair[1])
        };
        let longest = self.drivers.iter().map(|driver| driver.session_id.len()).max();
        (SHORT_ID..longest.unwrap_or_default()).find(unique).unwrap_or(usize::MAX)
    }
}

impl View for DriverList {
    fn text(&self, look: Look) -> String {
        let short = self.short();
        let mut table = Table::new([
            "SESSION",
            "KIND(S)",
            "API VERSION",
            "INSTANCE",
            "VERSION",
            "PROTOCOL",
            "STATE",
            "LAST HEARD",
            "IN-FLIGHT",
            "QUEUED",
            "AGE",
        ]);
        for driver in &self.drivers {
            let age = driver.connected.map(|since| {
                // The broker's clock may be ahead of ours.
                age::human(look.now.duration_since(since).unwrap_or_default())
            });
            table.row([
                head(&driver.session_id, short).into(),
                kinds(&driver.kinds).into(),
                api_versions(&driver.kinds).into(),
                (&driver.instance_id).into(),
                (&driver.driver_version).into(),
                (&driver.protocol).into(),
                Cell::styled(driver.state, colour(driver.state)),
                driver.last_heard.map_or(String::new(), |ago| age::human(ago) + " ago").into(),
                format!("{}/{}", driver.in_flight, driver.capacity).into(),
                driver.queued.to_string().into(),
                age.unwrap_or_default().into(),
            ]);
        }
        table.render(look.headers, look.colour)
    }
}

impl From<Driver> for DriverView {
    fn from(driver: Driver) -> Self {
        let (connected, last_heard) = (time(driver.connected_at), duration(driver.last_heard));
        Self {
            state: state(driver.state()),
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
            connected_at: connected.map(rfc3339),
            last_heard_seconds: last_heard.map(seconds),
            capacity: driver.capacity,
            in_flight: driver.in_flight,
            queued: driver.queued,
            verbs: driver.verbs,
            connected,
            last_heard,
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
    }
}

fn colour(state: &str) -> Style {
    match state {
        "Ready" => AnsiColor::Green.on_default(),
        "Draining" => AnsiColor::Yellow.on_default(),
        _ => AnsiColor::Red.on_default(),
    }
}

fn kinds(kinds: &[KindView]) -> String {
    let name = |KindView { kind, provider, .. }: &KindView| match provider.as_str() {
        "" => kind.clone(),
        provider => format!("{kind}({provider})"),
    };
    kinds.iter().map(name).collect::<Vec<_>>().join(",")
}

/// One when all kinds share it, else one for each kind in the same order.
fn api_versions(kinds: &[KindView]) -> String {
    let mut versions: Vec<_> = kinds.iter().map(|kind| kind.api_version.as_str()).collect();
    if versions.windows(2).all(|pair| pair[0] == pair[1]) {
        versions.truncate(1);
    }
    versions.join(",")
}

/// The first characters of `id`.
fn head(id: &str, length: usize) -> &str {
    id.char_indices().nth(length).map_or(id, |(end, _)| &id[..end])
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;
    use crate::output::fitting;

    fn kind(api_version: &str, kind: &str, provider: &str) -> Kind {
        let own = str::to_owned;
        Kind { api_version: own(api_version), kind: own(kind), provider: own(provider) }
    }

    fn sim() -> Driver {
        Driver {
            session_id: "5f1c02aa-77".into(),
            name: "sim".into(),
            kinds: vec![kind("sim.machinebroker.dev/v1alpha1", "SimMachineClass", "")],
            instance_id: "sim-0".into(),
            boot_id: "b1".into(),
            driver_version: "0.1.0".into(),
            protocol: 1,
            address: "127.0.0.1:40000".into(),
            state: DriverState::Ready.into(),
            connected_at: Some(Timestamp { seconds: 3300, nanos: 0 }),
            last_heard: Some(prost_types::Duration { seconds: 2, nanos: 300_000_000 }),
            capacity: 16,
            in_flight: 3,
            queued: 0,
            verbs: vec!["create".into(), "delete".into(), "list".into()],
            state_reason: String::new(),
        }
    }

    fn historic() -> Driver {
        Driver {
            session_id: "91b7de00-12".into(),
            name: "aws".into(),
            kinds: vec![kind("machine.sapcloud.io/v1alpha1", "AWSMachineClass", "")],
            instance_id: String::new(),
            state: DriverState::Suspect.into(),
            state_reason: "slow to accept".into(),
            connected_at: None,
            last_heard: None,
            capacity: 1,
            in_flight: 1,
            queued: 12,
            ..Driver::default()
        }
    }

    #[test]
    fn drivers_are_a_table() {
        let list = DriverList::new(vec![sim(), historic()]);
        let expected = "\
SESSION    KIND(S)           API VERSION                      INSTANCE   VERSION   PROTOCOL   STATE     LAST HEARD   IN-FLIGHT   QUEUED   AGE
91b7de00   AWSMachineClass   machine.sapcloud.io/v1alpha1     <none>     <none>    legacy     Suspect   <none>       1/1         12       <none>
5f1c02aa   SimMachineClass   sim.machinebroker.dev/v1alpha1   sim-0      0.1.0     v1         Ready     2s ago       3/16        0        5m
";
        assert_eq!(list.text(fitting::look()), expected);
    }

    #[test]
    fn state_has_a_colour_on_a_terminal() {
        let look = Look { headers: false, colour: true, ..fitting::look() };
        let text = DriverList::new(vec![sim(), historic()]).text(look);
        assert!(text.contains("\x1b[31mSuspect\x1b[0m"), "{text}");
        assert!(text.contains("\x1b[32mReady\x1b[0m"), "{text}");
    }

    #[test]
    fn drivers_are_data() {
        let expected = "\
drivers:
- sessionId: 5f1c02aa-77
  name: sim
  kinds:
  - apiVersion: sim.machinebroker.dev/v1alpha1
    kind: SimMachineClass
    provider: \"\"
  instanceId: sim-0
  bootId: b1
  driverVersion: \"0.1.0\"
  protocol: v1
  address: 127.0.0.1:40000
  state: Ready
  stateReason: \"\"
  connectedAt: \"1970-01-01T00:55:00.000Z\"
  lastHeardSeconds: 2.3
  capacity: 16
  inFlight: 3
  queued: 0
  verbs:
  - create
  - delete
  - list
";
        assert_eq!(fitting::yaml(&DriverList::new(vec![sim()])), expected);
    }

    #[test]
    fn no_drivers_are_data_too() {
        assert_eq!(fitting::json(&DriverList::new(vec![])), "{\n  \"drivers\": []\n}\n");
    }

    #[test]
    fn sessions_are_shortened_no_further_than_they_differ() {
        let with = |id: &str| Driver { session_id: id.into(), ..sim() };
        let list = DriverList::new(vec![with("0198a2b3-1111-7"), with("0198a2b3-1122-7")]);
        assert_eq!(list.short(), 12);
    }

    #[test]
    fn several_kinds_share_a_version_or_have_one_each() {
        let view = |kinds: Vec<Kind>| kinds.into_iter().map(KindView::from).collect::<Vec<_>>();
        let same = view(vec![kind("g/v1", "A", ""), kind("g/v1", "B", "aws")]);
        assert_eq!((kinds(&same), api_versions(&same)), ("A,B(aws)".into(), "g/v1".into()));
        let different = view(vec![kind("g/v1", "A", ""), kind("g/v2", "A", "")]);
        assert_eq!(api_versions(&different), "g/v1,g/v2");
    }
}
