//! Drivers are replaced one by one and brokers restarted, with real processes and under load.

use broker_tests::story::{Load, Story, stop};

/// Short, so that many are under way at any moment.
const SPEC: &str = "createDelay: 200ms";
const DRIVERS: usize = 3;
const CALLERS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drivers_are_replaced_one_by_one_under_load_and_no_operation_fails() {
    let story = Story::with(SPEC);
    let broker = story.broker(&[]);
    let descriptors = broker.descriptors();
    let start = |name: String| story.driver(broker.drivers, &name);
    let mut drivers: Vec<_> = (0..DRIVERS).map(|n| start(format!("old-{n}"))).collect();
    broker.until_listed("there", |listed| listed.len() == DRIVERS).await;
    let caller = story.caller(broker.channel().await);
    // Nobody tries again: whatever fails is a violation.
    let load = Load::start(&caller, CALLERS, true);

    for number in 0..DRIVERS {
        load.makes(CALLERS).await;
        // One more than there are to be, and then one less.
        drivers.push(start(format!("new-{number}")));
        let new = format!("new-{number}");
        let came = |listed: &[broker_proto::v1::Driver]| {
            listed.iter().any(|driver| driver.instance_id == new)
        };
        broker.until_listed("one more", came).await;
        let old = drivers.remove(0);
        stop(old).await;
    }
    load.makes(CALLERS).await;
    let made = load.stop().await;

    for driver in drivers {
        stop(driver).await;
    }
    assert_eq!(story.verdict(&broker, descriptors).await, made);
    println!("{made} machines made while {DRIVERS} drivers were replaced, none failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_is_restarted_under_load_and_nothing_is_lost_or_done_twice() {
    const RESTARTS: usize = 2;
    let story = Story::with(SPEC);
    let mut broker = story.broker(&[]);
    let descriptors = broker.descriptors();
    let address = broker.drivers.to_string();
    let drivers: Vec<_> =
        (0..DRIVERS).map(|n| story.driver(&address, &format!("sim-{n}"))).collect();
    broker.until_listed("there", |listed| listed.len() == DRIVERS).await;
    let caller = story.caller(broker.channel().await);
    let load = Load::start(&caller, CALLERS, false);

    for _ in 0..RESTARTS {
        load.makes(CALLERS).await;
        stop(broker.process).await;
        broker = story.world.broker(&address, &[]);
    }
    load.makes(CALLERS).await;
    let made = load.stop().await;

    for driver in drivers {
        stop(driver).await;
    }
    assert_eq!(story.verdict(&broker, descriptors).await, made);
    println!("{made} machines made while the broker was restarted {RESTARTS} times");
}
