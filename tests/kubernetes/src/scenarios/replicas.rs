//! Several replicas that know each other by their Leases.

use std::{
    collections::BTreeMap,
    fs,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use broker_proto::v1::MachineResponse;
use broker_tests::{
    Controller,
    process::{BrokerProcess, PATIENCE, Process, binary},
};
use futures::future::join_all;
use serde_json::Value;
use sim_driver::{Cloud, journal};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};
use tonic::Status;

use crate::{
    actors::{DRIVER, World, until},
    cluster::{AUDIENCE, Cluster},
    ports,
};

/// What the issue of a change of replicas may take.
const SOON: Duration = Duration::from_secs(30);
/// A Lease that is not renewed is good for so long.
const LEASE: Duration = Duration::from_secs(15);
const CALLERS: usize = 12;

/// Brokers in one namespace, each with a Lease.
struct Replicas<'a> {
    world: &'a World<'a>,
    kubeconfig: String,
}

impl<'a> Replicas<'a> {
    fn new(world: &'a World<'a>) -> Self {
        let cluster = world.cluster;
        for (account, file) in [(DRIVER, "driver.token"), ("controller", "controller.token")] {
            let token = cluster.token(&world.namespace, account, Some(AUDIENCE));
            fs::write(world.path(file), token).expect("a file");
        }
        let token = cluster.token(&world.namespace, "broker", None);
        let kubeconfig = cluster.kubeconfig(&format!("{}-replicas", world.namespace), &token);
        Self { world, kubeconfig: kubeconfig.display().to_string() }
    }

    fn start(&self, name: &str) -> BrokerProcess {
        let address = format!("127.0.0.1:{}", ports::free());
        self.start_at(name, &address, &address)
    }

    fn start_at(&self, name: &str, listen: &str, advertise: &str) -> BrokerProcess {
        BrokerProcess::start(&[
            "serve",
            &format!("--listen={listen}"),
            &format!("--advertise={advertise}"),
            &format!("--replica={name}"),
            &format!("--lease-namespace={}", self.world.namespace),
            "--admin=127.0.0.1:0",
            "--recheck=2s",
            &format!("--catalog=kubernetes:{}", self.kubeconfig),
            &format!("--token-review-audience={AUDIENCE}"),
            &format!("--policy={}", self.world.path("policy.yaml").display()),
        ])
    }

    /// A driver that was told of one replica.
    fn driver(&self, instance: &str, broker: &BrokerProcess) -> Process {
        let path = |name: &str| self.world.path(name).display().to_string();
        Process::start(
            Command::new(binary("sim-driver"))
                .arg(format!("--broker={}", broker.drivers))
                .arg(format!("--instance-id={instance}"))
                .arg(format!("--cloud={}", path("cloud")))
                .arg(format!("--journal={}", path("journal")))
                .arg(format!("--token-file={}", path("driver.token"))),
        )
    }

