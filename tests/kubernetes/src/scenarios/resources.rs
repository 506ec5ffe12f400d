//! What `kubectl` shows of drivers.

use std::{
    fs,
    time::{Duration, Instant},
};

use futures::future::join_all;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    actors::{API_VERSION, Beginning, DRIVER, KIND, World, until},
    cluster::{AUDIENCE, Cluster},
    manifests,
};

const DEFINITION: &str = "drivers.machinebroker.dev";
/// A driver that is stopped is soon suspect, and not soon given up.
const QUICK: [&str; 3] = ["--ping-every=500ms", "--suspect-after=2s", "--dead-after=60s"];

impl World<'_> {
    /// What `kubectl get drivers` prints, by its short name, with more words.
    fn shown(&self, words: &[&str]) -> String {
        let words = [&["get", "mbd", "--namespace", &self.namespace], words].concat();
        self.cluster.kubectl(&words)
    }

    async fn until_shown(&self, what: &str, right: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let is_so = || {
            last = self.shown(&[]);
            right(&last)
        };
        until(what, is_so).await;
        println!("{last}");
    }

    /// The object of the driver.
    fn object(&self) -> Value {
        let text = self.shown(&["sim-0", "--output=json"]);
        serde_json::from_str(&text).expect("an object")
    }

    /// The reasons of all events of the namespace, with what they say.
    fn events(&self) -> String {
        let columns = "custom-columns=REASON:.reason,ABOUT:.involvedObject.name,SAYS:.message";
        let words = ["get", "events", "--namespace", &self.namespace, "--output", columns];
        self.cluster.kubectl(&words)
    }

    async fn until_event(&self, reason: &str, says: &str) {
        let told = |line: &str| line.starts_with(reason) && line.contains(says);
        until(&format!("event {reason}"), || self.events().lines().any(told)).await;
    }
}

