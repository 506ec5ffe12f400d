//! The whole system in one process: a broker, and actors with verbs that act on it.
//!
//! Everything speaks real gRPC over connections in memory, so there are no ports and time can be
//! paused. `Driver` is the wire itself, frame by frame, so that a test decides what a driver does
//! and when; `native_driver` in a test file uses the `driver-client` library instead.

mod controller;
mod driver;
pub mod process;

use std::{future::ready, io, sync::Arc, time::Duration};

use broker::{
    catalog::{Catalog, Static},
    grpc::{Admission, Connection},
    registry::Seating,
    server::Broker,
};
use broker_proto::v1::{
    Driver as ListedDriver, ListDriversRequest, ListOperationsRequest, Operation,
    registry_client::RegistryClient,
};
use tokio::{io::DuplexStream, sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

pub use self::{
    controller::{Controller, delivery, reason, retry_after},
    driver::{Driver, Hello, Service, hello, machine},
};

pub const KIND: &str = "SimMachineClass";
pub const API_VERSION: &str = "sim.machinebroker.dev/v1alpha1";
pub const CLASS: &str = "small";

/// A broker of a test's own. Dropping it ends it like a kill.
pub struct TestBroker {
    pub broker: Broker,
    dial: mpsc::UnboundedSender<io::Result<Connection<DuplexStream>>>,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl TestBroker {
    /// With the sample catalog and default settings.
    pub fn start() -> Self {
        Self::with(Admission::default(), Seating::default(), Static::sample())
    }

    pub fn with(admission: Admission, seating: Seating, catalog: Arc<dyn Catalog>) -> Self {
        let broker = Broker::new(admission, seating, catalog);
        let (dial, dialled) = mpsc::unbounded_channel();
        let serve = broker.clone();
        let serving =
            tokio::spawn(async move { serve.serve(UnboundedReceiverStream::new(dialled)).await });
        Self { broker, dial, serving }
    }

    /// A fresh connection, as a new process would make one.
    pub async fn channel(&self) -> Channel {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let connection = Connection::new(theirs, "in-memory".to_owned());
        self.dial.send(Ok(connection)).expect("broker is serving");
        let mut ours = Some(hyper_util::rt::TokioIo::new(ours));
        Endpoint::from_static("http://in-memory")
            .connect_with_connector(service_fn(move |_| {
                ready(ours.take().ok_or_else(|| io::Error::other("this connection is gone")))
            }))
            .await
            .expect("connects in memory")
    }

    /// A native driver of the sample kind that was let in.
    pub async fn driver(&self, instance: &str) -> Driver {
        Driver::welcomed(self.channel().await, hello(instance)).await
    }

    pub async fn controller(&self) -> Controller {
        Controller::new(self.channel().await)
    }

    pub async fn drivers(&self) -> Vec<ListedDriver> {
        let mut registry = RegistryClient::new(self.channel().await);
        let listed = registry.list_drivers(ListDriversRequest::default()).await;
        listed.expect("drivers are listed").into_inner().drivers
    }

    pub async fn operations(&self) -> Vec<Operation> {
        let mut registry = RegistryClient::new(self.channel().await);
        let listed = registry.list_operations(ListOperationsRequest::default()).await;
        listed.expect("operations are listed").into_inner().operations
    }

    /// Waits until exactly `count` drivers are listed.
    pub async fn until_drivers(&self, count: usize) -> Vec<ListedDriver> {
        let mut patience = tokio::time::interval(Duration::from_millis(20));
        for _ in 0..5_000 {
            let drivers = self.drivers().await;
            if drivers.len() == count {
                return drivers;
            }
            patience.tick().await;
        }
        panic!("never saw {count} drivers, but {:?}", self.drivers().await);
    }

    /// What must hold after every test: nothing is pending, and no session is left once the drivers
    /// have gone.
    pub async fn at_rest(&self) {
        self.until_drivers(0).await;
        let running: Vec<_> =
            self.operations().await.into_iter().filter(|operation| !operation.finished).collect();
        assert_eq!(running, [], "operations still run");
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
