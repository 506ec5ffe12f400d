//! What is left of the promises when processes are killed: nothing lost, nothing twice.

use std::{
    collections::HashMap,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use broker_proto::v1::{
    ListDriversRequest, MachineRequest, MachineResponse, registry_client::RegistryClient,
};
use broker_tests::{
    Controller,
    process::{self, BrokerProcess, PATIENCE, Process, binary},
};
use futures::{StreamExt as _, stream};
use sim_driver::Cloud;
use tokio::time::{Instant, sleep};

/// Long enough for a retry to come while the first execution is still at it.
const CLASS: &str = "
apiVersion: sim.machinebroker.dev/v1alpha1
kind: SimMachineClass
metadata: {name: small, namespace: default}
spec:
  createDelay: 600ms
  secretRef: {name: credentials}
---
apiVersion: v1
kind: Secret
metadata: {name: credentials, namespace: default}
stringData: {token: secret}
";
const CREATES: usize = 100;
const KILLS: usize = 3;

/// A folder with a catalog and a cloud.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("catalog")).expect("a folder");
        std::fs::write(folder.path().join("catalog/classes.yaml"), CLASS).expect("a file");
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    fn broker(&self, listen: &str) -> BrokerProcess {
        let catalog = format!("dir:{}", self.path("catalog"));
        BrokerProcess::start(&[
            "serve",
            "--listen",
            listen,
            "--admin",
            "127.0.0.1:0",
            "--catalog",
            &catalog,
        ])
    }

    fn driver(&self, broker: &str, instance: &str) -> Process {
        let cloud = self.path("cloud");
        let args = ["--cloud", &cloud, "--broker", broker, "--instance-id", instance];
        Process::start(Command::new(binary("sim-driver")).args(args))
    }

    /// What the cloud holds in the end.
    fn vms(&self) -> HashMap<String, Vec<String>> {
        let mut vms: HashMap<String, Vec<String>> = HashMap::new();
        let cloud = Cloud::open(Path::new(&self.path("cloud"))).expect("the cloud is there");
        for vm in cloud.all().expect("the cloud can be read") {
            vms.entry(vm.name).or_default().push(vm.id);
        }
        vms
    }
}

/// A caller that simply retries until it knows.
async fn create(controller: Controller, request: MachineRequest) -> MachineResponse {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match controller.create_with(request.clone()).await {
            Ok(machine) => return machine,
            Err(status) if Instant::now() > give_up => panic!("never learnt: {status:?}"),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Submits all creates, sixteen at once, and runs `kill` at even intervals of progress.
async fn creates_with_kills(
    controller: Controller,
    mut kill: impl FnMut(),
) -> HashMap<String, MachineResponse> {
    let done = Arc::new(AtomicUsize::new(0));
    let names = (0..CREATES).map(|number| format!("worker-{number}"));
    let mut answers = stream::iter(names)
        .map(|name| {
            let (controller, done) = (controller.clone(), Arc::clone(&done));
            async move {
                let machine = create(controller, Controller::request(&name)).await;
                done.fetch_add(1, Ordering::Relaxed);
                (name, machine)
            }
        })
        .buffer_unordered(16);
    let mut machines = HashMap::new();
    let mut kills = 0;
    while let Some((name, machine)) = answers.next().await {
        machines.insert(name, machine);
        if kills < KILLS && done.load(Ordering::Relaxed) > (kills + 1) * CREATES / (KILLS + 2) {
            kills += 1;
            kill();
        }
    }
    assert_eq!(kills, KILLS);
    machines
}

fn assert_each_once(world: &World, machines: &HashMap<String, MachineResponse>) {
    assert_eq!(machines.len(), CREATES);
    let vms = world.vms();
    assert_eq!(vms.len(), CREATES, "a VM for every machine");
    for (name, ids) in vms {
        let [id] = ids.as_slice() else { panic!("{name} has several VMs: {ids:?}") };
        let told = &machines[&name].provider_id;
        assert!(told.ends_with(id.as_str()), "{name}: told {told}, but the VM is {id}");
    }
}

#[tokio::test]
async fn killing_the_broker_again_and_again_makes_no_vm_twice_and_loses_none() {
    let world = World::new();
    let mut broker = world.broker("127.0.0.1:0");
    let address = broker.drivers.to_string();
    // Two of them, so that a retry could go to the wrong one.
    let _drivers = ["sim-0", "sim-1"].map(|instance| world.driver(&address, instance));
    let controller = Controller::new(broker.channel().await);

    let machines = creates_with_kills(controller, || {
        broker.process.kill();
        broker = world.broker(&address);
    })
    .await;

    assert_each_once(&world, &machines);
}

#[tokio::test]
async fn killing_the_driver_again_and_again_makes_no_vm_twice_and_loses_none() {
    let world = World::new();
    let broker = world.broker("127.0.0.1:0");
    let address = broker.drivers.to_string();
    let mut driver = world.driver(&address, "sim-0");
    let controller = Controller::new(broker.channel().await);

    let machines = creates_with_kills(controller, || {
        driver.kill();
        driver = world.driver(&address, "sim-0");
    })
    .await;

    assert_each_once(&world, &machines);
}

#[tokio::test]
async fn a_broker_that_is_killed_leaves_no_driver_program_behind() {
    let world = World::new();
    let catalog = format!("dir:{}", world.path("catalog"));
    let program = format!("{} --cloud {}", binary("sim-driver").display(), world.path("cloud"));
    let mut broker = BrokerProcess::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--catalog",
        &catalog,
        "--driver-command",
        &program,
    ]);
    let mut registry = RegistryClient::new(broker.channel().await);
    let give_up = Instant::now() + PATIENCE;
    loop {
        let listed = registry.list_drivers(ListDriversRequest::default()).await;
        if listed.is_ok_and(|listed| listed.into_inner().drivers.len() == 1) {
            break;
        }
        assert!(Instant::now() < give_up, "no driver came:\n{}", broker.process.output());
        sleep(Duration::from_millis(20)).await;
    }
    assert_ne!(processes_with(&world.path("cloud")), 0);

    broker.process.kill();

    let gone = process::until(|| (processes_with(&world.path("cloud")) == 0).then_some(()));
    assert!(gone.is_some(), "the driver program outlived the broker");
}

/// How many processes have `text` in their command line.
fn processes_with(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("a Linux");
    let lines =
        entries.flatten().filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}
