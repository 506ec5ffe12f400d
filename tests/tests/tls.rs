//! TLS from end to end: drivers and operators with certificates, renewals under their feet, and what
//! people are told when something does not fit.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
    time::{Duration, SystemTime},
};

use broker::{
    auth,
    catalog::Static,
    server::{self, Broker, Plan, Settings},
    telemetry::LogFormat,
};
use broker_proto::v1::{
    GetDriverRequest, ListDriversRequest, PingDriverRequest, registry_client::RegistryClient,
};
use broker_tests::{
    API_VERSION, Controller, KIND,
    catalog::catalog_text,
    process::{BrokerProcess, Process, binary, until},
};
use broker_tls::{
    Server, Tls,
    client::{Failure, connect},
    issue::{Authority, Subject},
    server::Files,
};
use driver_client::{CancellationToken, Config, Dial, Kind, Pool};
use sim_driver::{Cloud, Sim};
use tokio::{sync::oneshot, task::JoinSet, time::sleep};
use tonic::transport::{Channel, Endpoint};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A folder with certificates.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).to_str().expect("UTF-8").to_owned()
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.file(name), content).expect("a file");
    }

    /// A CA of that name, whose certificate is in a file.
    fn authority(&self, name: &str) -> Authority {
        let authority = Authority::new(&Subject::new(name, DAY)).expect("a CA");
        self.write(&format!("{name}.crt"), &authority.certificate());
        authority
    }

    /// A certificate for a broker or a client on this host.
    fn issue(&self, authority: &Authority, name: &str, subject: &Subject) {
        let issued = authority.issue(subject).expect("a certificate");
        self.write(&format!("{name}.crt"), &issued.certificate);
        self.write(&format!("{name}.key"), &issued.key);
    }

    fn tls(&self, ca: &str, cert: Option<&str>) -> Tls {
        Tls {
            ca: Some(self.file(&format!("{ca}.crt"))),
            cert: cert.map(|cert| self.file(&format!("{cert}.crt"))),
            key: cert.map(|cert| self.file(&format!("{cert}.key"))),
            server_name: None,
        }
    }
}

fn here(name: &str) -> Subject {
    Subject::new(name, DAY).host("127.0.0.1").uri(format!("spiffe://machine-broker.dev/{name}"))
}

/// A broker in this process that serves TLS on a real port, and whose files are looked at when a test
/// says so.
struct Secured {
    folder: Folder,
    tls: Server,
    address: SocketAddr,
    tasks: JoinSet<()>,
}

impl Secured {
    /// With `broker.crt` and `broker.key`, and the clients of `ca.crt`.
    async fn start(folder: Folder) -> Self {
        let files = Files {
            cert: folder.file("broker.crt"),
            key: folder.file("broker.key"),
            client_ca: Some(folder.file("ca.crt")),
        };
        let tls = Server::open(files).expect("good files");
        let auth = auth::Settings { tls: Some(tls.clone()), ..auth::Settings::default() };
        let broker = Broker::new(Settings { auth, ..broker_tests::settings(Static::sample()) });
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let grace = Duration::from_secs(1);
        let plan = Plan {
            listen: any,
            admin: any,
            driver_commands: Vec::new(),
            log_format: LogFormat::Text,
            grace,
        };
        let (started, address) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let tell = |drivers, _| started.send(drivers).expect("the test waits for it");
            server::run(broker, plan, std::future::pending(), tell).await.expect("it serves");
        });
        Self { folder, tls, address: address.await.expect("it listens"), tasks }
    }

    /// Looks at the files as often as it takes, sooner than the broker would by itself.
    fn look(&self) {
        self.tls.look();
        self.tls.look();
    }

    async fn dial(&self, tls: Tls) -> Result<Channel, String> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("a URL");
        let failed = |error| Failure::in_chain(&error).expect("one of ours").to_string();
        connect(endpoint, Some(tls)).await.map_err(failed)
    }

    /// The sim driver with the certificate of that name.
    fn drive(&mut self, cert: &str) -> CancellationToken {
        self.drive_by(Arc::new(driver_client::Tcp), "sim-0", cert)
    }

    fn drive_by(&mut self, dial: Arc<dyn Dial>, instance: &str, cert: &str) -> CancellationToken {
        let cloud = Cloud::open(self.folder.file("cloud")).expect("a folder");
        let shutdown = CancellationToken::new();
        let config = Config {
            addresses: vec![self.address.to_string()],
            name: "sim".to_owned(),
            kinds: vec![Kind::new(API_VERSION, KIND)],
            instance_id: Some(instance.to_owned()),
            tls: self.folder.tls("ca", Some(cert)),
            dial,
            handle_signals: false,
            shutdown: shutdown.clone(),
            ..Config::default()
        };
        self.tasks.spawn(async move {
            driver_client::run(config, Sim::new(cloud)).await.expect("it is let in");
        });
        shutdown
    }
}

