//! A hundred kinds on one broker, and the cloud of one of them hangs.

use std::time::Duration;

use broker::catalog::Static;
use broker_proto::v1::MachineRequest;
use broker_tests::{API_VERSION, Controller, Hello, TestBroker, catalog, hello, kind};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

const KINDS: usize = 100;
/// What every operation takes in the clouds of the others.
const CLOUD: Duration = Duration::from_millis(50);
/// How many operations wait for the one that hangs.
const STUCK: usize = 5_000;

fn kind_name(number: usize) -> String {
    format!("Kind{number}MachineClass")
}

fn request(number: usize, machine: &str) -> MachineRequest {
    let class = Some(catalog::class(API_VERSION, &kind_name(number), "small"));
    MachineRequest { class, ..Controller::request(machine) }
}

/// The 99th percentile of a few creates of each of the other kinds, all at once.
async fn p99(controller: &Controller, round: usize) -> Duration {
    let calls = (0..KINDS - 1).flat_map(|number| (0..5).map(move |machine| (number, machine)));
    let mut times: Vec<_> = stream::iter(calls)
        .map(|(number, machine)| async move {
            let request = request(number, &format!("m-{round}-{machine}"));
            let began = Instant::now();
            controller.create_with(request).await.expect("its cloud is well");
            began.elapsed()
        })
        .buffer_unordered(KINDS * 5)
        .collect()
        .await;
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Time stands still while anything computes, so this is waiting alone: for the one that hangs, or for
/// whoever waits for it.
#[tokio::test(start_paused = true)]
async fn the_others_wait_no_longer_when_the_cloud_of_one_kind_hangs() {
    let classes: Vec<_> = (0..KINDS)
        .map(|number| {
            let kind = kind_name(number);
            format!("apiVersion: {API_VERSION}\nkind: {kind}\nmetadata: {{name: small}}\n")
        })
        .collect();
    let classes = Static::from_yaml(&classes.join("---\n")).expect("the catalog is right");
    let broker = TestBroker::of_catalog(classes);
    let mut well = Vec::new();
    let mut hangs = None;
    for number in 0..KINDS {
        let kinds = vec![kind(API_VERSION, &kind_name(number))];
        let hello = Hello { kinds, capacity: 16, ..hello(&format!("driver-{number}")) };
        let driver = broker.driver_with(hello).await;
        if number == KINDS - 1 {
            hangs = Some(driver);
        } else {
            well.push(driver.serve_in(CLOUD));
        }
    }
    let mut hangs = hangs.expect("the last one");
    // One connection for all callers, those of the kind that hangs included.
    let controller = broker.controller().await;
    let before = p99(&controller, 0).await;

    let stuck: Vec<_> = (0..STUCK)
        .map(|n| controller.creating_with(request(KINDS - 1, &format!("stuck-{n}"))))
        .collect();
    for operation in hangs.next_operations(16).await {
        hangs.accept(&operation);
    }
    broker.until_running(STUCK).await;
    let meanwhile = p99(&controller, 1).await;
    println!("p99 {before:?} before, {meanwhile:?} with {STUCK} operations of one kind stuck");
    assert!(meanwhile * 10 <= before * 11, "{meanwhile:?} is more than {before:?} and a tenth");

    drop(stuck);
    hangs.vanish();
    drop(well);
}
