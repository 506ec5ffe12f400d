//! The API server goes away under load, and comes back.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use broker_proto::v1::{ClassRef, MachineRequest};
use broker_tests::{Controller, process::PATIENCE};
use futures::future::join_all;
use tokio::{
    task::JoinSet,
    time::{interval, sleep},
};
use tonic::{Request, Status};

use crate::{
    actors::{World, until},
    cluster::Cluster,
};

/// For how long it is away.
const AWAY: Duration = Duration::from_secs(60);
/// Machines that are made at once, and deleted again.
const AT_ONCE: usize = 10;
const EVERY: Duration = Duration::from_millis(250);

pub(super) async fn work_goes_on_while_the_api_server_is_away(cluster: &Cluster) {
    let world = World::new(cluster);
    world.secret("credentials", 7);
    world.class("small", "{secretRef: {name: credentials}}");
    world.secret("old", 5);
    world.class("old", "{secretRef: {name: old}}");
    let _driver = world.driver().await;
    world.create_patiently("worker", world.class_ref("small")).await;
    let load = Load::start(&world).await;

    cluster.kill_api_server();
    let away_since = Instant::now();
    let is_away = || world.brokerctl(&["status"]).contains("the API server cannot be reached for");
    until("it is noticed", is_away).await;
    let unknown = world.create("away", world.class_ref("made-meanwhile")).await.unwrap_err();
    assert!(unknown.message().contains("cannot be reached"), "{unknown:?}");
    // Long enough that every review of a token has to be asked for again, and cannot be.
    tokio::time::sleep_until((away_since + AWAY).into()).await;
    let age = world.metric(&world.broker, "machine_broker_catalog_age_seconds").await;
    let age = age.expect("there is one");
    assert!(age >= 45.0, "{age} s");
    assert!(age <= away_since.elapsed().as_secs_f64() + 10.0, "{age} s");
    until("the age is in the audit log", || world.audit().contains("catalogAgeMs")).await;
    let during = load.made();
    assert!(during >= 500, "only {during} machines in a minute");

    cluster.start_api_server();
    let back_since = Instant::now();
    // A broker that starts now reads versions that this API server has never seen.
    let other = world.another_broker();
    let _other_driver = world.start_driver_at(&other, "sim-1", &[]);
    world.class("made-meanwhile", "{secretRef: {name: credentials}}");
    world.secret("credentials", 11);
    until("in touch again", || !is_away()).await;
    world.create_patiently("back", world.class_ref("made-meanwhile")).await;
    let mut number = 0;
    loop {
        number += 1;
        let machine = format!("rotated-{number}");
        if world.create_patiently(&machine, world.class_ref("small")).await.user_data_bytes == 11 {
            break;
        }
        assert!(number < 1000, "the rotation was never noticed");
    }
    let give_up = Instant::now() + PATIENCE;
    while world.metric(&other, "machine_broker_catalog_secrets").await != Some(2.0) {
        assert!(Instant::now() < give_up, "the other broker never read the secrets");
        sleep(Duration::from_millis(100)).await;
    }
    let asked = requests(cluster);
    let seconds = back_since.elapsed().as_secs();
    println!("{during} machines in {AWAY:?} without the API server; {seconds} s after, {asked:?}");
    // It counts from its start. One watch each per broker, some of them tried more than once; and the reviews of
    // two tokens in a second each, of each broker, as --recheck has them, however many calls there are.
    for resource in ["simmachineclasses", "secrets", "drivers"] {
        let count = asked.get(resource).copied().unwrap_or(0);
        assert!((1..=40).contains(&count), "{count} of {resource}");
    }
    let reviews = asked.get("tokenreviews").copied().unwrap_or(0);
    assert!(reviews <= 10 + 8 * seconds, "{reviews} reviews in {seconds} s");

    let (made, failed) = load.stop().await;
    assert!(failed.is_empty(), "{} of {made} operations failed: {:?}", failed.len(), failed[0]);
}

/// What the API server was asked for since its start, by resource: what is over, and watches that are open.
/// Of ours, since `kubectl` neither lists nor watches here, and whoever writes is not counted.
fn requests(cluster: &Cluster) -> BTreeMap<String, u64> {
    let text = cluster.kubectl(&["get", "--raw=/metrics"]);
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let ended = line.starts_with("apiserver_request_total{");
        let open = line.starts_with("apiserver_longrunning_requests{");
        if !ended && !open {
            continue;
        }
        let (Some(resource), Some(verb)) = (label(line, "resource"), label(line, "verb")) else {
            continue;
        };
        let counts_here = match resource.as_str() {
            "simmachineclasses" | "drivers" => ["LIST", "WATCH"].contains(&verb.as_str()),
            "secrets" => ["GET", "LIST", "WATCH"].contains(&verb.as_str()),
            "tokenreviews" => verb == "POST",
            _ => false,
        };
        let Some(count) = line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok())
        else {
            continue;
        };
        if counts_here {
            *counts.entry(resource).or_default() += count;
        }
    }
    counts
}

/// A controller that makes machines and deletes them, at a steady pace.
struct Load {
    made: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    task: JoinSet<Vec<Status>>,
}

impl Load {
    async fn start(world: &World<'_>) -> Self {
        let controller = Controller::new(world.broker.channel().await);
        let class = world.class_ref("small");
        let token = fs::read_to_string(world.path("controller.token")).expect("a token");
        let (made, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let running = run(controller, class, token, Arc::clone(&made), Arc::clone(&stop));
        let mut task = JoinSet::new();
        task.spawn(running);
        Self { made, stop, task }
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// How many machines there were, and what failed.
    async fn stop(mut self) -> (usize, Vec<Status>) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.task.join_next().await.expect("one").expect("no panic");
        (self.made.load(Ordering::Relaxed), failed)
    }
}

async fn run(
    controller: Controller,
    class: ClassRef,
    token: String,
    made: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Vec<Status> {
    let request = |number: usize| {
        let (class, machine_name) = (Some(class.clone()), format!("load-{number}"));
        let request = MachineRequest { class, machine_name, ..MachineRequest::default() };
        let mut request = Request::new(request);
        let bearer = format!("Bearer {token}").parse().expect("a token is ASCII");
        request.metadata_mut().insert("authorization", bearer);
        request.set_timeout(PATIENCE);
        request
    };
    let (mut failed, mut number) = (Vec::new(), 0);
    let mut ticks = interval(EVERY);
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let batch = number..number + AT_ONCE;
        number = batch.end;
        let creates = batch.clone().map(|number| controller.create_with(request(number)));
        failed.extend(join_all(creates).await.into_iter().filter_map(Result::err));
        let deletes = batch.map(|number| {
            let (mut machines, request) = (controller.machines.clone(), request(number));
            async move { machines.delete_machine(request).await }
        });
        failed.extend(join_all(deletes).await.into_iter().filter_map(Result::err));
        made.fetch_add(AT_ONCE, Ordering::Relaxed);
    }
    failed
}
