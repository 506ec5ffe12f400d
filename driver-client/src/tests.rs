//! The library against a scripted broker: real gRPC over in-memory pipes, paused time, no sleeps.

mod broker;
mod draining;
mod driver;
mod lookups;
mod operations;
mod peers;
mod reconnecting;
mod replicas;

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use self::{
    broker::{Broker, Brokers, Peer},
    driver::Scripted,
};
use crate::{CancellationToken, Config, Kind, RunError, run};

/// A driver that runs, told what to do by a test.
struct Running {
    script: Arc<Scripted>,
    shutdown: CancellationToken,
    task: JoinSet<Result<(), RunError>>,
}

impl Running {
    /// Starts a driver of all brokers.
    fn start(brokers: &Brokers) -> Self {
        Self::with(brokers, |_| {})
    }

    fn with(brokers: &Brokers, change: impl FnOnce(&mut Config)) -> Self {
        let shutdown = CancellationToken::new();
        let mut config = Config {
            addresses: brokers.addresses(),
            name: "scripted".into(),
            kinds: vec![Kind::new("v1", "K")],
            instance_id: Some("i".into()),
            shutdown: shutdown.clone(),
            handle_signals: false,
            dial: brokers.dial(),
            ..Config::default()
        };
        change(&mut config);
        let script = Arc::new(Scripted::default());
        let mut task = JoinSet::new();
        task.spawn(run(config, driver::Shared(script.clone())));
        Self { script, shutdown, task }
    }

    /// Waits for `run` to return.
    async fn ended(mut self) -> Result<(), RunError> {
        self.task.join_next().await.expect("there is one").expect("run does not panic")
    }
}

/// One broker, one driver, one open session: where most stories begin.
async fn connected() -> (Broker, Running, Peer) {
    let mut brokers = Brokers::new(1);
    let running = Running::start(&brokers);
    let mut broker = brokers.take();
    let peer = broker.welcome().await;
    (broker, running, peer)
}

/// More than any test takes, and less than a deadline.
const LONG: Duration = Duration::from_secs(600);
