//! Several replicas of the broker in memory, and drivers of the real library that find them.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use broker::{
    catalog::Static,
    grpc::Admission,
    replicas::Replicas,
    server::{Broker, Settings},
};
use driver_client::{
    CancellationToken, Config, Dial, Error, Kind, ListedMachine, Machine, Operation, RunError, Tls,
    async_trait,
};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::{API_VERSION, KIND, TestBroker};

/// Who listens where. Cheap to clone: every clone is the same.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<Places>>);

#[derive(Default)]
struct Places {
    brokers: BTreeMap<String, Arc<TestBroker>>,
    /// How often each was dialled, whether somebody was there or not.
    dialled: HashMap<String, usize>,
}

impl Network {
    /// Starts a replica at an address.
    pub fn start(&self, id: &str, address: &str) -> Arc<TestBroker> {
        self.start_as(id, address, |_| {})
    }

    pub fn start_as(
        &self,
        id: &str,
        address: &str,
        change: impl FnOnce(&mut Settings),
    ) -> Arc<TestBroker> {
        let admission =
            Admission { replica: id.to_owned(), settle: Duration::ZERO, ..Admission::default() };
        let replicas = Some(Replicas::new(id, Some(address)));
        let mut settings = Settings { admission, replicas, ..Settings::new(Static::sample()) };
        change(&mut settings);
        let broker = Arc::new(TestBroker::serving(Broker::new(settings)));
        self.places().brokers.insert(address.to_owned(), Arc::clone(&broker));
        broker
    }

    /// Tells every replica where all of them are.
    pub fn introduce(&self) {
        let places = self.places();
        for broker in places.brokers.values() {
            broker.broker.replicas().list(places.brokers.keys());
        }
    }

    /// Lets another address lead to a replica.
    pub fn alias(&self, address: &str, alias: &str) {
        let mut places = self.places();
        let broker = places.brokers.get(address).cloned().expect("somebody is there");
        places.brokers.insert(alias.to_owned(), broker);
    }

    /// Takes a replica away: nobody reaches it any more. What it has is the caller's to end.
    pub fn remove(&self, address: &str) -> Arc<TestBroker> {
        self.places().brokers.remove(address).expect("somebody is there")
    }

    pub fn dialled(&self, address: &str) -> usize {
        self.places().dialled.get(address).copied().unwrap_or_default()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().expect("no panic while locked")
    }
}

#[async_trait]
impl Dial for Network {
    async fn dial(&self, address: &str, _: &Tls) -> Result<Channel, tonic::transport::Error> {
        let address = address.trim_start_matches("http://");
        let broker = {
            let mut places = self.places();
            *places.dialled.entry(address.to_owned()).or_default() += 1;
            places.brokers.get(address).cloned()
        };
        match broker {
            Some(broker) => Ok(broker.channel().await),
            None => {
                let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
                let nobody = service_fn(move |_| std::future::ready(Err::<NoWire, _>(refused())));
                Endpoint::from_static("http://in-memory").connect_with_connector(nobody).await
            }
        }
    }

    fn is_private(&self, _: &str, _: &Tls) -> bool {
        true
    }
}

/// What is never connected.
type NoWire = hyper_util::rt::TokioIo<tokio::io::DuplexStream>;

/// A driver of the real library. Dropping it ends it like a kill.
pub struct LibraryDriver {
    pub deeds: Arc<Deeds>,
    shutdown: CancellationToken,
    running: JoinHandle<Result<(), RunError>>,
}

/// What a driver did, and what it waits for.
pub struct Deeds {
    created: Mutex<Vec<String>>,
    changed: Notify,
    /// What creates of machines `held…` wait for.
    pub gate: Semaphore,
}

impl LibraryDriver {
    /// That was told to dial these addresses.
    pub fn start(network: &Network, instance: &str, addresses: &[&str]) -> Self {
        let shutdown = CancellationToken::new();
        let config = Config {
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            name: instance.to_owned(),
            kinds: vec![Kind::new(API_VERSION, KIND)],
            instance_id: Some(instance.to_owned()),
            shutdown: shutdown.clone(),
            handle_signals: false,
            dial: Arc::new(network.clone()),
            ..Config::default()
        };
        let deeds = Arc::new(Deeds {
            created: Mutex::default(),
            changed: Notify::new(),
            gate: Semaphore::new(0),
        });
        let running = tokio::spawn(driver_client::run(config, Doer(Arc::clone(&deeds))));
        Self { deeds, shutdown, running }
    }

    /// SIGTERM: returns when it has ended.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        let ended = (&mut self.running).await.expect("nobody aborts it");
        ended.expect("it was let in");
    }
}

impl Drop for LibraryDriver {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Deeds {
    /// Every execution of a create, in order.
    pub fn created(&self) -> Vec<String> {
        self.created.lock().expect("no panic while locked").clone()
    }

    /// Waits until so many have begun.
    pub async fn begun(&self, count: usize) {
        loop {
            let changed = self.changed.notified();
            if self.created().len() >= count {
                return;
            }
            changed.await;
        }
    }
}

struct Doer(Arc<Deeds>);

#[async_trait]
impl driver_client::Driver for Doer {
    async fn create(&self, op: &Operation) -> Result<Machine, Error> {
        let name = op.machine_name();
        let number = {
            let mut created = self.0.created.lock().expect("no panic while locked");
            created.push(name.to_owned());
            created.len()
        };
        self.0.changed.notify_waiters();
        if name.starts_with("held") {
            self.0.gate.acquire().await.expect("never closed").forget();
        }
        Ok(Machine { provider_id: format!("{name}-{number}"), ..Machine::default() })
    }

    async fn delete(&self, _: &Operation) -> Result<(), Error> {
        Ok(())
    }

    async fn list(&self, _: &Operation) -> Result<Vec<ListedMachine>, Error> {
        Ok(Vec::new())
    }
}
