//! One session with every replica, as they come and go.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use broker_proto::v1::{self as wire, broker_side::Control, reject::Reason};
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::{
    Running,
    broker::{Broker, Brokers, Peer, provider_id},
};

/// Many times the longest pause between two dials.
const WHILE: Duration = Duration::from_secs(100);

fn named(number: usize) -> wire::Peer {
    wire::Peer { replica_id: format!("replica-{number}"), address: format!("broker-{number}") }
}

fn peers(revision: u64, numbers: impl IntoIterator<Item = usize>) -> wire::Peers {
    wire::Peers { revision, peers: numbers.into_iter().map(named).collect() }
}

/// So many replicas, and a driver that was told to dial the first of them.
fn replicas(count: usize) -> (Running, Vec<Broker>) {
    let mut brokers = Brokers::new(count);
    let running = Running::with(&brokers, |config| config.addresses.truncate(1));
    (running, (0..count).map(|_| brokers.take()).collect())
}

/// Welcomes the driver as a replica that knows others.
async fn welcome(broker: &mut Broker, number: usize, others: wire::Peers) -> Peer {
    let mut peer = broker.dialled().await;
    peer.welcome_as(&format!("replica-{number}"), Some(others)).await;
    peer
}

fn connected(peer: &Peer) -> Vec<String> {
    let mut connected = peer.registration.hello.as_ref().expect("a hello").connected.clone();
    connected.sort();
    connected
}

