//! Streams break, brokers reject, and nothing is done twice or forgotten.

use std::time::Duration;

use broker_proto::v1::{self as wire, broker_side::Control};
use tokio::time::Instant;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{
    Running,
    broker::{Brokers, Peer, provider_id, wire_duration},
    connected,
};
use crate::{Code, RunError};

fn result_id(resumed: &wire::Resumed) -> &str {
    provider_id(resumed.result.as_ref().expect("it ended"))
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_after_a_reconnect_is_not_executed_again() {
    let (mut broker, running, mut peer) = connected().await;
    peer.ask(1, "create", "m").await;
    peer.executed(1).await;
    peer.cut().await;

    let mut peer = broker.welcome().await;
    // It cannot know that its answer was read, so it says it once more.
    assert_eq!(result_id(&peer.resumed().await), "id-m");
    peer.ask(1, "create", "m").await;
    assert_eq!(provider_id(&peer.result(1).await), "id-m");
    assert_eq!(running.script.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_create_of_a_machine_deleted_since_is_not_told_again() {
    let (mut broker, _running, mut peer) = connected().await;
    for (id, verb) in [(1, "create"), (2, "delete")] {
        peer.ask(id, verb, "m").await;
        peer.executed(id).await;
    }
    peer.cut().await;
    let mut peer = broker.welcome().await;
    assert_eq!(peer.resumed().await.verb, "delete");
    peer.ping(1).await;
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_resumed_and_its_end_reported() {
    let (mut broker, running, mut peer) = connected().await;
    peer.ask_with(1, "create", "held-m", |params| params.request_id = "r".into()).await;
    peer.accepted(1).await;
    peer.cut().await;

    let mut peer = broker.welcome().await;
    let resumed = peer.resumed().await;
    assert_eq!((resumed.verb.as_str(), resumed.machine_name.as_str()), ("create", "held-m"));
    assert_eq!(resumed.class.as_ref().map(|class| class.name.as_str()), Some("small"));
    assert_eq!((resumed.request_id.as_str(), resumed.result), ("r", None));
    running.script.gate.add_permits(1);
    assert_eq!(result_id(&peer.resumed().await), "id-held-m");
    assert_eq!(running.script.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_ended_meanwhile_is_reported_even_a_failure() {
    let (mut broker, running, mut peer) = connected().await;
    peer.ask(1, "create", "held-m").await;
    peer.accepted(1).await;
    peer.ask(2, "create", "doomed-m").await;
    peer.accepted(2).await;
    peer.cut().await;
    // Not welcomed yet, so there is nobody to tell.
    let waiting = broker.dialled().await;
    running.script.gate.add_permits(2);
    while running.script.gate.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    drop(waiting);
    let mut peer = broker.welcome().await;
    let mut codes = [peer.resumed().await, peer.resumed().await].map(|resumed| {
        let code = resumed.result.expect("it ended").code;
        (resumed.machine_name, code)
    });
    codes.sort();
    assert_eq!(codes, [("doomed-m".into(), Code::Unavailable as i32), ("held-m".into(), 0)]);
    // Told once.
    peer.ping(1).await;
}

/// What a hello tells of operations: the machine, and the code of what is over. The newest comes first.
fn told(peer: &Peer) -> Vec<(&str, Option<i32>)> {
    let hello = peer.registration.hello.as_ref().expect("a hello");
    let resumed = hello.resumed.iter();
    resumed.map(|r| (r.machine_name.as_str(), r.result.as_ref().map(|r| r.code))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hello_tells_what_runs_and_how_the_last_change_of_each_machine_ended() {
    let (mut broker, running, mut peer) = connected().await;
    assert_eq!(told(&peer), []);
    peer.ask(1, "create", "m").await;
    peer.executed(1).await;
    peer.ask(2, "create", "failing-m").await;
    peer.executed(2).await;
    peer.ask(3, "create", "held-m").await;
    peer.accepted(3).await;
    peer.cut().await;

    let failed = Some(Code::Unavailable as i32);
    let expected = [("held-m", None), ("failing-m", failed), ("m", Some(0))];
    // Whoever is not welcomed tells it again.
    assert_eq!(told(&broker.dialled().await), expected);
    running.script.gate.add_permits(1);
    while running.script.gate.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let expected = [("held-m", Some(0)), ("failing-m", failed), ("m", Some(0))];
    assert_eq!(told(&broker.dialled().await), expected);

    // As long as it remembers.
    tokio::time::sleep(Duration::from_secs(15 * 60)).await;
    while !told(&broker.dialled().await).is_empty() {}
}

#[tokio::test(start_paused = true)]
async fn what_another_instance_has_changed_is_forgotten_whether_welcome_or_rejected() {
    let (mut broker, running, mut peer) = connected().await;
    let forget = |machine: &str| {
        let class = wire::ClassRef {
            api_version: "v1".into(),
            kind: "K".into(),
            namespace: "default".into(),
            ..Default::default()
        };
        Control::Forget(wire::Forget { class: Some(class), machine_name: machine.to_owned() })
    };
    for (id, machine) in [(1, "here"), (2, "outside"), (3, "kept")] {
        peer.ask(id, "create", machine).await;
        peer.executed(id).await;
    }
    peer.control(forget("here")).await;
    peer.ping(1).await;
    peer.cut().await;
    let mut outside = broker.dialled().await;
    assert_eq!(told(&outside), [("kept", Some(0)), ("outside", Some(0))]);
    outside.control(forget("outside")).await;
    let reason = wire::reject::Reason::Duplicate.into();
    outside
        .control(Control::Reject(wire::Reject { reason, retryable: true, ..Default::default() }))
        .await;
    drop(outside);

    let mut peer = broker.welcome().await;
    assert_eq!(told(&peer), [("kept", Some(0))]);
    assert_eq!(result_id(&peer.resumed().await), "id-kept");
    for (id, machine) in [(1, "here"), (2, "outside")] {
        peer.ask(id, "create", machine).await;
        peer.executed(id).await;
    }
    peer.ask(3, "create", "kept").await;
    peer.result(3).await;
    assert_eq!(running.script.calls().len(), 5, "two of them once more");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_was_written_is_not_told_again() {
    let (mut broker, _running, mut peer) = connected().await;
    peer.ask(1, "create", "failing-m").await;
    assert_eq!(peer.executed(1).await.code, Code::Unavailable as i32);
    peer.cut().await;
    let mut peer = broker.welcome().await;
    // Nothing comes before the answer to this.
    peer.ping(1).await;
}

#[tokio::test(start_paused = true)]
async fn an_old_answer_has_been_read_and_is_not_told_again() {
    let (mut broker, _running, mut peer) = connected().await;
    peer.ask(1, "create", "old").await;
    peer.executed(1).await;
    for sequence in 0..7 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        peer.ping(sequence).await;
    }
    peer.ask(2, "create", "new").await;
    peer.executed(2).await;
    peer.cut().await;
    let mut peer = broker.welcome().await;
    assert_eq!(peer.resumed().await.machine_name, "new");
    peer.ping(9).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_was_welcomed_before_says_so_to_every_replica() {
    let mut brokers = Brokers::new(2);
    let _running = Running::start(&brokers);
    let (mut one, mut other) = (brokers.take(), brokers.take());
    let returning = |peer: &Peer| peer.registration.hello.as_ref().expect("a hello").returning;
    let peer = one.welcome().await;
    assert!(!returning(&peer));
    peer.cut().await;
    assert!(returning(&one.dialled().await));
    assert!(returning(&one.welcome().await));
    // A stream without a welcome was no session. By the next one it knows another replica: one that has
    // just started has to hear of that, since others that do may be on their way to it.
    assert!(!returning(&other.dialled().await));
    assert!(returning(&other.welcome().await));
}

#[tokio::test(start_paused = true)]
async fn a_silent_broker_is_given_up_and_dialled_again() {
    let (mut broker, _running, peer) = connected().await;
    let begin = Instant::now();
    let mut next = broker.welcome().await;
    assert!((30..46).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    next.ping(1).await;
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn a_broker_without_a_welcome_is_left_after_its_time() {
    let mut brokers = Brokers::new(1);
    let _running = Running::start(&brokers);
    let mut broker = brokers.take();
    let silent = broker.dialled().await;
    let begin = Instant::now();
    broker.welcome().await.ping(1).await;
    assert!((10..12).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn two_brokers_one_machine_one_execution() {
    let mut brokers = Brokers::new(2);
    let running = Running::start(&brokers);
    let (mut one, mut other) = (brokers.take(), brokers.take());
    let (mut one, mut other) = (one.welcome().await, other.welcome().await);
    one.ask(1, "create", "held-m").await;
    one.accepted(1).await;
    other.ask(1, "create", "held-m").await;
    other.accepted(1).await;
    // The first broker does not want it any more, the second does.
    one.cancel(1).await;
    one.ping(1).await;
    running.script.gate.add_permits(1);
    assert_eq!(provider_id(&one.result(1).await), "id-held-m");
    assert_eq!(provider_id(&other.result(1).await), "id-held-m");
    assert_eq!(running.script.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_dies_does_not_disturb_another() {
    let mut brokers = Brokers::new(2);
    let _running = Running::start(&brokers);
    let (mut one, mut other) = (brokers.take(), brokers.take());
    let (mut first, mut second) = (one.welcome().await, other.welcome().await);
    first.ask(1, "create", "held-m").await;
    first.accepted(1).await;
    first.cut().await;
    second.ask(1, "create", "m").await;
    assert_eq!(second.executed(1).await.code, 0);
    assert_eq!(one.welcome().await.resumed().await.machine_name, "held-m");
}

fn reject(retryable: bool, after: u64) -> Control {
    Control::Reject(wire::Reject {
        reason: wire::reject::Reason::Duplicate as i32,
        message: "one is enough".into(),
        retryable,
        retry_after: Some(wire_duration(Duration::from_secs(after))),
        ..wire::Reject::default()
    })
}

#[tokio::test(start_paused = true)]
async fn a_rejection_says_when_to_come_back() {
    let mut brokers = Brokers::new(1);
    let _running = Running::start(&brokers);
    let mut broker = brokers.take();
    broker.dialled().await.control(reject(true, 20)).await;
    let begin = Instant::now();
    broker.welcome().await.ping(1).await;
    assert!(begin.elapsed() >= Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn so_does_a_status_where_there_is_no_stream_to_be_rejected_on() {
    let mut brokers = Brokers::new(1);
    let _running = Running::start(&brokers);
    let mut broker = brokers.take();
    let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(20)));
    let status = Status::with_error_details(tonic::Code::ResourceExhausted, "too many", details);
    broker.dialled().await.fail(status).await;
    let begin = Instant::now();
    broker.welcome().await.ping(1).await;
    assert!(begin.elapsed() >= Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_final_rejection_of_one_broker_leaves_the_other_and_of_all_ends_the_driver() {
    let mut brokers = Brokers::new(2);
    let running = Running::start(&brokers);
    let (mut one, mut other) = (brokers.take(), brokers.take());
    one.dialled().await.control(reject(false, 0)).await;
    let mut peer = other.welcome().await;
    peer.ask(1, "create", "m").await;
    assert_eq!(peer.executed(1).await.code, 0);
    peer.cut().await;
    other.dialled().await.control(reject(false, 0)).await;
    match running.ended().await {
        Err(RunError::Rejected { address, reason, message }) => {
            assert_eq!(address, "http://broker-1");
            assert_eq!((reason.as_str(), message.as_str()), ("DUPLICATE", "one is enough"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn handshakes_that_die_at_once_come_ever_more_slowly() {
    let mut brokers = Brokers::new(1);
    let _running = Running::start(&brokers);
    let mut broker = brokers.take();
    let begin = Instant::now();
    for _ in 0..30 {
        broker.welcome().await.cut().await;
    }
    // Without growth thirty delays of at most 250 ms would take less than 8 s. With it the mean is
    // more than 180 s; that all draws together stay below 20 s does not happen.
    assert!(begin.elapsed() > Duration::from_secs(20), "{:?}", begin.elapsed());
}
