//! A broker with its driver and its controller, each with the rights of a service account of its own.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use broker_proto::v1::{ClassRef, MachineRequest, MachineResponse};
use broker_tests::{
    Controller,
    process::{self, BrokerProcess, PATIENCE, Process, binary},
};
use serde_json::Value;
use sim_driver::{Cloud, Vm};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};
use tonic::{Request, Status};

use crate::{
    cluster::{AUDIENCE, Cluster},
    manifests::{self, Overlay},
    ports,
};

pub(crate) const API_VERSION: &str = "sim.machinebroker.dev/v1alpha1";
pub(crate) const KIND: &str = "SimMachineClass";
/// The account of the driver.
pub(crate) const DRIVER: &str = "sim-driver";

/// All that a scenario acts with, in a namespace of its own.
pub(crate) struct World<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) namespace: String,
    pub(crate) broker: BrokerProcess,
    /// What the broker was started with.
    args: Vec<String>,
    folder: tempfile::TempDir,
    overlay: Overlay,
    controller: String,
}

/// How a world begins, where it is not as usual.
#[derive(Default)]
pub(crate) struct Beginning {
    /// The broker gets no right to read the classes of the driver.
    pub(crate) no_rights: bool,
    /// More for the rule of the driver in the policy.
    pub(crate) driver_rule: &'static str,
    /// More for the broker.
    pub(crate) args: &'static [&'static str],
}

