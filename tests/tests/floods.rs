//! Thousands of connections on which nobody says anything must not keep out who has something to say.

use std::{fs, net::SocketAddr, path::Path, process::Command, time::Duration};

use broker_tests::{
    Controller,
    catalog::catalog_text,
    process::{BrokerProcess, PATIENCE, Process, binary, channel},
};
use broker_tls::{Tls, client::connect};
use futures::{StreamExt as _, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    sync::Mutex,
    time::{Instant, sleep, timeout},
};
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};

const WANTED: usize = 10_000;
const AT_LEAST: usize = 2_000;
/// What a test needs besides.
const OTHERS: usize = 500;

/// Held by each test to its end: the files of this process are for one crowd at a time.
static ONE_CROWD: Mutex<()> = Mutex::const_new(());

/// As many as the system lets this process have.
fn how_many() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, most).expect("up to the maximum it may be raised");
    let files = limit.maximum.map_or(usize::MAX, |files| files as usize);
    let many = WANTED.min(files.saturating_sub(OTHERS));
    assert!(many >= AT_LEAST, "{files} open files are too few for this test");
    println!("{many} connections");
    many
}

/// Connections that say nothing, held for as long as they are wanted.
async fn crowd(address: SocketAddr, many: usize) -> Vec<TcpStream> {
    let connect = |_| async move {
        // The queue of the kernel may be full for a moment.
        timeout(PATIENCE, TcpStream::connect(address)).await.expect("in time").expect("connects")
    };
    stream::iter(0..many).map(connect).buffer_unordered(64).collect().await
}

fn catalog(folder: &Path) -> String {
    fs::create_dir(folder.join("classes")).expect("a folder");
    fs::write(folder.join("classes/all.yaml"), catalog_text("token")).expect("a file");
    format!("dir:{}", folder.join("classes").to_str().expect("UTF-8"))
}

fn file(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

fn serve<'a>(catalog: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let any = "127.0.0.1:0";
    [&["serve", "--catalog", catalog, "--listen", any, "--admin", any], more].concat()
}

fn driver(broker: &BrokerProcess, folder: &Path, more: &[&str]) -> Process {
    let (address, cloud) = (broker.drivers.to_string(), file(folder, "cloud"));
    let args = ["--broker", &address, "--cloud", &cloud];
    Process::start(Command::new(binary("sim-driver")).args(args).args(more))
}

/// A driver that is started now has made a machine for a controller that comes now.
async fn works(controller: &Controller) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let error = match controller.create("worker-0").await {
            Ok(made) => return assert!(made.provider_id.starts_with("sim:///"), "{made:?}"),
            Err(error) => error,
        };
        assert_eq!(error.code(), Code::Unavailable, "{error}");
        assert!(Instant::now() < give_up, "{error}");
        sleep(Duration::from_millis(50)).await;
    }
}

const NEWCOMERS: &str = "machine_broker_newcomers{port=\"grpc\"}";
const CROWDED_OUT: &str = "machine_broker_connection_refusals_total{reason=\"crowded_out\"}";
const IDLE: &str = "machine_broker_connection_refusals_total{reason=\"idle\"}";

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_keep_a_driver_out() {
    let _alone = ONE_CROWD.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let catalog = catalog(folder.path());
    let broker = BrokerProcess::start(&serve(&catalog, &[]));
    let many = how_many();
    let idle = crowd(broker.drivers, many).await;
    broker.until_metric(CROWDED_OUT, |gone| gone >= 500).await;

    let _driver = driver(&broker, folder.path(), &[]);
    works(&Controller::new(broker.channel().await)).await;
    // Those that were not crowded out go when their time is over.
    broker.until_metric(NEWCOMERS, |newcomers| newcomers == 0).await;
    broker.until_metric(IDLE, |idle| idle > 0).await;
    assert_eq!(idle.len(), many);
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_do_they_where_all_of_them_have_a_place() {
    let _alone = ONE_CROWD.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let catalog = catalog(folder.path());
    let flags = ["--max-newcomers", "20000", "--newcomer-time", "10m"];
    let broker = BrokerProcess::start(&serve(&catalog, &flags));
    let many = how_many();
    let idle = crowd(broker.drivers, many).await;
    broker.until_metric(NEWCOMERS, |newcomers| newcomers == many as u64).await;

    let _driver = driver(&broker, folder.path(), &[]);
    works(&Controller::new(broker.channel().await)).await;
    // They are all still there.
    broker.until_metric(NEWCOMERS, |newcomers| newcomers == many as u64).await;
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_with_tls_before_the_handshake_and_after() {
    let _alone = ONE_CROWD.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let catalog = catalog(folder.path());
    let made = Command::new(binary("machine-broker"))
        .args(["certs", "init", &file(folder.path(), "certs")])
        .output()
        .expect("it runs");
    assert!(made.status.success());
    let cert = |name: &str| file(folder.path(), &format!("certs/{name}"));
    let (crt, key, ca) = (cert("broker.crt"), cert("broker.key"), cert("ca.crt"));
    let policy = cert("policy.yaml");
    let tls = ["--tls-cert", &crt, "--tls-key", &key, "--client-ca", &ca, "--policy", &policy];
    let broker = BrokerProcess::start(&serve(&catalog, &tls));
    let many = how_many();
    let idle = crowd(broker.drivers, many).await;

    let dial = async |name: Option<&str>| -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", broker.drivers)).expect("a URL");
        let of = |end: &str| name.map(|name| cert(&format!("{name}.{end}")).into());
        let ca = Some(ca.clone().into());
        let tls = Tls { ca, cert: of("crt"), key: of("key"), server_name: None };
        connect(endpoint, Some(tls)).await.expect("a handshake")
    };
    // These are through it, and nobody was let in on them.
    let mut shaken = Vec::new();
    for _ in 0..200 {
        shaken.push(dial(None).await);
    }
    let (crt, key) = (cert("driver.crt"), cert("driver.key"));
    let _driver = driver(&broker, folder.path(), &["--ca", &ca, "--cert", &crt, "--key", &key]);
    works(&Controller::new(dial(Some("controller")).await)).await;
    // Not one of them is kept.
    for mut idle in idle {
        let closed = timeout(PATIENCE, idle.read(&mut [0])).await.expect("in time");
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    }
    drop(shaken);
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_where_there_are_fewer_open_files_than_connections() {
    let _alone = ONE_CROWD.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let catalog = catalog(folder.path());
    let broker = BrokerProcess::start_with_files(256, &serve(&catalog, &[]));
    how_many();
    let idle = crowd(broker.drivers, AT_LEAST).await;
    let also_idle = crowd(broker.admin, AT_LEAST).await;

    let _driver = driver(&broker, folder.path(), &[]);
    works(&Controller::new(channel(broker.drivers).await)).await;
    // The admin port answers, too.
    broker.until_metric(CROWDED_OUT, |gone| gone > 0).await;
    assert_eq!((idle.len(), also_idle.len()), (AT_LEAST, AT_LEAST));
}