pub(super) async fn a_driver_is_shown_with_what_happens_to_it(cluster: &Cluster) {
    let world = World::begin(cluster, Beginning { args: &QUICK, ..Beginning::default() });
    world.class("small", "{}");
    let mut driver = world.driver().await;
    world
        .until_shown("the driver", |text| {
            let mut lines = text.lines();
            let (header, row) =
                (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
            let header: Vec<_> = header.split_whitespace().collect();
            let row: Vec<_> = row.split_whitespace().collect();
            header
                == [
                    "NAME",
                    "KINDS",
                    "VERSION",
                    "STATE",
                    "REPLICAS",
                    "IN-FLIGHT",
                    "LAST-HEARD",
                    "AGE",
                ]
                && row.len() == header.len()
                && row[..2] == ["sim-0", KIND]
                && row[3..6] == ["Ready", "1", "0"]
        })
        .await;
    let of = ["--namespace", &world.namespace];
    let wait = ["wait", "--for=condition=Ready", "driver/sim-0"];
    let waited = cluster.kubectl(&[&wait[..], &of].concat());
    assert_eq!(waited, "driver.machinebroker.dev/sim-0 condition met\n");
    println!("{}", world.shown(&["--output=wide"]));
    world.until_event("Registered", "sim-0").await;

    // One that says that it is the same is not let in while the first one lives.
    let second = world.start_driver(&["--kind", KIND, "--api-version", API_VERSION]);
    world.until_event("Rejected", "give each its own").await;
    drop(second);
    driver.signal("-STOP");
    world.until_shown("suspect", |text| text.contains("Suspect")).await;
    world.until_event("Suspect", "has not been heard of for too long").await;
    let ready = &world.object()["status"]["conditions"][0];
    assert_eq!((&ready["type"], &ready["status"]), (&"Ready".into(), &"False".into()), "{ready}");
    // Then it is.
    let second = world.start_driver(&["--kind", KIND, "--api-version", API_VERSION]);
    world.until_event("Takeover", "takes the place of session").await;
    driver.kill();
    world.until_shown("ready again", |text| text.contains("Ready")).await;
    let described = cluster.kubectl(&[&["describe", "driver", "sim-0"][..], &of].concat());
    for part in ["Registered", "Takeover", "Suspect", "machine-broker"] {
        assert!(described.contains(part), "no {part} in\n{described}");
    }
    println!("{}", cluster.kubectl(&[&["get", "events"][..], &of].concat()));

    drop(second);
    world.until_event("Lost", "the connection broke").await;
    until("no driver", || world.shown(&[]).is_empty()).await;
}

pub(super) async fn a_driver_of_two_brokers_has_two_sessions(cluster: &Cluster) {
    let world = World::new(cluster);
    let other = world.another_broker();
    let _driver = world
        .driver_of(&[
            "--kind",
            KIND,
            "--api-version",
            API_VERSION,
            &format!("--broker={}", other.drivers),
        ])
        .await;
    let replicas = || world.object()["status"]["sessions"].as_array().map_or(0, Vec::len);
    world.until_shown("a driver", |text| text.contains("sim-0")).await;
    until("two sessions", || replicas() == 2).await;
    let status = &world.object()["status"];
    assert_eq!(status["replicas"], 2, "{status}");
    // All write as one: nobody's name stays behind.
    let managers = world.shown(&["sim-0", "--show-managed-fields", "--output=json"]);
    let object: Value = serde_json::from_str(&managers).expect("an object");
    let managers = object["metadata"]["managedFields"].as_array().expect("some");
    assert_eq!(managers.len(), 1, "{managers:?}");
    assert_eq!(managers[0]["operation"], "Apply");
}

pub(super) async fn what_a_killed_broker_left_is_removed_by_another(cluster: &Cluster) {
    let world = World::new(cluster);
    let [first, mut second] = ["replica-0", "replica-1"].map(|name| world.replica(name));
    let token = cluster.token(&world.namespace, DRIVER, Some(AUDIENCE));
    fs::write(world.path("driver.token"), token).expect("a file");
    // It is told of one of them alone.
    let _driver = world.start_driver_at(&first, "sim-0", &[]);
    let names = || {
        let text = world.shown(&["--output=jsonpath={.items[*].status.sessions[*].replica}"]);
        text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    until("both see it", || names() == ["replica-0", "replica-1"]).await;
    let uid = world.object()["metadata"]["uid"].clone();
    second.process.kill();
    until("what it left is gone", || names() == ["replica-0"]).await;
    assert_eq!(world.object()["status"]["replicas"], 1);
    // Another one comes in its place, under another name.
    let _third = world.replica("replica-2");
    until("the new one sees it", || names() == ["replica-0", "replica-2"]).await;
    assert_eq!(world.object()["metadata"]["uid"], uid, "it was there all the time");
}

pub(super) async fn a_driver_that_idles_or_works_is_hardly_written(cluster: &Cluster) {
    let world = World::begin(cluster, Beginning { args: &QUICK, ..Beginning::default() });
    world.class("slow", "{createDelay: 2s}");
    let _driver = world.driver().await;
    world.create_patiently("first", world.class_ref("slow")).await;
    let version = || world.object()["metadata"]["resourceVersion"].clone();
    world.until_shown("at rest", |text| text.contains(" 0 ")).await;
    // Forty heartbeats, and not one write.
    let (before, started) = (version(), Instant::now());
    while started.elapsed() < Duration::from_secs(20) {
        assert!(world.brokerctl(&["drivers"]).contains("Ready"));
        assert_eq!(version(), before, "{}", world.object());
        sleep(Duration::from_millis(500)).await;
    }
    // Nobody else writes it and all of it counts, so the generation counts the writes.
    let writes = || world.object()["metadata"]["generation"].as_u64().expect("a number");
    let (before, started) = (writes(), Instant::now());
    let mut made = 0;
    while started.elapsed() < Duration::from_secs(20) {
        let names: Vec<_> = (made..made + 5).map(|number| format!("more-{number}")).collect();
        let creates = names.iter().map(|name| world.create(name, world.class_ref("slow")));
        join_all(creates).await.into_iter().for_each(|made| drop(made.expect("it works")));
        made += names.len();
    }
    let written = writes() - before;
    assert!(made >= 20 && written <= 2, "{written} writes for {made} machines");
}

pub(super) async fn drivers_are_shown_once_their_definition_is_installed(cluster: &Cluster) {
    let world = World::new(cluster);
    world.class("small", "{}");
    let _driver = world.driver().await;
    world.until_shown("a driver", |text| text.contains("sim-0")).await;
    cluster.kubectl(&["delete", "customresourcedefinition", DEFINITION]);
    let says = "drivers are not shown in the cluster: install manifests/crds";
    world.until_status(says, &["status"], |text| text.contains(says)).await;
    world.create_patiently("worker-0", world.class_ref("small")).await;
    manifests::install_definitions(cluster);
    world.until_shown("it is back", |text| text.contains("sim-0")).await;
    world.until_status("all well", &["status"], |text| !text.contains("not shown")).await;
    // And what somebody removed, as well.
    cluster.kubectl(&["delete", "driver", "sim-0", "--namespace", &world.namespace]);
    world.until_shown("it is back again", |text| text.contains("sim-0")).await;

    // Without the right to write them all else goes on, too.
    let of = ["--namespace", &world.namespace];
    cluster.kubectl(&[&["delete", "rolebinding", "broker"][..], &of].concat());
    cluster.kubectl(&[&["delete", "driver", "sim-0"][..], &of].concat());
    let says = "let the broker's service account do so";
    world.until_status(says, &["status"], |text| text.contains(says)).await;
    world.create_patiently("worker-1", world.class_ref("small")).await;
    world.install();
    world.until_shown("it may be shown", |text| text.contains("sim-0")).await;
}

pub(super) async fn a_kind_that_cannot_be_read_is_a_condition_of_its_driver(cluster: &Cluster) {
    let world = World::new(cluster);
    let _driver =
        world.driver_of(&["--kind=NoClass", "--api-version=e2e.machinebroker.dev/v1"]).await;
    let says = "the API server knows no NoClass (e2e.machinebroker.dev/v1)";
    until("a condition", || {
        let text = world.shown(&["--output=json"]);
        let drivers: Value = serde_json::from_str(&text).expect("a list");
        let conditions = drivers["items"][0]["status"]["conditions"].as_array().cloned();
        conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "ClassesRead"
                && condition["status"] == "False"
                && condition["message"].as_str().is_some_and(|message| message.contains(says))
        })
    })
    .await;
}
