//! Who does not read what it asked for costs a bounded amount, and others nothing.

use std::time::Duration;

use broker_proto::v1::{
    WatchDriversRequest, driver_event::Event, registry_client::RegistryClient,
    submit_request::Operation,
};
use broker_tests::{
    Controller, Driver, Hello, TestBroker,
    catalog::{self, OTHER_API_VERSION, OTHER_KIND},
    hello, kind,
};
use tokio_stream::StreamExt as _;

#[tokio::test(start_paused = true)]
async fn a_controller_that_submits_and_does_not_read_is_read_no_more() {
    const SUBMITTED: u64 = 40_000;
    let broker = TestBroker::start();
    let driver = broker.driver_with(Hello { capacity: 20_000, ..hello("a") }).await.serve();
    let mut submitter = Controller::new(broker.narrow_channel().await).submit().await;
    for tag in 0..SUBMITTED {
        submitter.send(tag, Operation::GetStatus(Controller::request(&format!("w-{tag}"))));
    }
    // Virtual time passes only when nothing else can be done.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let executed = driver.served().len();
    assert!((1_000..20_000).contains(&executed), "{executed} were executed unread");

    let other = broker.controller().await;
    other.create("another").await.expect("others are served");
    for _ in 0..SUBMITTED {
        submitter.next().await.1.expect("all are answered once they are read");
    }
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_read_is_given_up_and_its_callers_are_told() {
    let broker = TestBroker::of_catalog(catalog::catalog());
    let (channel, line) = broker.line().await;
    let slow = Driver::welcomed(channel, Hello { capacity: 1_000, ..hello("slow") }).await;
    let kinds = vec![kind(OTHER_API_VERSION, OTHER_KIND)];
    let well = broker.driver_with(Hello { kinds, ..hello("well") }).await.serve();
    line.stop_reading();

    let controller = broker.controller().await;
    let calls: Vec<_> = (0..500).map(|n| controller.creating(&format!("w-{n}"))).collect();
    broker.until_running(500).await;
    let request = broker_proto::v1::MachineRequest {
        class: Some(catalog::class(OTHER_API_VERSION, OTHER_KIND, "other")),
        ..Controller::request("another")
    };
    controller.create_with(request).await.expect("another driver's callers are served");
    for call in calls {
        call.error().await;
    }
    broker.until_drivers(1).await;
    slow.vanish();
    well.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_not_read_is_not_queued_for() {
    const CHANGES: usize = 3_000;
    let broker = TestBroker::start();
    let mut registry = RegistryClient::new(broker.narrow_channel().await);
    let watch = registry.watch_drivers(WatchDriversRequest::default()).await.unwrap();
    let mut events = watch.into_inner();
    let channel = broker.channel().await;
    for n in 0..CHANGES {
        let driver = Driver::welcomed(channel.clone(), hello(&format!("driver-{n}"))).await;
        driver.half_close().await.ok();
        // Time for the watch to see each of them, if it were read.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let last = broker.driver("last").await;
    // What comes now is what was under way, and then how things are.
    let mut seen = 0;
    loop {
        let event = events.next().await.expect("it goes on").expect("it stands");
        seen += 1;
        if let Some(Event::Changed(driver)) = event.event
            && driver.instance_id == "last"
        {
            break;
        }
    }
    assert!(seen < 2 * CHANGES, "{seen} events were kept for it");
    last.vanish();
    broker.at_rest().await;
}
