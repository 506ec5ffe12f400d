//! A broker is restarted, and a thousand drivers want to come back at once.

use std::time::Duration;

use broker_tests::{
    API_VERSION, KIND,
    process::{BrokerProcess, PATIENCE},
    story::Story,
};
use driver_client::{
    CancellationToken, Config, Driver, Error, Kind, ListedMachine, Machine, Operation, async_trait,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const DRIVERS: usize = 1_000;
/// Registrations in a second; five times as many at once.
const RATE: usize = 100;
const BURST: usize = 5 * RATE;

/// A driver that is only there.
struct Idle;

#[async_trait]
impl Driver for Idle {
    async fn create(&self, _: &Operation) -> Result<Machine, Error> {
        Err(Error::unavailable("it only registers"))
    }

    async fn delete(&self, _: &Operation) -> Result<(), Error> {
        Err(Error::unavailable("it only registers"))
    }

    async fn list(&self, _: &Operation) -> Result<Vec<ListedMachine>, Error> {
        Ok(Vec::new())
    }
}

/// Waits until all of them are there.
async fn until_all_are_there(broker: &BrokerProcess) {
    let give_up = Instant::now() + 3 * PATIENCE;
    loop {
        let there = broker.listed().await.len();
        if there == DRIVERS {
            return;
        }
        assert!(Instant::now() < give_up, "only {there} of {DRIVERS} are there");
        sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_drivers_come_back_after_a_restart_no_faster_than_they_may() {
    let story = Story::default();
    let flags = [
        "--registration-rate",
        "100",
        "--log",
        "warn,broker::server=info",
        "--identity-share",
        "1",
    ];
    let mut broker = story.broker(&flags);
    let address = broker.drivers.to_string();
    let shutdown = CancellationToken::new();
    let mut drivers = JoinSet::new();
    for number in 0..DRIVERS {
        let config = Config {
            addresses: vec![address.clone()],
            name: "idle".to_owned(),
            kinds: vec![Kind::new(API_VERSION, KIND)],
            instance_id: Some(format!("idle-{number}")),
            shutdown: shutdown.clone(),
            handle_signals: false,
            ..Config::default()
        };
        drivers.spawn(driver_client::run(config, Idle));
    }
    until_all_are_there(&broker).await;

    broker.process.kill();
    let began = Instant::now();
    broker = story.world.broker(&address, &flags);
    until_all_are_there(&broker).await;
    let took = began.elapsed();
    println!("{DRIVERS} drivers are back after {took:?}");
    // Not how fast it is, but how fast it must not be.
    let at_least = Duration::from_secs(((DRIVERS - BURST) / RATE) as u64);
    assert!(took >= at_least, "the limit was not kept: {took:?}");
    let refused = r#"machine_broker_beyond_bounds_total{what="registrations",of="broker"}"#;
    println!("refused meanwhile: {:?}", broker.metric(refused).await);

    shutdown.cancel();
    while let Some(ended) = drivers.join_next().await {
        ended.expect("no panic").expect("it leaves in good order");
    }
    broker.until_listed("gone", <[_]>::is_empty).await;
}
