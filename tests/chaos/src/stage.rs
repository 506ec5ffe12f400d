//! The broker of a run: killed, stopped and started again at the same address.

use std::{sync::Arc, time::Duration};

use broker_tests::{KIND, history::Recorder, process::BrokerProcess, world::World};
use tokio::{task::spawn_blocking, time::sleep};

use crate::presence::Presence;

pub(crate) struct Stage {
    pub(crate) world: Arc<World>,
    /// Where it always is.
    pub(crate) address: String,
    pub(crate) presence: Arc<Presence>,
    flags: &'static [&'static str],
    broker: Option<BrokerProcess>,
}

impl Stage {
    pub(crate) fn start(world: World, flags: &'static [&'static str]) -> Self {
        let broker = world.broker("127.0.0.1:0", flags);
        let address = broker.drivers.to_string();
        let (world, presence) = (Arc::new(world), Arc::default());
        Self { world, address, presence, flags, broker: Some(broker) }
    }

    /// The process that runs now.
    pub(crate) fn broker(&self) -> &BrokerProcess {
        self.broker.as_ref().expect("it runs but while it is replaced")
    }

    /// SIGKILL, and a new one after a while.
    pub(crate) async fn kill_broker(&mut self, away: Duration) {
        self.presence.leaves();
        self.broker.as_mut().expect("it runs").process.kill();
        self.start_again(away).await;
    }

    /// SIGTERM, and a new one when it has ended. Says whether it did by itself.
    pub(crate) async fn stop_broker(&mut self, away: Duration) -> bool {
        self.presence.leaves();
        let mut broker = self.broker.take().expect("it runs");
        broker.process.signal("-TERM");
        let ended = spawn_blocking(move || broker.process.end().is_some()).await;
        self.start_again(away).await;
        ended.expect("it is only waited for")
    }

    async fn start_again(&mut self, away: Duration) {
        sleep(away).await;
        let (world, address, flags) = (Arc::clone(&self.world), self.address.clone(), self.flags);
        let started = spawn_blocking(move || world.broker(&address, flags)).await;
        self.broker = Some(started.expect("a broker starts again"));
        self.presence.is_back();
    }

    /// Waits until nothing is pending; what stays is written down.
    pub(crate) async fn comes_to_rest(&self, recorder: &Recorder) {
        for delivery in ["not_sent", "sent", "accepted"] {
            let name = format!("machine_broker_pending{{delivery=\"{delivery}\"}}");
            if !self.broker().comes_to(&name, |pending| pending == 0).await {
                recorder.left_over(format!("operations are {delivery} and nobody waits"));
            }
        }
    }

    /// Waits until so many sessions are in each state; what is otherwise is written down.
    pub(crate) async fn has_sessions(&self, ready: u64, recorder: &Recorder) {
        for (state, wanted) in [("ready", ready), ("suspect", 0), ("draining", 0)] {
            let name = format!("machine_broker_sessions{{kind=\"{KIND}\",state=\"{state}\"}}");
            if !self.broker().comes_to(&name, |sessions| sessions == wanted).await {
                recorder.left_over(format!("not {wanted} sessions are {state}"));
            }
        }
    }
}
