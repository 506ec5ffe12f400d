//! The processes of a run: they start, are asked to stop, and are killed.
//!
//! All live in one runtime, so a kill cannot take their tasks away at once. It takes everything by which
//! they could be noticed: their connections break at that moment, and drivers do nothing more to the
//! provider.

use std::{sync::Arc, time::Duration};

use broker::{
    catalog::Static,
    grpc::{Admission, Connection},
    registry::{Policy, Seating},
    server::{Broker, Settings},
};
use broker_tests::{API_VERSION, KIND};
use driver_client::{CancellationToken, Config, Dial, Kind, Tls, async_trait};
use hyper_util::rt::TokioIo;
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::{
    chance::Chance,
    cloud::{Cloud, CloudDriver},
    network::Network,
};

pub(crate) const BROKER: &str = "broker";

/// Owns every task of every process.
#[derive(Default)]
pub(crate) struct Tasks(JoinSet<()>);

impl Tasks {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.0.spawn(task)
    }

    /// Waits until all have ended by themselves.
    pub(crate) async fn ended(&mut self) {
        while let Some(ended) = self.0.join_next().await {
            match ended {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => {}
            }
        }
    }
}

pub(crate) struct BrokerHost {
    network: Network,
    broker: Broker,
    serving: AbortHandle,
}

impl BrokerHost {
    pub(crate) fn start(network: &Network, tasks: &mut Tasks, policy: Policy) -> Self {
        let admission = Admission { replica: BROKER.to_owned(), ..Admission::default() };
        let seating = Seating { default: policy, ..Seating::default() };
        let defaults = Settings::new(Static::sample());
        let broker = Broker::new(Settings { admission, seating, ..defaults });
        let incoming = ReceiverStream::new(network.listen(BROKER));
        let incoming = incoming.map(|end| Ok(Connection::new(end, "simulated".to_owned())));
        let serve = broker.clone();
        let serving = tasks.spawn(async move {
            serve.serve(incoming).await.expect("a broker serves until it has stopped");
        });
        Self { network: network.clone(), broker, serving }
    }

    /// How many operations it has in its books.
    pub(crate) fn running(&self) -> usize {
        self.broker.dispatcher().ledger().running().len()
    }

    /// SIGKILL.
    pub(crate) fn kill(self, tasks: &mut Tasks) {
        self.network.kill(BROKER);
        self.serving.abort();
        // Nobody hears of it any more; it only lets the tasks end.
        tasks.spawn(async move { self.broker.stop(Duration::ZERO).await });
    }

    /// SIGTERM, and what is left after the grace time is killed.
    pub(crate) async fn stop(self, grace: Duration) {
        self.broker.stop(grace).await;
        self.network.kill(BROKER);
        self.serving.abort();
    }
}

pub(crate) struct DriverHost {
    /// Also the instance's id.
    pub(crate) name: String,
    boot: String,
    network: Network,
    cloud: Cloud,
    killed: CancellationToken,
    shutdown: CancellationToken,
    running: AbortHandle,
}

impl DriverHost {
    pub(crate) fn start(
        name: &str,
        start: usize,
        network: &Network,
        tasks: &mut Tasks,
        cloud: &Cloud,
        chance: &Chance,
    ) -> Self {
        let boot = format!("{name}#{start}");
        let capacity = chance.among(1..5);
        cloud.recorder().capacity(&boot, capacity);
        let (killed, shutdown) = (CancellationToken::new(), CancellationToken::new());
        let config = Config {
            addresses: vec![format!("http://{BROKER}")],
            name: name.to_owned(),
            kinds: vec![Kind::new(API_VERSION, KIND)],
            instance_id: Some(name.to_owned()),
            capacity,
            cancel_grace: chance.millis(0..60_000),
            drain_grace: chance.millis(0..30_000),
            shutdown: shutdown.clone(),
            handle_signals: false,
            dial: Arc::new(SimulatedDial { network: network.clone(), host: name.to_owned() }),
            ..Config::default()
        };
        let driver = CloudDriver {
            boot: boot.clone(),
            cloud: cloud.clone(),
            killed: killed.clone(),
            obeys: chance.percent(70),
        };
        let running = tasks.spawn(async move {
            driver_client::run(config, driver).await.expect("no broker rejects it for good");
        });
        let (network, cloud) = (network.clone(), cloud.clone());
        Self { name: name.to_owned(), boot, network, cloud, killed, shutdown, running }
    }

    /// SIGKILL.
    pub(crate) fn kill(self) {
        self.killed.cancel();
        self.cloud.recorder().killed(&self.boot);
        self.network.kill(&self.name);
        self.running.abort();
    }

    /// SIGTERM. It ends by itself.
    pub(crate) fn drain(&self) {
        self.shutdown.cancel();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.running.is_finished()
    }
}

struct SimulatedDial {
    network: Network,
    host: String,
}

#[async_trait]
impl Dial for SimulatedDial {
    async fn dial(&self, address: &str, _: &Tls) -> Result<Channel, tonic::transport::Error> {
        let (network, host) = (self.network.clone(), self.host.clone());
        let connector = service_fn(move |_| {
            let (network, host) = (network.clone(), host.clone());
            async move { network.dial(&host, BROKER).await.map(TokioIo::new) }
        });
        driver_client::endpoint(address)?.connect_with_connector(connector).await
    }
}

/// A controller's connection, which comes up again by itself.
pub(crate) fn channel(network: &Network, host: &str) -> Channel {
    let (network, host) = (network.clone(), host.to_owned());
    let connector = service_fn(move |_| {
        let (network, host) = (network.clone(), host.clone());
        async move { network.dial(&host, BROKER).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://broker")
        .connect_timeout(Duration::from_secs(5))
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true)
        .connect_with_connector_lazy(connector)
}
