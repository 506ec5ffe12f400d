//! Operations on one session.

use std::time::Duration;

use broker_proto::v1::operation_result::Payload;

use super::{
    Running,
    broker::{Brokers, provider_id, wire_duration},
    connected,
};
use crate::{Code, Token, Verb};

#[tokio::test(start_paused = true)]
async fn a_driver_introduces_itself_and_serves() {
    let mut brokers = Brokers::new(1);
    let running = Running::with(&brokers, |config| {
        config.capacity = 3;
        config.token = Some(Token::new("t0ken"));
    });
    let mut broker = brokers.take();
    let mut peer = broker.welcome().await;

    let hello = peer.registration.hello.clone().expect("a native driver says hello");
    assert_eq!(peer.registration.name, "scripted");
    assert_eq!((hello.protocol_min, hello.protocol_max), (1, 1));
    assert_eq!((hello.instance_id.as_str(), hello.capacity), ("i", 3));
    assert_eq!(hello.verbs, ["create", "delete", "list", "get_status"]);
    assert_eq!((hello.kinds[0].api_version.as_str(), hello.kinds[0].kind.as_str()), ("v1", "K"));
    assert!(hello.cancel && hello.resume && hello.drain && hello.paging);
    assert_eq!(broker.shelf.authorization.lock().unwrap().as_deref(), Some("Bearer t0ken"));

    peer.ask(7, "create", "m").await;
    let result = peer.executed(7).await;
    assert_eq!((result.code, provider_id(&result)), (0, "id-m"));
    assert_eq!(running.script.calls(), [(Verb::Create, "m".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_twice_is_executed_once_and_answered_twice() {
    let (_broker, running, mut peer) = connected().await;
    peer.ask(1, "create", "held-m").await;
    peer.accepted(1).await;
    peer.ask(2, "create", "held-m").await;
    peer.accepted(2).await;
    peer.ask(3, "delete", "held-m").await;
    assert_eq!(peer.result(3).await.code, Code::Aborted as i32);

    running.script.gate.add_permits(1);
    assert_eq!(provider_id(&peer.result(1).await), "id-held-m");
    assert_eq!(provider_id(&peer.result(2).await), "id-held-m");
    peer.ask(4, "create", "held-m").await;
    assert_eq!(provider_id(&peer.result(4).await), "id-held-m");
    assert_eq!(running.script.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_request_id_is_executed_anew() {
    let (_broker, running, mut peer) = connected().await;
    for (id, request_id) in [(1, "a"), (2, "b")] {
        peer.ask_with(id, "create", "m", |params| params.request_id = request_id.into()).await;
        peer.executed(id).await;
    }
    peer.ask_with(3, "create", "m", |params| params.request_id = "b".into()).await;
    peer.result(3).await;
    assert_eq!(running.script.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_internal_error_and_the_driver_lives_on() {
    let (_broker, _running, mut peer) = connected().await;
    peer.ask(1, "create", "panicking").await;
    let result = peer.executed(1).await;
    assert_eq!(result.code, Code::Internal as i32);
    assert_eq!(result.message, "the driver panicked: oh no");
    peer.ask(2, "create", "m").await;
    assert_eq!(peer.executed(2).await.code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_operation_ends_by_itself() {
    let (_broker, _running, mut peer) = connected().await;
    peer.ask(1, "create", "held-m").await;
    peer.accepted(1).await;
    peer.cancel(1).await;
    let result = peer.result(1).await;
    assert_eq!((result.code, result.message.as_str()), (Code::Cancelled as i32, "as you like"));
}

#[tokio::test(start_paused = true)]
async fn who_joined_keeps_it_running() {
    let (_broker, running, mut peer) = connected().await;
    peer.ask(1, "create", "held-m").await;
    peer.accepted(1).await;
    peer.ask(2, "create", "held-m").await;
    peer.accepted(2).await;
    peer.cancel(1).await;
    peer.ping(1).await;
    running.script.gate.add_permits(1);
    assert_eq!(peer.result(1).await.code, 0);
    assert_eq!(peer.result(2).await.code, 0);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_stop_is_dropped_after_the_grace_time() {
    let (_broker, _running, mut peer) = connected().await;
    peer.ask(1, "create", "stubborn-a").await;
    peer.accepted(1).await;
    let begin = tokio::time::Instant::now();
    peer.cancel(1).await;
    // Keep the session alive meanwhile, as a broker does.
    for sequence in 0..5 {
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(peer.ping(sequence).await.in_flight, [1]);
    }
    assert_eq!(peer.result(1).await.code, Code::Cancelled as i32);
    assert_eq!(begin.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_cancels_and_then_ends_it() {
    let (_broker, _running, mut peer) = connected().await;
    let short = |params: &mut broker_proto::v1::OperationParams| {
        params.time_left = Some(wire_duration(Duration::from_secs(5)));
    };
    peer.ask_with(1, "create", "held-m", short).await;
    let begin = tokio::time::Instant::now();
    assert_eq!(peer.executed(1).await.code, Code::Cancelled as i32);
    assert_eq!(begin.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn who_joined_at_the_broker_gets_their_time() {
    let (_broker, _running, mut peer) = connected().await;
    let time_left = Some(wire_duration(Duration::from_secs(5)));
    peer.ask_with(1, "create", "held-m", |params| params.time_left = time_left).await;
    let begin = tokio::time::Instant::now();
    peer.accepted(1).await;
    peer.extend(1, Duration::from_secs(20)).await;
    // Neither a shorter time, nor none, nor that of an operation that is not there changes this.
    peer.extend(1, Duration::from_secs(1)).await;
    peer.extend(1, Duration::ZERO).await;
    peer.extend(9, Duration::from_secs(25)).await;
    assert_eq!(peer.result(1).await.code, Code::Cancelled as i32);
    assert_eq!(begin.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_over_executes_nothing_and_an_enormous_one_is_fine() {
    let (_broker, running, mut peer) = connected().await;
    for (id, seconds) in [(1, 0), (2, -5)] {
        let time_left = Some(prost_types::Duration { seconds, nanos: 0 });
        peer.ask_with(id, "create", "m", |params| params.time_left = time_left).await;
        assert_eq!(peer.result(id).await.code, Code::DeadlineExceeded as i32);
    }
    assert_eq!(running.script.calls(), []);
    let time_left = Some(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
    peer.ask_with(3, "create", "m", |params| params.time_left = time_left).await;
    assert_eq!(peer.executed(3).await.code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_in_pages() {
    let (_broker, running, mut peer) = connected().await;
    *running.script.listed.lock().unwrap() = 2001;
    peer.ask(1, "list", "").await;
    peer.accepted(1).await;
    let mut machines = Vec::new();
    loop {
        let Some(Payload::List(page)) = peer.result(1).await.payload else { panic!("no page") };
        assert!(page.machines.len() <= 1000);
        machines.extend(page.machines);
        if !page.more {
            break;
        }
    }
    assert_eq!(machines.len(), 2001);
    assert_eq!(machines[2000].machine_name, "m2000");
}

#[tokio::test(start_paused = true)]
async fn nonsense_is_answered_and_harms_nobody() {
    let (_broker, running, mut peer) = connected().await;
    peer.ask(1, "reboot", "m").await;
    assert_eq!(peer.result(1).await.code, Code::Unimplemented as i32);
    // Known, but not declared by this driver.
    peer.ask(2, "initialize", "m").await;
    assert_eq!(peer.result(2).await.code, Code::Unimplemented as i32);
    peer.ask(3, "create", "").await;
    assert_eq!(peer.result(3).await.code, Code::InvalidArgument as i32);
    peer.ask_with(4, "create", "m", |params| params.class = None).await;
    assert_eq!(peer.result(4).await.code, Code::InvalidArgument as i32);
    // A control frame of a protocol to come, and a cancellation of nothing.
    let unknown =
        broker_proto::v1::BrokerSide { operation_type: "sing".into(), ..Default::default() };
    peer.send(unknown).await;
    peer.cancel(99).await;
    assert_eq!(running.script.calls(), []);
    peer.ask(5, "create", "m").await;
    assert_eq!(peer.executed(5).await.code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pong_tells_what_runs_and_what_is_free() {
    let (_broker, running, mut peer) = connected().await;
    assert_eq!(peer.ping(1).await.free_slots, 16);
    peer.ask(5, "create", "held-m").await;
    peer.accepted(5).await;
    let pong = peer.ping(2).await;
    assert_eq!((pong.in_flight, pong.free_slots), (vec![5], 15));
    running.script.gate.add_permits(1);
    peer.result(5).await;
    assert!(peer.ping(3).await.in_flight.is_empty());
}

#[tokio::test(start_paused = true)]
async fn beyond_its_capacity_a_driver_queues_shortly_and_then_refuses() {
    let mut brokers = Brokers::new(1);
    let running = Running::with(&brokers, |config| config.capacity = 1);
    let mut peer = brokers.take().welcome().await;
    peer.ask(1, "create", "held-a").await;
    peer.accepted(1).await;
    // One more may wait, and a third may not.
    peer.ask(2, "create", "held-b").await;
    peer.ask(3, "create", "held-c").await;
    assert_eq!(peer.result(3).await.code, Code::ResourceExhausted as i32);
    let refused = peer.result(2).await;
    assert_eq!(refused.code, Code::ResourceExhausted as i32);
    assert!(refused.retry_after.is_some());

    // A slot that becomes free in time is taken.
    peer.ask(4, "create", "held-b").await;
    running.script.gate.add_permits(2);
    peer.result(1).await;
    assert_eq!(peer.executed(4).await.code, 0);
    assert_eq!(running.script.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn thousands_at_once_are_all_answered() {
    let mut brokers = Brokers::new(1);
    let running = Running::with(&brokers, |config| config.capacity = 5000);
    let mut peer = brokers.take().welcome().await;
    for id in 1..=5000 {
        peer.ask(id, "create", &format!("held-{id}")).await;
    }
    running.script.called(5000).await;
    running.script.gate.add_permits(5000);
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < 5000 {
        let frame = peer.next().await.expect("the driver is there");
        if let Some(broker_proto::v1::driver_side::Response::Result(result)) = frame.response {
            assert_eq!(provider_id(&result), format!("id-held-{}", frame.operation_id));
            assert!(answered.insert(frame.operation_id));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn code_that_blocks_its_thread_does_not_stop_the_heartbeat() {
    let (_broker, running, mut peer) = connected().await;
    let patience = Duration::from_secs(10);
    peer.ask(1, "create", "blocking-m").await;
    tokio::time::timeout(patience, peer.accepted(1)).await.expect("the session lives");
    for sequence in 0..100 {
        let pong = tokio::time::timeout(patience, peer.ping(sequence)).await;
        assert_eq!(pong.expect("the session lives").in_flight, [1]);
    }
    running.script.unblock();
    assert_eq!(peer.result(1).await.code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn code_that_blocks_its_thread_does_not_keep_the_answers_of_others() {
    let (_broker, running, mut peer) = connected().await;
    peer.ask(1, "create", "blocking-m").await;
    peer.ask(2, "create", "quick-m").await;
    let patience = Duration::from_secs(10);
    let result = tokio::time::timeout(patience, peer.result_among_orphans(2)).await;
    assert_eq!(provider_id(&result.expect("it does not wait")), "id-quick-m");
    running.script.unblock();
    assert_eq!(peer.result_among_orphans(1).await.code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn code_that_blocks_its_thread_does_not_keep_others_from_beginning() {
    let (_broker, running, mut peer) = connected().await;
    // They come together, or nearly.
    for (id, name) in [(1, "blocking-a"), (2, "blocking-b"), (3, "blocking-c")] {
        peer.ask(id, "create", name).await;
    }
    let patience = Duration::from_secs(10);
    let called = tokio::time::timeout(patience, running.script.called(3)).await;
    running.script.unblock();
    called.expect("each has a thread");
}
