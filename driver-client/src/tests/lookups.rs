//! Classes and secrets, as an operation sees them.

use std::sync::atomic::Ordering::SeqCst;

use broker_proto::v1::{self as wire, broker_side::Control, operation_result::Payload};
use tonic::Status;

use super::connected;
use crate::Code;

/// What the driver read: the class's size, and the secret's key with the user data.
fn seen(result: wire::OperationResult) -> (String, String) {
    match result.payload {
        Some(Payload::Machine(machine)) => (machine.node_name, machine.last_known_state),
        other => panic!("{other:?} {}", result.message),
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_and_its_secret_are_asked_for_once_per_revision() {
    let (broker, _running, mut peer) = connected().await;
    for id in 0..3 {
        peer.ask(id, "create", &format!("classy-{id}")).await;
        assert_eq!(seen(peer.executed(id).await), ("size-1".into(), "key-0 default".into()));
    }
    assert_eq!(*broker.shelf.token.lock().unwrap(), "token");
    assert_eq!(broker.shelf.class_lookups.load(SeqCst), 1);

    peer.ask_with(4, "create", "classy-4", |params| {
        params.machine_class.as_mut().expect("set").revision = 2;
        params.secret_revision = 2;
        params.user_data = Some("mine".into());
    })
    .await;
    assert_eq!(seen(peer.executed(4).await), ("size-2".into(), "key-1 mine".into()));
}

#[tokio::test(start_paused = true)]
async fn a_rotated_or_old_secret_is_asked_for_again() {
    let (broker, _running, mut peer) = connected().await;
    peer.ask(1, "create", "classy-1").await;
    peer.executed(1).await;
    peer.control(Control::SecretChanged(wire::SecretChanged::default())).await;
    peer.ask(2, "create", "classy-2").await;
    assert_eq!(seen(peer.executed(2).await).1, "key-1 default");

    for sequence in 0..16 {
        tokio::time::sleep(std::time::Duration::from_secs(20)).await;
        peer.ping(sequence).await;
    }
    peer.ask(3, "create", "classy-3").await;
    assert_eq!(seen(peer.executed(3).await).1, "key-2 default");
    assert_eq!(broker.shelf.class_lookups.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn many_operations_ask_once() {
    let (broker, _running, mut peer) = connected().await;
    for id in 0..10 {
        peer.ask(id, "create", &format!("classy-{id}")).await;
    }
    let mut answers = 0;
    while answers < 10 {
        let frame = peer.next().await.expect("the driver is there");
        answers += usize::from(matches!(
            frame.response,
            Some(wire::driver_side::Response::Result(result)) if result.code == 0
        ));
    }
    assert_eq!(broker.shelf.class_lookups.load(SeqCst), 1);
    assert_eq!(broker.shelf.secret_lookups.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_not_there_is_not_a_machine_that_is_not_there() {
    let (broker, _running, mut peer) = connected().await;
    *broker.shelf.refusal.lock().unwrap() = Some(Status::not_found("no class small"));
    peer.ask(1, "get_status", "classy-1").await;
    let result = peer.executed(1).await;
    assert_eq!(result.code, Code::FailedPrecondition as i32);
    assert!(result.message.contains("no class small"), "{}", result.message);
    // The refusal was not cached.
    peer.ask(2, "get_status", "classy-1").await;
    assert_eq!(peer.executed(2).await.code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_fails_in_passing_is_tried_again() {
    let (broker, _running, mut peer) = connected().await;
    *broker.shelf.refusal.lock().unwrap() = Some(Status::unavailable("in a moment"));
    peer.ask(1, "create", "classy-1").await;
    assert_eq!(peer.executed(1).await.code, 0);
    assert_eq!(broker.shelf.class_lookups.load(SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_goes_on_over_a_reconnect() {
    let (mut broker, running, mut peer) = connected().await;
    *broker.shelf.refusal.lock().unwrap() = Some(Status::unavailable("going down"));
    peer.ask(1, "create", "classy-1").await;
    peer.accepted(1).await;
    running.script.called(1).await;
    peer.cut().await;
    let mut peer = broker.welcome().await;
    let mut resumed = peer.resumed().await;
    if resumed.result.is_none() {
        resumed = peer.resumed().await;
    }
    let result = resumed.result.expect("it ended");
    assert_eq!(seen(result), ("size-1".into(), "key-0 default".into()));
    assert_eq!(running.script.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_session_is_asked_anew_whatever_the_revisions() {
    let (mut broker, _running, mut peer) = connected().await;
    peer.ask(1, "get_status", "classy-1").await;
    peer.executed(1).await;
    peer.cut().await;
    let mut peer = broker.welcome().await;
    peer.ask(1, "get_status", "classy-1").await;
    assert_eq!(seen(peer.executed(1).await).1, "key-1 default");
    assert_eq!(broker.shelf.class_lookups.load(SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_class_without_a_secret_has_none() {
    let (broker, _running, mut peer) = connected().await;
    peer.ask_with(1, "create", "classy-1", |params| params.secret_revision = 0).await;
    let result = peer.executed(1).await;
    assert_eq!(result.code, Code::FailedPrecondition as i32);
    assert!(result.message.contains("no secret"), "{}", result.message);
    assert_eq!(broker.shelf.secret_lookups.load(SeqCst), 0);
}
