//! Drivers of an earlier and of a later protocol.

use std::time::Duration;

use broker_proto::v1::{broker_side::Control, reject::Reason};
use broker_tests::{Controller, Driver, TestBroker, peers, reason};
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn a_driver_of_the_next_protocol_that_still_speaks_ours_is_served_in_ours() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let newer = Driver::dial_newer(broker.channel().await, peers::next("newer")).await;
    let mut newer = newer.is_welcome().await;
    let listed = broker.drivers().await.remove(0);
    assert_eq!(listed.protocol, 1);
    assert!(!listed.verbs.iter().any(|verb| verb == "hibernate"), "what we cannot ask for");

    // Frames that we do not know are counted, and all else goes on.
    newer.say_nothing(0, "telemetry");
    newer.say_nothing(77, "progress");
    let create = controller.creating("m");
    newer.serve_one().await;
    assert_eq!(create.answer().await.unwrap().provider_id, "id-m");
    assert_eq!(broker.drivers().await[0].odd_frames, 2);
    let list = controller.listing();
    newer.serve_one().await;
    assert_eq!(list.answer().await.unwrap().len(), 1);
    newer.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_speaks_only_the_next_protocol_is_told_which_one_would_do() {
    let broker = TestBroker::start();
    let mut driver = Driver::dial_newer(broker.channel().await, peers::after_next("newer")).await;
    let (_, Control::Reject(reject)) = driver.next_control().await else { panic!("a rejection") };
    assert_eq!((reject.reason(), reject.retryable), (Reason::Protocol, false));
    assert!(reject.message.contains("2 to 3, this broker speaks 1"), "{}", reject.message);
    assert_eq!(driver.end().await.unwrap_err().code(), Code::InvalidArgument);
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_early_driver_is_served_within_what_it_knows_and_hears_nothing_else() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut early = broker.driver_with(peers::early("early")).await;
    assert_eq!(broker.drivers().await[0].capacity, 1, "one at a time where none is said");

    let error = controller.status("m").await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::Unimplemented, "VERB_NOT_IMPLEMENTED")
    );

    // It cannot be told to stop, so it goes on, and the slot is taken until it answers.
    let left = controller.creating("left");
    let operation = early.take().await;
    left.cancel().await;
    let waiting = controller.creating_with(Controller::request("waiting"));
    early.hears_nothing_for(Duration::from_secs(60)).await;
    early.succeed(&operation);
    early.serve_one().await;
    waiting.answer().await.unwrap();

    // Nor can it be told to leave: it is not given anything more, and its session is ended.
    let (stopped, last) = tokio::join!(broker.broker.stop(Duration::from_secs(5)), early.end());
    let () = stopped;
    assert_eq!(last.unwrap_err().code(), Code::Unavailable);
}
