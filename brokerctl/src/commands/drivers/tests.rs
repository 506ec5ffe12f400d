use broker_proto::v1::{Driver, DriverState, Kind};
use prost_types::Timestamp;

use super::view::{DriverList, KindView, api_versions, kinds};
use crate::output::{Look, View as _, fitting};

fn kind(api_version: &str, kind: &str, provider: &str) -> Kind {
    let own = str::to_owned;
    Kind { api_version: own(api_version), kind: own(kind), provider: own(provider) }
}

pub(super) fn sim() -> Driver {
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
        identity: "spiffe://example/sim".into(),
        round_trip: Some(prost_types::Duration { seconds: 0, nanos: 1_400_000 }),
        oldest_pending: Some(prost_types::Duration { seconds: 12, nanos: 0 }),
        succeeded: 40,
        failed: 2,
        error_rate: 0.05,
        takeovers: 1,
        last_error: "quota used up".into(),
        last_error_at: Some(Timestamp { seconds: 3500, nanos: 0 }),
        ..Driver::default()
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
fn wide_adds_what_one_judges_a_driver_by() {
    let list = DriverList::new(vec![sim(), historic()]);
    let look = Look { headers: false, ..fitting::wide() };
    let expected = "\
91b7de00   AWSMachineClass   machine.sapcloud.io/v1alpha1     <none>   <none>   legacy   Suspect   <none>   1/1    12   <none>   <none>                 <none>            <none>   <none>   0/0    0%   <none>
5f1c02aa   SimMachineClass   sim.machinebroker.dev/v1alpha1   sim-0    0.1.0    v1       Ready     2s ago   3/16   0    5m       spiffe://example/sim   127.0.0.1:40000   1.4ms    12s      40/2   5%   quota used up
";
    assert_eq!(list.text(look), expected);
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
  identity: spiffe://example/sim
  roundTripSeconds: 0.0014
  oldestPendingSeconds: 12.0
  succeeded: 40
  failed: 2
  errorRate: 0.05
  takeovers: 1
  lastError: quota used up
  lastErrorAt: \"1970-01-01T00:58:20.000Z\"
  oddFrames: 0
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
    assert_eq!(list.drivers[0].short, "0198a2b3-111");
}

#[test]
fn several_kinds_share_a_version_or_have_one_each() {
    let view = |kinds: Vec<Kind>| kinds.into_iter().map(KindView::from).collect::<Vec<_>>();
    let same = view(vec![kind("g/v1", "A", ""), kind("g/v1", "B", "aws")]);
    assert_eq!((kinds(&same), api_versions(&same)), ("A,B(aws)".into(), "g/v1".into()));
    let different = view(vec![kind("g/v1", "A", ""), kind("g/v2", "A", "")]);
    assert_eq!(api_versions(&different), "g/v1,g/v2");
}
