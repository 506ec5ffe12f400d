use broker_proto::v1::{ClassRef, Delivery, Operation};
use prost_types::{Duration, Timestamp};

use super::{view::OperationList, *};
use crate::output::{Look, View as _, fitting};

pub(super) fn list() -> OperationList {
    let create = Operation {
        operation_id: "op-12".into(),
        verb: "create".into(),
        class: Some(ClassRef {
            kind: "SimMachineClass".into(),
            name: "small".into(),
            ..ClassRef::default()
        }),
        machine_name: "worker-0".into(),
        driver_instance: "sim-0".into(),
        session_id: "5f1c".into(),
        delivery: Delivery::Accepted.into(),
        submitted_at: Some(Timestamp { seconds: 60, nanos: 0 }),
        age: Some(Duration { seconds: 125, nanos: 0 }),
        attempts: 2,
        time_left: Some(Duration { seconds: 475, nanos: 0 }),
        queued_for: Some(Duration { seconds: 0, nanos: 3_000_000 }),
        accepted_after: Some(Duration { seconds: 0, nanos: 20_000_000 }),
        ..Operation::default()
    };
    let list = Operation {
        operation_id: "op-11".into(),
        verb: "list".into(),
        machine_name: String::new(),
        delivery: Delivery::Answered.into(),
        age: Some(Duration { seconds: 0, nanos: 12_000_000 }),
        finished: true,
        outcome: "RESOURCE_EXHAUSTED".into(),
        message: "slow down".into(),
        ..create.clone()
    };
    OperationList { operations: vec![create.into(), list.into()] }
}

#[test]
fn operations_are_a_table() {
    let expected = "\
ID      VERB     MACHINE    CLASS           DRIVER   DELIVERY   TIME   OUTCOME
op-12   create   worker-0   default/small   sim-0    ACCEPTED   2m5s   running
op-11   list     <none>     default/small   sim-0    ANSWERED   12ms   RESOURCE_EXHAUSTED
";
    assert_eq!(list().text(fitting::look()), expected);
}

#[test]
fn operations_are_data() {
    let mut list = list();
    list.operations.truncate(1);
    let expected = "\
operations:
- operationId: op-12
  verb: create
  class:
    kind: SimMachineClass
    namespace: default
    name: small
  machineName: worker-0
  driverInstance: sim-0
  sessionId: 5f1c
  delivery: ACCEPTED
  submittedAt: \"1970-01-01T00:01:00.000Z\"
  timeSeconds: 125.0
  finished: false
  outcome: \"\"
  message: \"\"
  attempts: 2
  timeLeftSeconds: 475.0
  stuck: \"\"
  queuedForSeconds: 0.003
  acceptedAfterSeconds: 0.02
";
    assert_eq!(fitting::yaml(&list), expected);
}

#[test]
fn wide_adds_how_it_went() {
    let expected = "\
op-12   create   worker-0   default/small   sim-0   ACCEPTED   2m5s   running              SimMachineClass   5f1c   2   7m55s    3ms   20ms   <none>
op-11   list     <none>     default/small   sim-0   ANSWERED   12ms   RESOURCE_EXHAUSTED   SimMachineClass   5f1c   2   7m55s    3ms   20ms   slow down
";
    let look = Look { headers: false, ..fitting::wide() };
    assert_eq!(list().text(look), expected.replace("7m55s    ", "7m55s   "));
}

#[test]
fn a_stuck_operation_is_told_and_red() {
    let mut list = list();
    list.operations.truncate(1);
    list.operations[0].stuck = "not accepted for 12s".into();
    assert!(list.text(fitting::look()).ends_with("   STUCK: not accepted for 12s\n"));
    let text = list.text(Look { colour: true, ..fitting::look() });
    assert!(text.contains("\x1b[1m\x1b[31mSTUCK: not accepted for 12s\x1b[0m"), "{text:?}");
}

#[test]
fn an_operation_is_described() {
    let expected = "\
Operation:         op-12
Verb:              create
Machine:           worker-0
Outcome:           running
Message:           <none>

Class:
  Kind:            SimMachineClass
  API version:     <none>
  Class:           default/small

Driver:
  Instance:        sim-0
  Session:         5f1c

Delivery:
  State:           ACCEPTED
  Attempts:        2
  Submitted:       1970-01-01T00:01:00.000Z
  Queued for:      3ms
  Accepted after:  20ms
  Age:             2m5s
  Time left:       7m55s
";
    assert_eq!(list().operations[0].text(fitting::look()), expected);
}

#[test]
fn an_operation_is_found_by_what_is_unique_of_its_id() {
    let one = |id: &str| find(list().operations, id).map(|operation| operation.operation_id);
    assert_eq!(one("op-12").ok().as_deref(), Some("op-12"));
    assert_eq!(one("12").ok().as_deref(), Some("op-12"));
    let several = one("op-1").expect_err("is not unique");
    let expected = "error: 2 operations are meant by \"op-1\"\n  say more of the id: op-12, op-11";
    assert_eq!((several.to_string().as_str(), several.exit()), (expected, Exit::Failed));
    assert_eq!(one("op-7").expect_err("is not there").exit(), Exit::NotFound);
}
