//! A broker that has to stop while some of its peers stand still.

use broker_tests::{
    proxy::{Flow, Proxy, Way},
    story::{Load, Story, stop},
};
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_under_load_stops_on_time_beside_a_driver_and_a_line_that_stand_still() {
    let story = Story::default();
    // Nobody is given up for being silent, so that only its own clock ends it.
    let patient = ["--grace", "3s", "--suspect-after", "30m", "--dead-after", "60m"];
    let broker = story.broker(&patient);
    let descriptors = broker.descriptors();
    let address = broker.drivers.to_string();
    let proxy = Proxy::to(broker.drivers).await;
    let well = story.driver(&address, "well");
    let paused = story.driver(&address, "paused");
    let cut_off = story.driver(proxy.address, "cut-off");
    broker.until_listed("there", |drivers| drivers.len() == 3).await;
    let caller = story.caller(broker.channel().await);
    let load = Load::start(&caller, 12, false);
    load.makes(12).await;

    proxy.flow(Way::Both, Flow::Frozen);
    paused.signal("-STOP");
    let told = Instant::now();
    stop(broker.process).await;
    println!("stopped after {:?}, with a grace time of 3 s", told.elapsed());

    // The next one waits for those who were connected, and they can come.
    proxy.heal();
    paused.signal("-CONT");
    let broker = story.world.broker(&address, &["--settle", "10s"]);
    broker.until_listed("back", |drivers| drivers.len() == 3).await;
    load.makes(12).await;
    let made = load.stop().await;
    for driver in [well, paused, cut_off] {
        stop(driver).await;
    }
    assert_eq!(story.verdict(&broker, descriptors).await, made);
}