async fn sessions(channel: &Channel) -> Vec<String> {
    let mut registry = RegistryClient::new(channel.clone());
    let listed = registry.list_drivers(ListDriversRequest::default()).await;
    let drivers = listed.expect("drivers are listed").into_inner().drivers;
    drivers.into_iter().map(|driver| driver.session_id).collect()
}

/// Waits for a driver that is not the one with this session.
async fn session_other_than(channel: &Channel, session: &str) -> String {
    for _ in 0..3_000 {
        if let Some(found) = sessions(channel).await.into_iter().find(|other| other != session) {
            return found;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("no driver came");
}

/// Waits for the end of a session and says why it came.
async fn until_gone(channel: &Channel, session: &str) -> String {
    let request = || GetDriverRequest { driver: session.to_owned(), ..Default::default() };
    let mut registry = RegistryClient::new(channel.clone());
    for _ in 0..3_000 {
        let details = registry.get_driver(request()).await.expect("it is remembered").into_inner();
        let driver = details.driver.expect("the driver");
        if driver.gone_at.is_some() {
            return driver.state_reason;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the driver stays");
}

/// The driver answers on its stream.
async fn ping(channel: &Channel, session: &str) {
    let request = PingDriverRequest { driver: session.to_owned() };
    RegistryClient::new(channel.clone()).ping_driver(request).await.expect("it lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_of_one_process_share_a_connection_that_shows_their_certificate() {
    let folder = Folder::new();
    let ca = folder.authority("ca");
    for name in ["broker", "driver", "other", "operator"] {
        folder.issue(&ca, name, &here(name));
    }
    let mut broker = Secured::start(folder).await;
    let pool = Arc::new(Pool::new(1));
    let drivers = [("sim-0", "driver"), ("sim-1", "driver"), ("sim-2", "other")];
    for (instance, cert) in drivers {
        broker.drive_by(Arc::clone(&pool) as Arc<dyn Dial>, instance, cert);
    }
    let operator = broker.dial(broker.folder.tls("ca", Some("operator"))).await.expect("is let in");
    let mut registry = RegistryClient::new(operator);
    let mut listed = Vec::new();
    for _ in 0..3_000 {
        let all = registry.list_drivers(ListDriversRequest::default()).await;
        listed = all.expect("drivers are listed").into_inner().drivers;
        if listed.len() == drivers.len() {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    listed.sort_by(|one, other| one.instance_id.cmp(&other.instance_id));
    let [first, second, other] = listed.as_slice() else { panic!("not all came: {listed:?}") };
    assert_eq!(first.address, second.address);
    assert_ne!(first.address, other.address, "it shows another certificate");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_outlives_its_certificates_and_new_connections_get_the_new_ones() {
    let folder = Folder::new();
    let ca = folder.authority("ca");
    folder.issue(&ca, "broker", &here("broker"));
    folder.issue(&ca, "driver", &here("driver"));
    folder.issue(&ca, "operator", &here("operator"));
    fs::copy(folder.file("broker.crt"), folder.file("first.crt")).expect("a copy");
    fs::copy(folder.file("ca.crt"), folder.file("old.crt")).expect("a copy");
    let mut broker = Secured::start(folder).await;
    let stop = broker.drive("driver");
    let operator = broker.dial(broker.folder.tls("ca", Some("operator"))).await.expect("is let in");
    let session = session_other_than(&operator, "").await;
    let created = Controller::new(operator.clone()).create("worker-0").await.expect("a machine");
    assert!(created.provider_id.starts_with("sim:///"), "{created:?}");

    // The broker's own certificate is renewed.
    let first = broker.folder.tls("first", None);
    broker.dial(first.clone()).await.expect("its very certificate is trusted");
    broker.folder.issue(&ca, "broker", &here("broker"));
    broker.look();
    let told = broker.dial(first).await.expect_err("it has another one");
    assert!(told.starts_with("the broker's certificate is not signed by the CA in "), "{told}");
    broker.dial(broker.folder.tls("broker", None)).await.expect("the new one is served");
    ping(&operator, &session).await;

    // The CA of the clients changes: those who have a stream lose it, and are told why.
    let next = broker.folder.authority("ca");
    broker.folder.issue(&next, "broker", &here("broker"));
    broker.look();
    let no_longer = "the client certificate is no longer good: the certificate is not signed";
    let request = ListDriversRequest::default();
    let denied = RegistryClient::new(operator).list_drivers(request).await.expect_err("is old");
    assert!(denied.message().contains(no_longer), "{denied:?}");
    let told = broker.dial(broker.folder.tls("ca", Some("operator"))).await.expect_err("is old");
    let unknown = "the broker does not know the CA that signed the certificate in ";
    assert!(told.starts_with(unknown) && told.ends_with("--client-ca"), "{told}");
    let told = broker.dial(broker.folder.tls("old", None)).await.expect_err("has the old CA");
    assert!(told.starts_with("the broker's certificate is not signed by the CA in "), "{told}");

    // The driver's files are renewed, too, and used for its next session.
    broker.folder.issue(&next, "driver", &here("driver"));
    broker.folder.issue(&next, "operator", &here("operator"));
    let new_operator = broker.dial(broker.folder.tls("ca", Some("operator"))).await;
    let new_operator = new_operator.expect("is let in with the new one");
    let why = until_gone(&new_operator, &session).await;
    assert!(why.contains(no_longer), "{why}");
    let returned = session_other_than(&new_operator, &session).await;
    ping(&new_operator, &returned).await;
    stop.cancel();
}

fn brokerctl(address: SocketAddr, args: &[&str]) -> Output {
    Command::new(binary("brokerctl"))
        .arg("--broker")
        .arg(address.to_string())
        .args(args)
        .output()
        .expect("brokerctl runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// A real broker that serves what `certs init` made, with a child driver.
fn real(folder: &Folder, more: &[&str]) -> BrokerProcess {
    let made = Command::new(binary("machine-broker"))
        .args(["certs", "init", &folder.path("certs"), "--name", "broker.example"])
        .output()
        .expect("it runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stdout).contains("NOT FOR PRODUCTION"));
    fs::create_dir(folder.file("classes")).expect("a folder");
    folder.write("classes/all.yaml", &catalog_text("token"));
    let catalog = format!("dir:{}", folder.path("classes"));
    let cert = |name: &str| folder.path(&format!("certs/{name}"));
    let (crt, key, ca) = (cert("broker.crt"), cert("broker.key"), cert("ca.crt"));
    let any = "127.0.0.1:0";
    let args = ["serve", "--catalog", &catalog, "--listen", any, "--admin", any];
    let tls = ["--tls-cert", &crt, "--tls-key", &key, "--client-ca", &ca];
    let policy = ["--policy", &cert("policy.yaml")];
    BrokerProcess::start(&[&args[..], &tls, &policy, more].concat())
}

/// The flags of a client, with the files that `certs init` made.
fn flags(folder: &Folder, name: &str) -> Vec<String> {
    let file = |end: &str| folder.path(&format!("certs/{end}"));
    let (cert, key) = (file(&format!("{name}.crt")), file(&format!("{name}.key")));
    ["--ca", &file("ca.crt"), "--cert", &cert, "--key", &key].map(str::to_owned).into()
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn what_certs_init_makes_works_from_end_to_end() {
    let folder = Folder::new();
    let broker = real(&folder, &[]);
    let _driver = Process::start(
        Command::new(binary("sim-driver"))
            .args(["--broker", &broker.drivers.to_string(), "--cloud", &folder.path("cloud")])
            .args(flags(&folder, "driver")),
    );
    let (operator, controller) = (flags(&folder, "operator"), flags(&folder, "controller"));
    let create = ["machines", "create", "w-0", "--kind", KIND, "--class", "small", "--wait"];
    let refused = brokerctl(broker.drivers, &[&strs(&operator)[..], &create].concat());
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("may not act as controller")
    );
    let created = brokerctl(broker.drivers, &[&strs(&controller)[..], &create].concat());
    assert!(created.status.success(), "{}", text(&created.stderr));
    assert!(text(&created.stdout).contains("sim:///"), "{}", text(&created.stdout));

    // The same from a context.
    let config = ["--config", &folder.path("contexts.yaml")];
    let address = format!("https://{}", broker.drivers);
    let set = ["contexts", "set", "test", "--address", &address];
    let set = [&config[..], &set, &strs(&operator)].concat();
    let run = |args: &[&str]| Command::new(binary("brokerctl")).args(args).output().expect("runs");
    let done = run(&set);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let listed = run(&[&config[..], &["drivers", "--no-headers"]].concat());
    assert!(text(&listed.stdout).contains(KIND), "{}", text(&listed.stderr));

    // A second time it keeps what is there.
    let init = |more: &[&str]| {
        let mut init = Command::new(binary("machine-broker"));
        init.args(["certs", "init", &folder.path("certs")]).args(more).output().expect("it runs")
    };
    let again = init(&[]);
    assert!(!again.status.success() && text(&again.stderr).contains("--force"));
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |name: &str| {
        fs::metadata(folder.file(name)).expect("is there").permissions().mode() & 0o777
    };
    assert_eq!(mode("certs"), 0o700);
    for name in ["ca", "broker", "driver", "controller", "operator"] {
        assert_eq!(mode(&format!("certs/{name}.key")), 0o600);
        let pem = fs::read_to_string(folder.file(&format!("certs/{name}.crt"))).expect("a file");
        assert!(pem.lines().next().is_some_and(|line| line.ends_with("NOT FOR PRODUCTION.")));
    }

    // New ones are in force without a restart: the operator's new ones are of the new CA.
    assert!(init(&["--force"]).status.success());
    broker.process.line("a reload", |line| line.contains("TLS files read again").then_some(()));
    let listed = until(|| {
        let listed = brokerctl(broker.drivers, &[&strs(&operator)[..], &["drivers"]].concat());
        listed.status.success().then_some(())
    });
    assert!(listed.is_some(), "{}", broker.process.output());
}

#[test]
fn a_driver_that_the_broker_starts_dials_with_tls() {
    let folder = Folder::new();
    let sim = binary("sim-driver");
    let child = format!("{} --cloud {}", sim.display(), folder.path("cloud"));
    let broker = real(&folder, &["--driver-command", &child]);
    broker.process.line("a session", |line| line.contains("session open").then_some(()));
}

#[test]
fn people_are_told_what_does_not_fit_and_what_to_do() {
    let folder = Folder::new();
    let broker = real(&folder, &[]);
    let plain = BrokerProcess::start(&["dev", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let other = folder.authority("other");
    folder.issue(&other, "stranger", &here("stranger"));
    let now = SystemTime::now();
    let past = Subject { not_before: now - 2 * DAY, not_after: now - DAY, ..here("late") };
    folder.issue(&other, "late", &past);

    // Where, with which flags, and what is told. @ stands for the folder.
    let (tls, ca) = (broker.drivers, "--ca @/certs/ca.crt");
    for (address, args, exit, parts) in [
        (tls, String::new(), 3, " wants TLS: say https://|, with --ca"),
        (tls, "--server-name localhost".to_owned(), 2, "TLS needs --ca FILE"),
        (plain.drivers, ca.to_owned(), 3, " speaks no TLS: say http://"),
        (tls, "--ca @/other.crt".to_owned(), 3, "is not signed by the CA in |other.crt"),
        (
            tls,
            format!("{ca} --server-name x.example"),
            3,
            "for localhost, 127.0.0.1, ::1, broker.example, not for x.example|--server-name",
        ),
        (
            tls,
            format!("{ca} --cert @/stranger.crt --key @/stranger.key"),
            3,
            "does not know the CA that signed the certificate in |stranger.crt|--client-ca",
        ),
        (
            tls,
            format!("{ca} --cert @/late.crt --key @/late.key"),
            2,
            "the certificate in |late.crt expired at 20|renew it",
        ),
        (
            tls,
            format!("{ca} --cert @/late.crt --key @/stranger.key"),
            2,
            "the key in |stranger.key does not belong to the certificate in |late.crt",
        ),
        (broker.admin, ca.to_owned(), 3, "no gRPC: is it the --admin address?"),
    ] {
        let args = args.replace('@', &folder.path(""));
        let words: Vec<&str> = args.split_whitespace().chain(["drivers"]).collect();
        let output = brokerctl(address, &words);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{args}: {told}");
        assert!(parts.split('|').all(|part| told.contains(part)), "{args}: {told}");
    }
    // A driver says the same and goes on trying; one that cannot work says so and ends.
    for (args, part) in [
        ("", " wants TLS: say https://"),
        ("--ca @/other.crt", "the broker's certificate is not signed by the CA in"),
        ("--cert @/late.crt", "wrong configuration: TLS needs --ca FILE"),
    ] {
        let args = args.replace('@', &folder.path(""));
        let mut sim = Command::new(binary("sim-driver"));
        sim.args(["--broker", &tls.to_string(), "--cloud", &folder.path("cloud")]);
        let sim = Process::start(sim.args(args.split_whitespace()));
        sim.line(part, |line| line.contains(part).then_some(()));
    }
    // The broker's side of it.
    for part in [
        "why=the peer speaks no TLS (plain HTTP/2?)",
        "why=the peer: the certificate is not signed by a CA in",
        "why=the peer refused our certificate (UnknownCA)",
    ] {
        broker.process.line(part, |line| line.contains(part).then_some(()));
    }
}
