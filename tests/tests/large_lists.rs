//! Answers so large that heartbeats have to make their way among them.

use std::time::Duration;

use broker_proto::v1::DriverState;
use broker_tests::{
    Driver, TestBroker, hello, page,
    process::PATIENCE,
    proxy::{Flow, Proxy, Way},
    story::{Story, stop},
};
use sim_driver::{Owner, Vm};
use tokio::time::{Instant, sleep, timeout};

/// In doubt sooner than the line is through, and late enough for a machine that is busy otherwise.
const PATIENT: &[&str] = &["--ping-every", "500ms", "--suspect-after", "6s", "--dead-after", "15s"];

#[tokio::test(start_paused = true)]
async fn large_lists_for_a_minute_make_nobody_suspect() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = Driver::welcomed(broker.channel().await, hello("a")).await;
    let names: Vec<_> =
        (0..1_000).map(|number| format!("a-machine-with-a-name-{number}")).collect();
    let began = Instant::now();
    let mut lists = 0;
    while began.elapsed() < Duration::from_secs(61) {
        let list = controller.listing();
        let operation = driver.take().await;
        for _ in 0..20 {
            driver.answer(&operation, page(names.iter().map(String::as_str), true));
            sleep(Duration::from_millis(100)).await;
            assert_eq!(broker.drivers().await[0].state(), DriverState::Ready);
        }
        driver.answer(&operation, page([], false));
        assert_eq!(list.answer().await.expect("the list").len(), 20_000);
        lists += 1;
    }
    assert!(lists > 20, "{lists}");
    let listed = broker.drivers().await;
    assert_eq!((listed.len(), &listed[0].session_id), (1, &driver.session));
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_is_full_of_lists_all_the_time_makes_nobody_suspect() {
    const VMS: usize = 2_000;
    const LISTS: usize = 30;
    let story = Story::default();
    let broker = story.broker(PATIENT);
    let proxy = Proxy::to(broker.drivers).await;
    // Full for longer than a silent driver has: the lists alone are more than four megabytes.
    proxy.flow(Way::There, Flow::Slow { bytes_per_second: 400_000 });
    let owner = Owner {
        api_version: broker_tests::API_VERSION.to_owned(),
        kind: broker_tests::KIND.to_owned(),
        namespace: "default".to_owned(),
        class: broker_tests::CLASS.to_owned(),
    };
    for number in 0..VMS {
        let name = format!("a-machine-with-a-name-that-is-rather-long-{number}");
        story.world.cloud().put(&Vm::new(&name, owner.clone())).expect("a VM");
    }
    let driver = story.driver(proxy.address, "sim-0");
    let first = broker.until_listed("there", |drivers| drivers.len() == 1).await.remove(0);
    let controller = broker_tests::Controller::new(broker.channel().await);
    let lists: Vec<_> = (0..LISTS).map(|_| controller.listing()).collect();
    let began = Instant::now();
    for list in lists {
        let listed = timeout(2 * PATIENCE, list.answer()).await.expect("in time");
        assert_eq!(listed.expect("the list").len(), VMS);
        let driver = broker.listed().await.remove(0);
        assert_eq!(driver.session_id, first.session_id, "it was given up meanwhile");
        assert_eq!(driver.state(), DriverState::Ready, "{}", driver.state_reason);
    }
    println!("{LISTS} lists of {VMS} took {:?} of a slow line", began.elapsed());
    stop(driver).await;
}
