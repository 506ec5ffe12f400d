//! Brokers of an earlier and of a later protocol.

use broker_proto::v1::{self as wire, broker_side::Control, reject::Reason};

use super::{
    Running,
    broker::{Brokers, provider_id},
};
use crate::RunError;

/// A control frame of a later protocol, as we read it: without what we do not know.
fn unknown(operation_type: &str) -> wire::BrokerSide {
    wire::BrokerSide { operation_type: operation_type.into(), ..wire::BrokerSide::default() }
}

#[tokio::test(start_paused = true)]
async fn a_broker_of_the_next_protocol_may_say_what_we_do_not_know_at_any_time() {
    let mut brokers = Brokers::new(1);
    let running = Running::start(&brokers);
    let mut broker = brokers.take();
    let mut peer = broker.dialled().await;
    peer.send(unknown("challenge")).await;
    let welcome = wire::Welcome { session_id: "s".into(), protocol: 1, ..wire::Welcome::default() };
    peer.control(Control::Welcome(welcome)).await;
    peer.send(unknown("rebalance")).await;
    peer.ask(1, "create", "m").await;
    peer.send(wire::BrokerSide { operation_id: 1, ..unknown("prioritize") }).await;
    assert_eq!(provider_id(&peer.executed(1).await), "id-m");
    assert_eq!(running.script.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_early_broker_says_less_in_its_welcome_and_is_served() {
    let mut brokers = Brokers::new(1);
    let _running = Running::start(&brokers);
    let mut broker = brokers.take();
    let mut peer = broker.dialled().await;
    peer.control(Control::Welcome(wire::Welcome::default())).await;
    // It knows neither pings nor anything else that is optional.
    peer.ask(1, "create", "m").await;
    assert_eq!(provider_id(&peer.executed(1).await), "id-m");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_has_forgotten_our_protocol_is_left_for_good_with_its_words() {
    let mut brokers = Brokers::new(1);
    let running = Running::start(&brokers);
    let mut broker = brokers.take();
    let mut peer = broker.dialled().await;
    let hello = peer.registration.hello.clone().expect("a native driver");
    assert_eq!((hello.protocol_min, hello.protocol_max), (1, 1));
    peer.control(Control::Reject(wire::Reject {
        reason: Reason::Protocol.into(),
        message: "this broker speaks 2 to 3".into(),
        ..wire::Reject::default()
    }))
    .await;
    match running.ended().await {
        Err(RunError::Rejected { reason, message, .. }) => {
            assert_eq!(
                (reason.as_str(), message.as_str()),
                ("PROTOCOL", "this broker speaks 2 to 3")
            );
        }
        other => panic!("{other:?}"),
    }
}