    fn brokerctl(&self, broker: &BrokerProcess, words: &[&str]) -> String {
        let output = Command::new(binary("brokerctl"))
            .args(words)
            .arg("--token-file")
            .arg(self.world.path("controller.token"))
            .env("BROKER_ADDRESS", broker.drivers.to_string())
            .output()
            .expect("brokerctl starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Whether a replica has each of these drivers once, and no other.
    fn has(&self, broker: &BrokerProcess, instances: &[&str]) -> bool {
        let text = self.brokerctl(broker, &["drivers", "-o", "json"]);
        let drivers: Value = serde_json::from_str(&text).unwrap_or_default();
        let mut found: Vec<&str> = drivers
            .as_array()
            .or_else(|| drivers["drivers"].as_array())
            .into_iter()
            .flatten()
            .filter(|driver| driver["state"].as_str().is_some_and(|state| state.contains("eady")))
            .filter_map(|driver| driver["instanceId"].as_str())
            .collect();
        found.sort_unstable();
        found == instances
    }

    /// Waits until all replicas have all drivers.
    async fn until_met(&self, brokers: &[&BrokerProcess], instances: &[&str]) {
        let began = Instant::now();
        for broker in brokers {
            let say = || {
                let listed = self.brokerctl(broker, &["drivers"]);
                format!("{listed}\n{}", broker.process.output())
            };
            while !self.has(broker, instances) {
                assert!(began.elapsed() < PATIENCE, "{instances:?} never came:\n{}", say());
                sleep(Duration::from_millis(200)).await;
            }
        }
    }

    /// The names of the Leases and the addresses in them.
    fn leases(&self) -> BTreeMap<String, String> {
        let path = "-o=jsonpath={range .items[*]}{.metadata.name} \
                    {.metadata.annotations.machinebroker\\.dev/address}{\"\\n\"}{end}";
        let words = ["get", "leases", "-n", &self.world.namespace, path];
        let text = self.world.cluster.kubectl(&words);
        let line = |line: &str| {
            let (name, address) = line.split_once(' ')?;
            Some((name.strip_prefix("machine-broker-")?.to_owned(), address.trim().to_owned()))
        };
        text.lines().filter_map(line).collect()
    }

    async fn create(
        &self,
        broker: std::net::SocketAddr,
        machine: &str,
    ) -> Result<MachineResponse, Status> {
        let token = fs::read_to_string(self.world.path("controller.token")).expect("a file");
        let request = self.world.request(machine, self.world.class_ref("small"), &token);
        let controller = Controller::new(broker_tests::process::channel(broker).await);
        controller.create_with(request).await
    }

    /// Creates until it works: a replica that has a driver may still be reading its classes.
    async fn create_patiently(&self, broker: &BrokerProcess, machine: &str) {
        self.create_somewhere(&Mutex::new(vec![broker.drivers]), machine).await;
    }

    /// Creates until it works, each time at the next replica, as a controller does.
    async fn create_somewhere(&self, places: &Mutex<Vec<std::net::SocketAddr>>, machine: &str) {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let give_up = Instant::now() + PATIENCE;
        loop {
            let place = {
                let places = places.lock().expect("no panic");
                places[TURN.fetch_add(1, Ordering::Relaxed) % places.len()]
            };
            match self.create(place, machine).await {
                Ok(_) => return,
                Err(status) if Instant::now() >= give_up => panic!("{machine}: {status:?}"),
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

async fn readyz(broker: &BrokerProcess) -> String {
    let mut admin = TcpStream::connect(broker.admin).await.expect("the port is open");
    let ask = b"GET /readyz HTTP/1.0\r\nhost: localhost\r\n\r\n";
    admin.write_all(ask).await.expect("it reads");
    let mut text = String::new();
    admin.read_to_string(&mut text).await.expect("it answers");
    text
}

async fn until_ready(broker: &BrokerProcess) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let answer = readyz(broker).await;
        if answer.starts_with("HTTP/1.0 200") {
            return;
        }
        assert!(Instant::now() < give_up, "never ready: {answer}");
        sleep(Duration::from_millis(50)).await;
    }
}

pub(super) async fn drivers_find_every_replica_from_one_address(cluster: &Cluster) {
    let world = World::new(cluster);
    world.class("small", "{}");
    let replicas = Replicas::new(&world);
    let mut brokers = vec![replicas.start("r-0"), replicas.start("r-1"), replicas.start("r-2")];
    let _drivers = [replicas.driver("sim-a", &brokers[0]), replicas.driver("sim-b", &brokers[1])];
    let began = Instant::now();
    let met = ["sim-a", "sim-b"];
    replicas.until_met(&brokers.iter().collect::<Vec<_>>(), &met).await;
    println!("  all replicas have all drivers after {:.1?}", began.elapsed());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let leases = replicas.leases();
    assert_eq!(leases.len(), 3, "{leases:?}");
    assert_eq!(leases["r-1"], brokers[1].drivers.to_string());
    for (number, broker) in brokers.iter().enumerate() {
        replicas.create_patiently(broker, &format!("m-{number}")).await;
    }

    // One that is added is ready when it has them, too.
    let added = replicas.start("r-3");
    until_ready(&added).await;
    assert!(replicas.has(&added, &met), "{}", replicas.brokerctl(&added, &["drivers"]));
    replicas.create(added.drivers, "m-3").await.expect("and serves");

    // One that stops takes its Lease with it.
    let mut stopping = brokers.remove(1);
    stopping.process.signal("-TERM");
    assert!(stopping.process.end().expect("it ends").success());
    let leases = replicas.leases();
    assert!(!leases.contains_key("r-1") && leases.len() == 3, "{leases:?}");
    replicas.until_met(&[&brokers[0], &brokers[1], &added], &met).await;
}

pub(super) async fn a_replica_that_is_killed_under_load_loses_nothing_and_makes_nothing_twice(
    cluster: &Cluster,
) {
    let world = World::new(cluster);
    world.class("small", "{createDelay: 150ms}");
    let replicas = Replicas::new(&world);
    let mut brokers = [replicas.start("r-0"), replicas.start("r-1"), replicas.start("r-2")];
    let _drivers = [replicas.driver("sim-a", &brokers[0]), replicas.driver("sim-b", &brokers[0])];
    let met = ["sim-a", "sim-b"];
    replicas.until_met(&brokers.iter().collect::<Vec<_>>(), &met).await;
    replicas.create_patiently(&brokers[0], "first").await;

    let places = Mutex::new(brokers.iter().map(|broker| broker.drivers).collect::<Vec<_>>());
    let (over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (replicas, places, over, made) = (&replicas, &places, &over, &made);
    let callers = join_all((0..CALLERS).map(|caller| async move {
        let mut number = 0;
        while !over.load(Ordering::Relaxed) {
            replicas.create_somewhere(places, &format!("m-{caller}-{number}")).await;
            number += 1;
            made.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let story = async {
        let more = async |count: usize| {
            let target = made.load(Ordering::Relaxed) + count;
            until("more machines", || made.load(Ordering::Relaxed) >= target).await;
        };
        more(60).await;
        // Callers go on asking it, and find nobody.
        brokers[1].process.kill();
        more(60).await;
        let added = replicas.start("r-3");
        until_ready(&added).await;
        places.lock().expect("no panic").push(added.drivers);
        more(60).await;
        // Long enough for its Lease to be over.
        let gone = Instant::now() + LEASE;
        until("the time of its Lease", || Instant::now() >= gone).await;
        more(60).await;
        replicas.until_met(&[&brokers[0], &brokers[2], &added], &met).await;
        over.store(true, Ordering::Relaxed);
        added
    };
    let (_, _added) = tokio::join!(callers, story);

    let made = made.load(Ordering::Relaxed) + 1;
    let cloud = Cloud::open(world.path("cloud")).expect("a folder");
    let mut names: Vec<_> =
        cloud.all().expect("it can be read").into_iter().map(|vm| vm.name).collect();
    let vms = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), vms, "a machine was made twice");
    assert_eq!(vms, made, "as many machines as creates that succeeded");
    let (executions, overlaps) = executions(&world);
    assert_eq!(overlaps, 0, "one machine was worked at by two at once");
    println!("  {made} machines, {} executions more than needed", executions - made);
}

/// How many creates drivers executed, and how often two at once for one machine.
fn executions(world: &World<'_>) -> (usize, usize) {
    let text = fs::read_to_string(world.path("journal")).expect("the journal can be read");
    let mut runs: BTreeMap<(u32, u64), (String, u64, u64)> = BTreeMap::new();
    for line in text.lines() {
        let line: journal::Line = serde_json::from_str(line).expect("a line of ours");
        match line.what {
            journal::What::Began { number, verb, machine, .. } if verb == "create" => {
                runs.insert((line.process, number), (machine, line.at, u64::MAX));
            }
            journal::What::Ended { number } => {
                if let Some(run) = runs.get_mut(&(line.process, number)) {
                    run.2 = line.at;
                }
            }
            _ => {}
        }
    }
    let mut machines: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for (machine, began, ended) in runs.values() {
        machines.entry(machine).or_default().push((*began, *ended));
    }
    let mut overlaps = 0;
    for times in machines.values_mut() {
        times.sort_unstable();
        overlaps += times.windows(2).filter(|pair| pair[1].0 < pair[0].1).count();
    }
    (runs.len(), overlaps)
}

pub(super) async fn replicas_stay_known_while_the_api_server_is_away(cluster: &Cluster) {
    let world = World::new(cluster);
    world.class("small", "{}");
    let replicas = Replicas::new(&world);
    let brokers = [replicas.start("r-0"), replicas.start("r-1")];
    let _first = replicas.driver("sim-a", &brokers[0]);
    let both = [&brokers[0], &brokers[1]];
    replicas.until_met(&both, &["sim-a"]).await;
    for (number, broker) in brokers.iter().enumerate() {
        replicas.create_patiently(broker, &format!("before-{number}")).await;
    }

    cluster.kill_api_server();
    let lost = Instant::now();
    let mut made = 0;
    // Longer than any Lease is good for.
    while lost.elapsed() < LEASE + Duration::from_secs(5) {
        for broker in &brokers {
            let name = format!("away-{made}");
            let created = replicas.create(broker.drivers, &name).await;
            created.unwrap_or_else(|status| panic!("{name}: {status:?}"));
            made += 1;
        }
        sleep(Duration::from_millis(100)).await;
    }
    // A driver that comes now is still told of both: its token was seen before.
    let _second = replicas.driver("sim-b", &brokers[1]);
    replicas.until_met(&both, &["sim-a", "sim-b"]).await;

    cluster.start_api_server();
    let says = "cannot tell the others that it is here";
    until("present again", || !replicas.brokerctl(&brokers[0], &["status"]).contains(says)).await;
    let added = replicas.start("r-2");
    replicas.until_met(&[&brokers[0], &brokers[1], &added], &["sim-a", "sim-b"]).await;
}

pub(super) async fn a_name_that_another_replica_has_is_not_fought_over(cluster: &Cluster) {
    let world = World::new(cluster);
    world.class("small", "{}");
    let replicas = Replicas::new(&world);
    let mut first = replicas.start("same");
    until("a Lease", || replicas.leases().contains_key("same")).await;
    let second = replicas.start("same");
    let says = "calls itself by the same name";
    until("a concern", || replicas.brokerctl(&second, &["status"]).contains(says)).await;
    assert_eq!(replicas.leases()["same"], first.drivers.to_string(), "it keeps its Lease");
    let _driver = replicas.driver("sim-a", &second);
    replicas.until_met(&[&second], &["sim-a"]).await;
    replicas.create_patiently(&second, "m").await;

    // Once the first one is gone, the name is free.
    first.process.kill();
    until("the Lease of the other", || {
        replicas.leases().get("same") == Some(&second.drivers.to_string())
    })
    .await;
    until("no concern", || !replicas.brokerctl(&second, &["status"]).contains(says)).await;
}
