//! One run, from the seed to the history: trouble for a while, then peace, then everybody leaves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use broker_proto::v1::{
    ListDriversRequest, ListOperationsRequest, registry_client::RegistryClient,
};
use broker_tests::history::{Recorder, Verb};
use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    caller::{Ask, Caller},
    chance::Chance,
    cloud::Cloud,
    hosts::{self, BrokerHost, DriverHost, Tasks},
    network::Network,
    scenario::Scenario,
};

/// Longer than anything is held or waited for: a resumed operation keeps its machine for 20 minutes.
const CONVERGES_WITHIN: Duration = Duration::from_secs(30 * 60);
/// Until what was suspect is ready and what backed off is back.
const CALMS_WITHIN: Duration = Duration::from_secs(90);
/// For a create of 20 seconds behind some others.
const CALM_TIME: Duration = Duration::from_secs(5 * 60);
/// Longer than a driver may take to leave.
const LEAVES_WITHIN: Duration = Duration::from_secs(10 * 60);

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) scenario: Scenario,
    pub(crate) chance: Chance,
    pub(crate) network: Network,
    pub(crate) cloud: Cloud,
    pub(crate) recorder: Recorder,
    pub(crate) tasks: Tasks,
    /// `None` while it is down.
    pub(crate) broker: Option<BrokerHost>,
    pub(crate) drivers: Vec<DriverHost>,
    /// Those that leave by themselves.
    pub(crate) leaving: Vec<DriverHost>,
    pub(crate) started: usize,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let scenario = Scenario::draw(&Chance::new(seed, "scenario"));
        tracing::info!(?scenario, "begins");
        let recorder = Recorder::default();
        let network = Network::new(Chance::new(seed, "network"), scenario.latency.clone());
        let cloud = Cloud::new(Chance::new(seed, "cloud"), recorder.clone());
        let mut world = Self {
            seed,
            chance: Chance::new(seed, "world"),
            network,
            cloud,
            recorder,
            tasks: Tasks::default(),
            broker: None,
            drivers: Vec::new(),
            leaving: Vec::new(),
            started: 0,
            scenario,
        };
        world.start_broker();
        for number in 0..world.scenario.drivers {
            world.start_driver(&format!("driver-{number}"));
        }
        world
    }

    pub(crate) fn start_broker(&mut self) {
        let policy = self.scenario.policy;
        self.broker = Some(BrokerHost::start(&self.network, &mut self.tasks, policy));
    }

    pub(crate) fn start_driver(&mut self, name: &str) {
        self.started += 1;
        let driver = DriverHost::start(
            name,
            self.started,
            &self.network,
            &mut self.tasks,
            &self.cloud,
            &self.chance,
        );
        self.drivers.push(driver);
    }

    /// Everything, in order.
    pub(crate) async fn run(mut self) -> Recorder {
        let stopped = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for number in 0..self.scenario.controllers {
            callers.spawn(self.troubled_caller(number, Arc::clone(&stopped)));
        }
        let until = Instant::now() + self.scenario.trouble_for;
        self.trouble(until).await;
        stopped.store(true, Ordering::Relaxed);
        tracing::info!("peace");
        self.network.heal();
        self.cloud.calm_down();
        if self.broker.is_none() {
            self.start_broker();
        }
        while let Some(ended) = callers.join_next().await {
            ended.expect("a caller does not panic");
        }
        let caller = Caller::new(&self.network, "last", self.recorder.clone());
        self.converge(&caller).await;
        sleep(CALMS_WITHIN).await;
        self.calm_calls(&caller).await;
        drop(caller);
        self.leave().await;
        self.recorder
    }

    /// Asks this and that of a few machines, retries, and gives up now and then.
    fn troubled_caller(
        &self,
        number: usize,
        stopped: Arc<AtomicBool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let host = controller(number);
        let caller = Caller::new(&self.network, &host, self.recorder.clone());
        let chance = Chance::new(self.seed, &host);
        let machines = self.scenario.machines;
        let verbs =
            [Verb::Create, Verb::Create, Verb::Create, Verb::Delete, Verb::Status, Verb::List];
        async move {
            let mut intents = 0;
            while !stopped.load(Ordering::Relaxed) {
                intents += 1;
                let verb = *chance.pick(&verbs);
                let machine = match verb {
                    Verb::List => String::new(),
                    _ => format!("machine-{}", chance.among(0..machines)),
                };
                let mut ask = Ask::new(verb, &machine, Duration::ZERO);
                ask.wait_for_driver = chance.percent(20);
                if verb != Verb::List && chance.percent(20) {
                    ask.request_id = format!("{host}-{intents}");
                }
                for _ in 0..chance.among(1..12) {
                    ask.time = chance.millis(200..40_000);
                    let leaves = chance.percent(15);
                    ask.leaves_after = leaves.then(|| chance.millis(0..20_000));
                    if caller.ask(&ask).await || stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    sleep(chance.millis(0..3_000)).await;
                }
                sleep(chance.millis(0..5_000)).await;
            }
        }
    }

    /// One more wish for each machine, until it is fulfilled.
    async fn converge(&self, caller: &Caller) {
        let mut wishes = JoinSet::new();
        for number in 0..self.scenario.machines {
            let verb = *self.chance.pick(&[Verb::Create, Verb::Delete]);
            let ask = Ask::new(verb, &format!("machine-{number}"), Duration::from_secs(60));
            let (caller, give_up) = (caller.clone(), Instant::now() + CONVERGES_WITHIN);
            wishes.spawn(async move {
                while !caller.ask(&ask).await {
                    if Instant::now() > give_up {
                        // The history has to show it.
                        caller.ask(&ask.clone().calm()).await;
                        return;
                    }
                    sleep(Duration::from_secs(1)).await;
                }
            });
        }
        while let Some(ended) = wishes.join_next().await {
            ended.expect("a caller does not panic");
        }
    }

    /// When nothing is wrong any more, everything works at the first try.
    async fn calm_calls(&self, caller: &Caller) {
        let mut calls = JoinSet::new();
        for number in 0..self.scenario.machines {
            let (caller, machine) = (caller.clone(), format!("calm-{number}"));
            calls.spawn(async move {
                for verb in [Verb::Create, Verb::Create, Verb::Status, Verb::List] {
                    let machine = if verb == Verb::List { "" } else { machine.as_str() };
                    caller.ask(&Ask::new(verb, machine, CALM_TIME).calm()).await;
                }
            });
        }
        while let Some(ended) = calls.join_next().await {
            ended.expect("a caller does not panic");
        }
    }

    /// Everybody leaves in good order; what stays is written down.
    async fn leave(&mut self) {
        for driver in self.drivers.iter().chain(&self.leaving) {
            driver.drain();
        }
        let give_up = Instant::now() + LEAVES_WITHIN;
        let here = |world: &Self| {
            let all = world.drivers.iter().chain(&world.leaving);
            all.filter(|driver| !driver.has_ended()).map(|d| d.name.clone()).collect::<Vec<_>>()
        };
        while !here(self).is_empty() && Instant::now() < give_up {
            sleep(Duration::from_secs(1)).await;
        }
        for name in here(self) {
            self.recorder.left_over(format!("driver {name} does not leave"));
        }
        // Its last sessions may have to be found dead.
        sleep(Duration::from_secs(60)).await;
        self.look_around().await;
        if let Some(broker) = self.broker.take() {
            let running = broker.running();
            if running > 0 {
                self.recorder.left_over(format!("{running} operations in the books"));
            }
            broker.stop(Duration::from_secs(1)).await;
        }
        self.drivers.clear();
        self.leaving.clear();
        if timeout(Duration::from_secs(60), self.tasks.ended()).await.is_err() {
            self.recorder.left_over("a process does not end".to_owned());
        }
        // Connections that are given up by keepalive take their time.
        sleep(Duration::from_secs(120)).await;
        let alive = Handle::current().metrics().num_alive_tasks();
        if alive > 0 {
            self.recorder.left_over(format!("{alive} tasks"));
        }
    }

    /// What an operator sees.
    async fn look_around(&self) {
        let mut registry = RegistryClient::new(hosts::channel(&self.network, "operator"));
        let drivers = registry.list_drivers(ListDriversRequest::default()).await;
        let drivers = drivers.expect("all is well").into_inner().drivers;
        for driver in drivers {
            self.recorder.left_over(format!("{} is still listed", driver.instance_id));
        }
        let operations = registry.list_operations(ListOperationsRequest::default()).await;
        let operations = operations.expect("all is well").into_inner().operations;
        for operation in operations.into_iter().filter(|operation| !operation.finished) {
            self.recorder.left_over(format!("{operation:?}"));
        }
    }
}

pub(crate) fn controller(number: usize) -> String {
    format!("controller-{number}")
}
