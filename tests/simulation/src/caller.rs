//! A controller's calls over the simulated network.

use std::time::Duration;

pub(crate) use broker_tests::caller::Ask;
use broker_tests::{Controller, caller, history::Recorder};
use tokio::time::Instant;

use crate::{
    hosts::{self, BROKER},
    network::Network,
};

/// The broker answers a twentieth of a call's time before its deadline. With less than this, even a
/// near one's answer comes later than the caller's own clock.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Caller {
    caller: caller::Caller,
    network: Network,
    host: String,
}

impl Caller {
    pub(crate) fn new(network: &Network, host: &str, recorder: Recorder) -> Self {
        let controller = Controller::new(hosts::channel(network, host));
        let caller = caller::Caller { controller, recorder };
        Self { caller, network: network.clone(), host: host.to_owned() }
    }

    /// Asks once. Says whether that was a success.
    pub(crate) async fn ask(&self, ask: &Ask) -> bool {
        let asked = Instant::now();
        let reached = |_: &_| {
            self.network.is_well(&self.host, BROKER, asked)
                && self.network.is_near()
                && ask.time >= LONG_ENOUGH
        };
        let end = self.caller.ask(ask, reached).await;
        tracing::info!(?ask, ?end, "called");
        end.is_success()
    }
}