impl<'a> World<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        Self::begin(cluster, Beginning::default())
    }

    pub(crate) fn begin(cluster: &'a Cluster, beginning: Beginning) -> Self {
        let namespace = cluster.fresh_name();
        let folder = tempfile::tempdir().expect("a folder");
        let overlay = Overlay::new(&namespace, folder.path());
        manifests::install_definitions(cluster);
        overlay.apply(cluster);
        cluster.apply(&rights_for_oxen(&namespace));
        if beginning.no_rights {
            let binding = format!("machine-broker-sim-machine-classes-{namespace}");
            cluster.kubectl(&["delete", "clusterrolebinding", &binding]);
        }
        let policy = folder.path().join("policy.yaml");
        let account = |name: &str| format!("system:serviceaccount:{namespace}:{name}");
        let driver_rule = beginning.driver_rule;
        let rules = format!(
            "rules:\n\
             - who: {}\n  driver: {{kinds: ['*']{driver_rule}}}\n\
             - who: {}\n  controller: {{kinds: ['*']}}\n  operator: steer\n",
            account(DRIVER),
            account("controller"),
        );
        fs::write(&policy, rules).expect("a file");
        let token = cluster.token(&namespace, "broker", None);
        let kubeconfig = cluster.kubeconfig(&namespace, &token);
        let mut args = [
            "serve",
            "--listen=127.0.0.1:0",
            "--admin=127.0.0.1:0",
            "--settle=0s",
            "--recheck=2s",
            &format!("--catalog=kubernetes:{}", kubeconfig.display()),
            &format!("--driver-resources={namespace}"),
            &format!("--token-review-audience={AUDIENCE}"),
            &format!("--policy={}", policy.display()),
            &format!("--audit={}", folder.path().join("audit.jsonl").display()),
        ]
        .map(str::to_owned)
        .to_vec();
        args.extend(beginning.args.iter().map(|arg| (*arg).to_owned()));
        let broker = start_broker(&args);
        let controller = cluster.token(&namespace, "controller", Some(AUDIENCE));
        let world = Self { cluster, namespace, broker, args, folder, overlay, controller };
        fs::write(world.path("controller.token"), &world.controller).expect("a file");
        world
    }

    /// Applies the manifests again: whatever of them is gone is there again.
    pub(crate) fn install(&self) {
        self.overlay.apply(self.cluster);
    }

    /// What the manifests say.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.overlay.objects(self.cluster)
    }

    /// Another replica of the broker.
    pub(crate) fn another_broker(&self) -> BrokerProcess {
        start_broker(&self.args)
    }

    /// A replica of this name, with a Lease.
    pub(crate) fn replica(&self, name: &str) -> BrokerProcess {
        let address = format!("127.0.0.1:{}", ports::free());
        let others = self.args.iter().filter(|arg| !arg.starts_with("--listen=")).cloned();
        let its = [
            format!("--listen={address}"),
            format!("--advertise={address}"),
            format!("--replica={name}"),
            format!("--lease-namespace={}", self.namespace),
        ];
        start_broker(&others.chain(its).collect::<Vec<_>>())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The sim driver, once the broker has let it in.
    pub(crate) async fn driver(&self) -> Process {
        self.driver_of(&["--kind", KIND, "--api-version", API_VERSION]).await
    }

    pub(crate) async fn driver_of(&self, args: &[&str]) -> Process {
        let token = self.cluster.token(&self.namespace, DRIVER, Some(AUDIENCE));
        fs::write(self.path("driver.token"), token).expect("a file");
        let driver = self.start_driver(args);
        self.until_status("drivers", &["drivers"], |text| text.contains("Ready")).await;
        driver
    }

    /// The sim driver, with whatever token is in its file.
    pub(crate) fn start_driver(&self, args: &[&str]) -> Process {
        self.start_driver_at(&self.broker, "sim-0", args)
    }

    pub(crate) fn start_driver_at(
        &self,
        broker: &BrokerProcess,
        instance: &str,
        args: &[&str],
    ) -> Process {
        Process::start(
            Command::new(binary("sim-driver"))
                .args(args)
                .arg(format!("--broker={}", broker.drivers))
                .arg(format!("--instance-id={instance}"))
                .arg(format!("--cloud={}", self.path("cloud").display()))
                .arg(format!("--token-file={}", self.path("driver.token").display())),
        )
    }

    /// Writes a class of the sim driver.
    pub(crate) fn class(&self, name: &str, spec: &str) {
        self.cluster.apply(&format!(
            "apiVersion: {API_VERSION}\nkind: {KIND}\n\
             metadata: {{name: {name}, namespace: {}}}\nspec: {spec}\n",
            self.namespace
        ));
    }

    /// Writes a secret with so many bytes of user data.
    pub(crate) fn secret(&self, name: &str, user_data: usize) {
        self.secret_with(name, &format!("{{token: t, userData: {}}}", "u".repeat(user_data)));
    }

    pub(crate) fn secret_with(&self, name: &str, data: &str) {
        self.cluster.apply(&format!(
            "apiVersion: v1\nkind: Secret\n\
             metadata: {{name: {name}, namespace: {}}}\nstringData: {data}\n",
            self.namespace
        ));
    }

    pub(crate) fn class_ref(&self, class: &str) -> ClassRef {
        ClassRef {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            namespace: self.namespace.clone(),
            name: class.to_owned(),
            provider: String::new(),
        }
    }

    pub(crate) async fn create(
        &self,
        machine: &str,
        class: ClassRef,
    ) -> Result<MachineResponse, Status> {
        let controller = Controller::new(self.broker.channel().await);
        let request = self.request(machine, class, &self.controller);
        controller.create_with(request).await
    }

    /// Creates again and again until it works, as a controller does that is told that a class is not
    /// there, or not yet.
    pub(crate) async fn create_patiently(&self, machine: &str, class: ClassRef) -> Vm {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.create(machine, class.clone()).await {
                Ok(_) => return self.vm(machine).expect("what was created is there"),
                Err(status) if Instant::now() >= give_up => panic!("never created: {status:?}"),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    pub(crate) async fn delete(&self, machine: &str, class: ClassRef) -> Result<(), Status> {
        let controller = Controller::new(self.broker.channel().await);
        let request = self.request(machine, class, &self.controller);
        controller.machines.clone().delete_machine(request).await.map(drop)
    }

    pub(crate) fn request(
        &self,
        machine: &str,
        class: ClassRef,
        token: &str,
    ) -> Request<MachineRequest> {
        let mut request = Request::new(MachineRequest {
            class: Some(class),
            machine_name: machine.to_owned(),
            ..MachineRequest::default()
        });
        let bearer = format!("Bearer {token}").parse().expect("a token is ASCII");
        request.metadata_mut().insert("authorization", bearer);
        request.set_timeout(PATIENCE);
        request
    }

    /// The VM of a machine at the provider.
    pub(crate) fn vm(&self, machine: &str) -> Option<Vm> {
        let cloud = Cloud::open(self.path("cloud")).expect("a folder");
        let mut vms = cloud.all().expect("it can be read");
        vms.retain(|vm| vm.name == machine);
        assert!(vms.len() <= 1, "{machine} was made twice");
        vms.pop()
    }

    /// What an operator sees.
    pub(crate) fn brokerctl(&self, words: &[&str]) -> String {
        let output = Command::new(binary("brokerctl"))
            .args(words)
            .arg("--token-file")
            .arg(self.path("controller.token"))
            .env("BROKER_ADDRESS", self.broker.drivers.to_string())
            .output()
            .expect("brokerctl starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&output.stdout) + &text(&output.stderr)
    }

    /// Waits until an operator sees what is `right`.
    pub(crate) async fn until_status(
        &self,
        what: &str,
        words: &[&str],
        right: impl Fn(&str) -> bool,
    ) -> String {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let text = self.brokerctl(words);
            if right(&text) {
                return text;
            }
            assert!(
                Instant::now() < give_up,
                "never seen: {what}, but\n{text}\nand the broker says\n{}",
                self.broker.process.output()
            );
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// What a metric of a broker is now, for who may look.
    pub(crate) async fn metric(&self, broker: &BrokerProcess, name: &str) -> Option<f64> {
        let mut admin = TcpStream::connect(broker.admin).await.ok()?;
        let bearer = format!("authorization: Bearer {}", self.controller);
        let request = format!("GET /metrics HTTP/1.0\r\nhost: localhost\r\n{bearer}\r\n\r\n");
        admin.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        admin.read_to_string(&mut text).await.ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.parse().ok()
    }

    /// The lines of the audit log.
    pub(crate) fn audit(&self) -> String {
        fs::read_to_string(self.path("audit.jsonl")).expect("there is one")
    }
}

fn start_broker(args: &[String]) -> BrokerProcess {
    BrokerProcess::start(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Installs a CustomResourceDefinition and waits until its kind is served.
pub(crate) fn install_text(cluster: &Cluster, name: &str, yaml: &str) {
    cluster.apply(yaml);
    let resource = format!("customresourcedefinition/{name}");
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &resource]);
}

/// The broker may read a kind that only these scenarios have.
fn rights_for_oxen(namespace: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
         metadata: {{name: {namespace}-oxen}}\n\
         rules: [{{apiGroups: [e2e.machinebroker.dev], resources: [oxen], verbs: [list, watch]}}]\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n\
         metadata: {{name: {namespace}-oxen}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {namespace}-oxen}}\n\
         subjects: [{{kind: ServiceAccount, name: broker, namespace: {namespace}}}]\n"
    )
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + process::PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "never so: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}