#[tokio::test(start_paused = true)]
async fn a_driver_goes_to_every_replica_that_is_named_and_leaves_those_that_are_gone() {
    let (_running, mut brokers) = replicas(5);
    let mut first = welcome(&mut brokers[0], 0, peers(1, [1])).await;
    let mut sessions = vec![welcome(&mut brokers[1], 1, peers(1, [0])).await];
    assert_eq!(connected(&sessions[0]), ["replica-0"]);
    // From two to five.
    let begin = Instant::now();
    first.control(Control::Peers(peers(2, 1..5))).await;
    for (number, broker) in brokers.iter_mut().enumerate().skip(2) {
        let others = peers(1, (0..5).filter(|n| *n != number));
        sessions.push(welcome(broker, number, others).await);
    }
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    for (number, session) in sessions.iter_mut().enumerate() {
        session.ask(1, "create", &format!("m{number}")).await;
        assert_eq!(session.executed(1).await.code, 0);
    }
    // And back: three leave, and are not named any more.
    for session in [&mut first, &mut sessions[0]] {
        session.control(Control::Peers(peers(9, [0, 1]))).await;
        session.ping(1).await;
    }
    for session in sessions.drain(1..) {
        session.cut().await;
    }
    for broker in &mut brokers[2..] {
        assert!(timeout(WHILE, broker.dialled()).await.is_err(), "dialled again");
    }
    first.ping(2).await;
    sessions[0].ping(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_stands_is_kept_whatever_others_say_of_the_replica() {
    let (_running, mut brokers) = replicas(2);
    let mut first = welcome(&mut brokers[0], 0, peers(1, [1])).await;
    let mut second = welcome(&mut brokers[1], 1, peers(1, [0])).await;
    // It has lost its Lease, and still has callers.
    first.control(Control::Peers(peers(2, []))).await;
    first.ping(1).await;
    second.ask(1, "create", "m").await;
    assert_eq!(provider_id(&second.executed(1).await), "id-m");
    second.ping(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_address_of_a_replica_steps_back_until_the_first_one_is_gone() {
    let mut brokers = Brokers::new(2);
    let _running = Running::start(&brokers);
    // Both addresses lead to one replica: a Service, and the pod behind it.
    let (mut pod, mut service) = (brokers.take(), brokers.take());
    let mut first = pod.dialled().await;
    first.welcome_as("replica", None).await;
    first.ping(1).await;
    let mut second = service.dialled().await;
    let reject = wire::Reject {
        reason: Reason::Connected.into(),
        retryable: true,
        replica_id: "replica".into(),
        ..wire::Reject::default()
    };
    second.control(Control::Reject(reject)).await;
    assert!(timeout(WHILE, service.dialled()).await.is_err(), "it waits");
    first.ping(2).await;
    first.cut().await;
    let next = timeout(WHILE, service.dialled()).await.expect("it is free");
    assert_eq!(connected(&next), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn of_two_sessions_with_a_replica_the_newer_stays_and_the_older_does_not_come_back() {
    let mut brokers = Brokers::new(2);
    let _running = Running::start(&brokers);
    let (mut one, mut other) = (brokers.take(), brokers.take());
    let mut first = one.dialled().await;
    let mut second = other.dialled().await;
    first.welcome_as("replica", None).await;
    first.ping(1).await;
    second.welcome_as("replica", None).await;
    second.ping(1).await;
    // What a broker does with two streams of one process.
    first.cut().await;
    assert!(timeout(WHILE, one.dialled()).await.is_err(), "it would replace the other one");
    second.ping(2).await;
    second.cut().await;
    one.dialled().await;
}

#[tokio::test(start_paused = true)]
async fn another_replica_at_an_old_address_is_met_and_believed() {
    let (running, mut brokers) = replicas(3);
    let mut first = welcome(&mut brokers[0], 0, peers(1, [1])).await;
    let second = welcome(&mut brokers[1], 1, peers(1, [0])).await;
    second.cut().await;
    // The next one at the address of the second knows of a third.
    let mut next = brokers[1].dialled().await;
    assert_eq!(connected(&next), ["replica-0"]);
    next.welcome_as("replica-new", Some(peers(0, [0, 2]))).await;
    welcome(&mut brokers[2], 2, peers(1, [0, 1])).await.ping(1).await;
    next.ask(1, "create", "m").await;
    assert_eq!(next.executed(1).await.code, 0);
    first.ping(1).await;
    assert_eq!(running.script.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_stops_leaves_every_replica_and_waits_for_none_that_is_gone() {
    let (running, mut brokers) = replicas(3);
    let mut first = welcome(&mut brokers[0], 0, peers(1, [1, 2])).await;
    let mut second = welcome(&mut brokers[1], 1, peers(1, [0, 2])).await;
    let mut third = welcome(&mut brokers[2], 2, peers(1, [0, 1])).await;
    third.ask(1, "create", "held-m").await;
    third.accepted(1).await;
    for session in [&mut first, &mut second] {
        session.control(Control::Peers(peers(2, [0, 1]))).await;
        session.ping(1).await;
    }
    third.cut().await;
    assert!(timeout(WHILE, brokers[2].dialled()).await.is_err(), "it is gone");
    running.script.gate.add_permits(1);
    running.shutdown.cancel();
    drop((first, second));
    timeout(WHILE, running.ended()).await.expect("on time").expect("in good order");
}

#[tokio::test(start_paused = true)]
async fn a_token_does_not_follow_a_peer_into_the_open() {
    let mut brokers = Brokers::new(2).open_only("http://broker-1");
    let _running = Running::with(&brokers, |config| {
        config.addresses.truncate(1);
        config.token = Some(crate::Token::new("secret"));
    });
    let (mut first, mut second) = (brokers.take(), brokers.take());
    let mut session = welcome(&mut first, 0, peers(1, [1])).await;
    assert!(timeout(WHILE, second.dialled()).await.is_err(), "everyone could read it");
    session.ping(1).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_replica_asked_for_is_told_to_the_others_and_can_be_asked_for_there() {
    let (running, mut brokers) = replicas(2);
    let mut first = welcome(&mut brokers[0], 0, peers(1, [1])).await;
    let mut second = welcome(&mut brokers[1], 1, peers(1, [0])).await;
    second.ask(1, "create", "done").await;
    assert_eq!(second.executed(1).await.code, 0);
    second.ask(2, "create", "held-m").await;
    second.accepted(2).await;
    first.ping(1).await;
    second.cut().await;

    // That it runs, and what may have been answered to nobody.
    let told = [first.resumed().await, first.resumed().await];
    assert!(told.iter().all(|orphan| orphan.elsewhere));
    assert_eq!((told[0].machine_name.as_str(), &told[0].result), ("held-m", &None));
    let code = |orphan: &wire::Resumed| orphan.result.as_ref().map(|result| result.code);
    assert_eq!((told[1].machine_name.as_str(), code(&told[1])), ("done", Some(0)));

    first.ask(1, "create", "held-m").await;
    first.accepted(1).await;
    running.script.gate.add_permits(1);
    let result = first.result_among_orphans(1).await;
    assert_eq!(provider_id(&result), "id-held-m");
    first.ask(2, "create", "done").await;
    assert_eq!(provider_id(&first.result_among_orphans(2).await), "id-done");
    assert_eq!(running.script.calls().len(), 2, "each was executed once");
}

#[tokio::test(start_paused = true)]
async fn what_runs_for_a_lost_replica_asks_another_one_for_its_class() {
    let (running, mut brokers) = replicas(2);
    let mut first = welcome(&mut brokers[0], 0, peers(1, [1])).await;
    let mut second = welcome(&mut brokers[1], 1, peers(1, [0])).await;
    *brokers[1].shelf.refusal.lock().unwrap() = Some(Status::unavailable("not now"));
    second.ask(1, "create", "classy-m").await;
    second.accepted(1).await;
    second.cut().await;
    // It may be gone for good, and whoever asks again would wait for it.
    first.ask(1, "create", "classy-m").await;
    let begin = Instant::now();
    let result = first.result_among_orphans(1).await;
    assert_eq!(provider_id(&result), "id-classy-m");
    assert!(begin.elapsed() < WHILE, "{:?}", begin.elapsed());
    assert_eq!(running.script.calls().len(), 1);
    assert!(brokers[0].shelf.class_lookups.load(SeqCst) > 0, "it was asked");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_no_replica_of_the_lost_one_is_not_asked_for_its_classes() {
    let mut brokers = Brokers::new(2);
    let _running = Running::start(&brokers);
    let (mut one, mut other) = (brokers.take(), brokers.take());
    let (mut first, mut second) = (one.welcome().await, other.welcome().await);
    *one.shelf.refusal.lock().unwrap() = Some(Status::unavailable("not now"));
    first.ask(1, "create", "classy-m").await;
    first.accepted(1).await;
    first.cut().await;
    // Less than the time after which a broker that says nothing is given up.
    let frame = timeout(Duration::from_secs(20), second.next()).await;
    assert!(frame.is_err(), "it waits for its own broker: {frame:?}");
    assert_eq!(other.shelf.class_lookups.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn who_was_told_that_it_runs_hears_its_end_although_its_own_replica_came_back() {
    let (running, mut brokers) = replicas(2);
    let mut first = welcome(&mut brokers[0], 0, peers(1, [1])).await;
    let mut second = welcome(&mut brokers[1], 1, peers(1, [0])).await;
    second.ask(1, "create", "held-m").await;
    second.accepted(1).await;
    second.cut().await;
    assert_eq!(first.resumed().await.result, None);
    let mut second = welcome(&mut brokers[1], 1, peers(1, [0])).await;
    assert_eq!(second.resumed().await.result, None, "it runs for it again");

    running.script.gate.add_permits(1);
    let told = first.resumed().await;
    assert_eq!((told.machine_name.as_str(), told.elsewhere), ("held-m", true));
    assert!(told.result.is_some(), "else it keeps others from the machine");
    let told = second.resumed().await;
    assert!(told.result.is_some() && !told.elsewhere, "{told:?}");
    second.ping(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_hello_says_what_another_replica_asked_for() {
    let (_running, mut brokers) = replicas(2);
    let mut first = welcome(&mut brokers[0], 0, peers(1, [1])).await;
    let mut second = welcome(&mut brokers[1], 1, peers(1, [0])).await;
    second.ask(1, "create", "m").await;
    second.executed(1).await;
    second.ask(2, "create", "held-m").await;
    second.accepted(2).await;
    first.ask(1, "create", "own").await;
    first.executed(1).await;
    second.cut().await;
    first.cut().await;
    for (number, own) in [(0, vec!["own"]), (1, vec!["held-m", "m"])] {
        let hello = brokers[number].dialled().await.registration.hello.expect("a hello");
        let told = hello.resumed.iter();
        let told: Vec<_> = told.map(|r| (r.machine_name.as_str(), !r.elsewhere)).collect();
        let expected = ["held-m", "own", "m"].map(|name| (name, own.contains(&name)));
        assert_eq!(told, expected, "at {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_no_replica_of_another_hears_nothing_of_what_that_one_asked_for() {
    let mut brokers = Brokers::new(2);
    let running = Running::start(&brokers);
    let (mut one, mut other) = (brokers.take(), brokers.take());
    let (mut first, mut second) = (one.welcome().await, other.welcome().await);
    first.ask(1, "create", "m").await;
    first.executed(1).await;
    first.ask(2, "create", "held-m").await;
    first.accepted(2).await;
    second.ask(1, "create", "own").await;
    second.executed(1).await;
    first.cut().await;
    // It has lost the first one by now.
    one.dialled().await;
    running.script.gate.add_permits(1);
    // Less than the time after which a broker that says nothing is given up.
    let frame = timeout(Duration::from_secs(20), second.next()).await;
    assert!(frame.is_err(), "it may have machines of the same names: {frame:?}");
    second.cut().await;
    let hello = other.dialled().await.registration.hello.expect("a hello");
    let told: Vec<_> = hello.resumed.iter().map(|r| r.machine_name.as_str()).collect();
    assert_eq!(told, ["own"]);
}
