//! The whole system in one process: a broker, and actors with verbs that act on it.
//!
//! Everything speaks real gRPC over connections in memory, so there are no ports and time can be
//! paused. `Driver` is the wire itself, frame by frame, so that a test decides what a driver does
//! and when; `process` starts the real binaries instead.

#![expect(
    clippy::disallowed_methods,
    reason = "a test's runtime ends with the test, and with it every task and queue of the harness"
)]

mod admin;
pub mod caller;
pub mod catalog;
pub mod chance;
mod controller;
mod driver;
pub mod fleet;
pub mod guarded;
pub mod history;
pub mod peers;
pub mod process;
pub mod proxy;
pub mod story;
mod submitter;
mod wire;
pub mod witness;
pub mod world;

use std::{
    fs,
    future::ready,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use broker::{
    audit::Audit,
    auth,
    bounds::Limits,
    catalog::{Catalog, Static},
    grpc::{Admission, Connection, Peer},
    registry::{Policy, Seating},
    server::{Broker, Settings},
};
use broker_proto::v1::{
    Driver as ListedDriver, ListDriversRequest, ListOperationsRequest, Operation,
    registry_client::RegistryClient,
};
use broker_tls::{
    PeerCertificate,
    issue::{Authority, Subject},
};
use tokio::{
    sync::{OnceCell, mpsc},
    task::JoinHandle,
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use self::wire::Wire;
pub use self::{
    admin::{Admin, Answer},
    controller::{Call, Controller, delivery, fact, reason, retry_after},
    driver::{Driver, Hello, Service, Serving, failed, hello, kind, machine, page},
    submitter::{Submitter, submission},
    wire::Line,
};

pub const KIND: &str = "SimMachineClass";
pub const API_VERSION: &str = "sim.machinebroker.dev/v1alpha1";
pub const CLASS: &str = "small";

/// After so long nothing will come any more. Paused time gets there at once.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A broker of a test's own. Dropping it ends it like a kill.
pub struct TestBroker {
    pub broker: Broker,
    dial: mpsc::UnboundedSender<io::Result<Connection<Wire>>>,
    dialled: AtomicUsize,
    registry: OnceCell<RegistryClient<Channel>>,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl TestBroker {
    /// With the sample catalog and default settings, but for [`settled`].
    pub fn start() -> Self {
        Self::of_catalog(Static::sample())
    }

    /// That has just started, perhaps not for the first time: it waits for drivers that may return.
    pub fn restarted(policy: Policy) -> Self {
        let seating = Seating { default: policy, ..Seating::default() };
        Self::with(Admission::default(), seating, Static::sample())
    }

    /// Whose drivers share every kind by this policy.
    pub fn seated(policy: Policy) -> Self {
        let seating = Seating { default: policy, ..Seating::default() };
        Self::with(settled(), seating, Static::sample())
    }

    /// Where so many operations may wait for a driver beyond its capacity.
    pub fn queueing(queue: usize) -> Self {
        let admission = Admission { queue, ..settled() };
        Self::with(admission, Seating::default(), Static::sample())
    }

    pub fn of_catalog(catalog: Arc<dyn Catalog>) -> Self {
        Self::with(settled(), Seating::default(), catalog)
    }

    fn with(admission: Admission, seating: Seating, catalog: Arc<dyn Catalog>) -> Self {
        Self::serving(Broker::new(Settings { admission, seating, ..settings(catalog) }))
    }

    /// Whose audit log is this one.
    pub fn audited(catalog: Arc<dyn Catalog>, audit: Audit) -> Self {
        Self::serving(Broker::new(Settings { audit, ..settings(catalog) }))
    }

    /// Whose callers may do what this policy says. It is read from `folder`, again and again.
    pub fn guarded(folder: &Path, policy: &str, catalog: Arc<dyn Catalog>, audit: Audit) -> Self {
        Self::guarded_within(folder, policy, Settings { audit, ..settings(catalog) })
    }

    /// The same with other settings.
    pub fn guarded_within(folder: &Path, policy: &str, settings: Settings) -> Self {
        let file = folder.join("policy.yaml");
        fs::write(&file, policy).expect("the policy is written");
        let (files, policy, _) = auth::Files::open(Some(&file), None).expect("the policy is right");
        let auth = auth::Settings { policy, ..auth::Settings::default() };
        let broker = Broker::new(Settings { auth, ..settings });
        broker.follow(files);
        Self::serving(broker)
    }

    /// Where no one may take more than this.
    pub fn within(limits: Limits) -> Self {
        Self::serving(Broker::new(Settings { limits, ..settings(Static::sample()) }))
    }

    /// A broker that was made otherwise.
    pub fn serving(broker: Broker) -> Self {
        let (dial, dialled) = mpsc::unbounded_channel();
        let serve = broker.clone();
        let serving =
            tokio::spawn(async move { serve.serve(UnboundedReceiverStream::new(dialled)).await });
        let (dialled, registry) = (AtomicUsize::new(1), OnceCell::new());
        Self { broker, dial, dialled, registry, serving }
    }

    /// A fresh connection, as a new process would make one.
    pub async fn channel(&self) -> Channel {
        self.line().await.0
    }

    /// A fresh connection whose other end has a certificate with this URI.
    pub async fn channel_of(&self, uri: &str) -> Channel {
        self.connect(Some(Arc::new(certificate(uri)))).await.0
    }

    /// A fresh connection, and the hand that can cut it without either end hearing of it.
    pub async fn line(&self) -> (Channel, Line) {
        self.connect(None).await
    }

    /// A fresh connection of somebody who takes in no more than 64 KiB before it has read them.
    pub async fn narrow_channel(&self) -> Channel {
        const NARROW: u32 = 64 * 1024;
        let endpoint = Endpoint::from_static("http://in-memory")
            .initial_stream_window_size(NARROW)
            .initial_connection_window_size(NARROW);
        self.connect_with(endpoint, None).await.0
    }

    async fn connect(&self, certificate: Option<Arc<PeerCertificate>>) -> (Channel, Line) {
        self.connect_with(Endpoint::from_static("http://in-memory"), certificate).await
    }

    async fn connect_with(
        &self,
        endpoint: Endpoint,
        certificate: Option<Arc<PeerCertificate>>,
    ) -> (Channel, Line) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (theirs, line) = Wire::new(theirs);
        let address = format!("memory:{}", self.dialled.fetch_add(1, Ordering::Relaxed));
        let peer = Peer { certificate, ..Peer::new(address) };
        let connection = Connection::of(theirs, peer);
        self.dial.send(Ok(connection)).expect("broker is serving");
        let mut ours = Some(hyper_util::rt::TokioIo::new(ours));
        let channel = endpoint
            .connect_with_connector(service_fn(move |_| {
                ready(ours.take().ok_or_else(|| io::Error::other("this connection is gone")))
            }))
            .await
            .expect("connects in memory");
        (channel, line)
    }

    /// A native driver of the sample kind that was let in.
    pub async fn driver(&self, instance: &str) -> Driver {
        self.driver_with(hello(instance)).await
    }

    pub async fn driver_with(&self, hello: Hello) -> Driver {
        Driver::welcomed(self.channel().await, hello).await
    }

    /// A driver of 2018 of the sample kind.
    pub async fn historic(&self) -> Driver {
        let before = self.drivers().await.len();
        let (group, _) = API_VERSION.split_once('/').expect("group/version");
        let driver = Driver::historic(self.channel().await, Service::Infra, KIND, group).await;
        // It is told nothing, so only the list shows that it was let in.
        self.until_drivers(before + 1).await;
        driver
    }

    pub async fn controller(&self) -> Controller {
        Controller::new(self.channel().await)
    }

    async fn registry(&self) -> RegistryClient<Channel> {
        let connect = || async { RegistryClient::new(self.channel().await) };
        self.registry.get_or_init(connect).await.clone()
    }

    pub async fn drivers(&self) -> Vec<ListedDriver> {
        self.drivers_of("").await
    }

    pub async fn drivers_of(&self, kind: &str) -> Vec<ListedDriver> {
        let request = ListDriversRequest { kind: kind.to_owned(), ..Default::default() };
        let listed = self.registry().await.list_drivers(request).await;
        listed.expect("drivers are listed").into_inner().drivers
    }

    /// All operations, running ones first.
    pub async fn operations(&self) -> Vec<Operation> {
        let listed = self.registry().await.list_operations(ListOperationsRequest::default()).await;
        listed.expect("operations are listed").into_inner().operations
    }

    pub async fn running(&self) -> Vec<Operation> {
        self.operations().await.into_iter().filter(|operation| !operation.finished).collect()
    }

    /// Waits until exactly `count` drivers are listed.
    pub async fn until_drivers(&self, count: usize) -> Vec<ListedDriver> {
        self.until_drivers_are("counted", |drivers| drivers.len() == count).await
    }

    /// Waits until the drivers that are listed are `right`.
    pub async fn until_drivers_are(
        &self,
        what: &str,
        right: impl Fn(&[ListedDriver]) -> bool,
    ) -> Vec<ListedDriver> {
        for mut patience in patience() {
            let drivers = self.drivers().await;
            if right(&drivers) {
                return drivers;
            }
            patience.tick().await;
        }
        panic!("the drivers never were {what}, but {:#?}", self.drivers().await);
    }

    /// Waits until exactly `count` operations run or wait.
    pub async fn until_running(&self, count: usize) -> Vec<Operation> {
        for mut patience in patience() {
            let running = self.running().await;
            if running.len() == count {
                return running;
            }
            patience.tick().await;
        }
        panic!("never saw {count} operations, but {:#?}", self.running().await);
    }

    /// What must hold after every test: nothing is pending, and no session is left once the drivers
    /// have gone.
    pub async fn at_rest(&self) {
        self.until_drivers(0).await;
        assert_eq!(self.running().await, [], "operations still run");
    }
}

/// The defaults, but for [`settled`].
pub fn settings(catalog: Arc<dyn Catalog>) -> Settings {
    Settings { admission: settled(), ..Settings::new(catalog) }
}

/// No test but those about it waits for drivers that might return to a broker that has just started.
fn settled() -> Admission {
    Admission { settle: Duration::ZERO, ..Admission::default() }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A certificate with this URI, as a peer shows it.
fn certificate(uri: &str) -> PeerCertificate {
    let subject = Subject::new("", Duration::from_secs(3600)).uri(uri);
    let authority = Authority::new(&Subject::new("CA", Duration::from_secs(3600)));
    let issued = authority.and_then(|authority| authority.issue(&subject));
    issued.expect("the certificate is made").as_seen()
}

/// Looks again and again, for a minute at most.
fn patience() -> impl Iterator<Item = tokio::time::Interval> {
    let pause = Duration::from_millis(20);
    (0..3_000).map(move |_| tokio::time::interval_at(tokio::time::Instant::now() + pause, pause))
}
