//! Real drivers behind lines that lose, break and end what passes through them.

use std::collections::BTreeMap;

use broker_proto::v1::DriverState;
use broker_tests::{
    caller::Ask,
    history::{Delivery, End, Verb},
    process::PATIENCE,
    proxy::{Flow, Proxy, Way},
    story::{QUICK, Story, ask, insist, stop},
};
use tokio::{task::JoinSet, time::Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_behind_a_dead_line_is_given_up_and_comes_back_whichever_way_is_dead() {
    let story = Story::default();
    let broker = story.broker(QUICK);
    let descriptors = broker.descriptors();
    let mut lines = Vec::new();
    for way in [Way::There, Way::Back, Way::Both] {
        let proxy = Proxy::to(broker.drivers).await;
        let driver = story.driver(proxy.address, &format!("{way:?}"));
        lines.push((way, proxy, driver));
    }
    let all_ready = |drivers: &[broker_proto::v1::Driver]| {
        drivers.len() == 3 && drivers.iter().all(|d| d.state() == DriverState::Ready)
    };
    let before = broker.until_listed("ready", all_ready).await;

    let cut = Instant::now();
    for (way, proxy, _) in &lines {
        proxy.flow(*way, Flow::Lost);
    }
    // By their sessions: where only the way back is dead, a new one may come while we look.
    for driver in &before {
        let doubted = |drivers: &[broker_proto::v1::Driver]| {
            let session = drivers.iter().find(|listed| listed.session_id == driver.session_id);
            session.is_none_or(|session| session.state() == DriverState::Suspect)
        };
        broker.until_listed("in doubt", doubted).await;
    }
    println!("all in doubt after {:?}", cut.elapsed());
    let gone = |drivers: &[broker_proto::v1::Driver]| {
        drivers.iter().all(|listed| before.iter().all(|d| d.session_id != listed.session_id))
    };
    broker.until_listed("given up", gone).await;
    println!("all given up after {:?}", cut.elapsed());

    lines.iter().for_each(|(_, proxy, _)| proxy.heal());
    broker.until_listed("ready again", all_ready).await;
    let caller = story.caller(broker.channel().await);
    for number in 0..3 {
        insist(&caller, &Ask::new(Verb::Create, &format!("m-{number}"), PATIENCE).calm()).await;
    }
    for (_, _, driver) in lines {
        stop(driver).await;
    }
    assert_eq!(story.verdict(&broker, descriptors).await, 3);
}

/// Where in a create the line is cut, in bytes from its beginning in either direction.
const CUTS: [(Way, u64); 8] = [
    (Way::Back, 0),
    (Way::Back, 20),
    (Way::Back, 150),
    (Way::There, 0),
    (Way::There, 10),
    (Way::There, 30),
    (Way::There, 80),
    (Way::There, 200),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_whose_line_is_cut_anywhere_is_made_once_when_it_is_asked_for_again() {
    let story = Story::default();
    let broker = story.broker(&[]);
    let descriptors = broker.descriptors();
    let proxy = Proxy::to(broker.drivers).await;
    let driver = story.driver(proxy.address, "sim-0");
    let caller = story.caller(broker.channel().await);
    for (number, (way, bytes)) in CUTS.into_iter().enumerate() {
        broker.until_listed("there", |drivers| drivers.len() == 1).await;
        let [line] = proxy.connections().try_into().expect("one line");
        line.cut_after(way, bytes);
        let cut = Instant::now();
        insist(&caller, &Ask::new(Verb::Create, &format!("m-{number}"), PATIENCE)).await;
        println!("cut {way:?} after {bytes} bytes: done after {:?}", cut.elapsed());
    }
    stop(driver).await;
    assert_eq!(story.verdict(&broker, descriptors).await, CUTS.len());

    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for call in story.history().calls {
        if let End::Failed { delivery, .. } = call.endings[0].what {
            assert_ne!(delivery, Delivery::Untold, "the broker says how far it got");
            *told.entry(format!("{delivery:?}")).or_default() += 1;
        }
    }
    println!("callers were told: {told:?}");
}

/// A class whose machines never are.
const SPEC: &str = "hang: [create]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_callers_are_told_when_the_line_of_their_driver_breaks() {
    const CALLERS: u32 = 500;
    let story = Story::with(SPEC);
    let broker = story.broker(&[]);
    let descriptors = broker.descriptors();
    let proxy = Proxy::to(broker.drivers).await;
    let driver = story.driver_with(proxy.address, "sim-0", &["--capacity", "1000"]);
    broker.until_listed("there", |drivers| drivers.len() == 1).await;
    let caller = story.caller(broker.channel().await);
    let mut calls = JoinSet::new();
    for number in 0..CALLERS {
        let caller = caller.clone();
        let create = Ask::new(Verb::Create, &format!("m-{number}"), 4 * PATIENCE);
        calls.spawn(async move { ask(&caller, &create).await });
    }
    broker.until_listed("at work", |drivers| drivers[0].in_flight == CALLERS).await;

    let cut = Instant::now();
    proxy.reset();
    let called = tokio::time::timeout(PATIENCE, calls.join_all()).await.expect("all are told");
    println!("{CALLERS} callers told after {:?}", cut.elapsed());
    for call in called {
        let End::Failed { delivery, .. } = &call else { panic!("no success: {call:?}") };
        assert!(matches!(delivery, Delivery::Sent | Delivery::Accepted), "{call:?}");
    }
    story.kill(driver);
    assert_eq!(story.verdict(&broker, descriptors).await, 0);
}
