//! Everybody who takes part, and a round from trouble to quiet.

use std::{
    fs, mem,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use broker_tests::{
    Controller,
    caller::Caller,
    chance::Chance,
    history::{End, History, Recorder},
    process::{PATIENCE, Process, channel},
    proxy::Proxy,
    witness::Witness,
    world::World,
};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep},
};

use super::{
    Total,
    calls::{self, Line},
    flat::Sample,
    trouble::Family,
};
use crate::{stage::Stage, verdict::Verdict};

const SPEC: &str = "createDelay: 300ms, deleteDelay: 100ms, listDelay: 50ms";
/// So short that a stop of the broker does not use up its time.
const FLAGS: &[&str] = &["--grace", "3s"];
const DRIVERS: usize = 3;
const CAPACITY: usize = 16;
const CALLERS: usize = 12;
const MACHINES: usize = 24;
const TROUBLE_MILLIS: Range<usize> = 8_000..14_000;
/// Connections when all is quiet: each driver's, and the callers' two.
const CONNECTIONS: u64 = DRIVERS as u64 + 2;

pub(super) struct Scene {
    seed: u64,
    pub(super) stage: Stage,
    pub(super) drivers: Vec<Driver>,
    /// Half of the callers go through this.
    pub(super) callers_line: Proxy,
    pub(super) chance: Chance,
    pub(super) recorder: Recorder,
    pub(super) witness: Witness,
    /// One past the proxy and one through it.
    controllers: [Controller; 2],
}

/// An instance with its way to the broker.
pub(super) struct Driver {
    pub(super) line: Proxy,
    pub(super) process: Process,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Runs,
    Frozen,
    /// Killed, or told to leave.
    Leaves,
}

impl Scene {
    pub(super) async fn start(seed: u64) -> anyhow::Result<Self> {
        let stage = spawn_blocking(|| Stage::start(World::with(SPEC), FLAGS)).await?;
        let target = stage.address.parse()?;
        let callers_line = Proxy::to(target).await;
        let controllers = [target, callers_line.address];
        let [direct, proxied] =
            controllers.map(async |address| Controller::new(channel(address).await));
        let recorder = Recorder::default();
        let mut scene = Self {
            seed,
            stage,
            drivers: Vec::new(),
            callers_line,
            chance: Chance::new(seed, "faults"),
            witness: Witness::of(&recorder),
            recorder,
            controllers: [direct.await, proxied.await],
        };
        for number in 0..DRIVERS {
            let line = Proxy::to(target).await;
            let process = scene.start_driver(number, &line);
            scene.drivers.push(Driver { line, process, state: State::Runs });
        }
        Ok(scene)
    }

    pub(super) fn start_driver(&self, number: usize, line: &Proxy) -> Process {
        let (address, capacity) = (line.address.to_string(), CAPACITY.to_string());
        let more = ["--capacity", &capacity];
        let process = self.stage.world.driver(&address, &format!("sim-{number}"), &more);
        self.recorder.capacity(&process.id().to_string(), CAPACITY);
        process
    }

    /// Trouble for a while, then peace, until nothing of the round is left.
    pub(super) async fn round(&mut self, number: usize, restarts: bool) -> anyhow::Result<Total> {
        self.forget()?;
        let machines: Vec<_> = (0..MACHINES).map(|n| format!("r{number}-{n}")).collect();
        let stopped = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let chance = Chance::new(self.seed, &format!("round-{number}-caller-{caller}"));
            let (line, machines) = (self.line(caller), machines.clone());
            callers.spawn(calls::troubled(line, chance, machines, Arc::clone(&stopped)));
        }
        let family = if restarts { Family::Broker } else { Family::Drivers };
        let until = Instant::now() + self.chance.millis(TROUBLE_MILLIS);
        let faults = self.trouble(family, until).await;
        stopped.store(true, Ordering::Relaxed);
        eprintln!("soak: round {number}: peace after {faults} faults");
        callers.join_all().await;
        eprintln!("soak: round {number}: all callers know");
        self.stage.has_sessions(DRIVERS as u64, &self.recorder).await;

        let line = self.line(0);
        let asked = calls::converge(&line, &self.chance, &machines).await;
        calls::calm(&line, &format!("r{number}-calm")).await;
        eprintln!("soak: round {number}: every machine is as it was asked for last");
        let mut round = self.judge().await?;
        (round.asked, round.faults) = (asked, faults);
        self.clear(&machines).await?;
        Ok(round)
    }

    /// What was written down of the last round is not needed any more.
    fn forget(&mut self) -> anyhow::Result<()> {
        // Nothing runs now, and who writes appends.
        if self.stage.world.journal().exists() {
            fs::OpenOptions::new().write(true).open(self.stage.world.journal())?.set_len(0)?;
        }
        self.recorder = Recorder::default();
        self.witness = Witness::of(&self.recorder);
        for driver in &self.drivers {
            self.recorder.capacity(&driver.process.id().to_string(), CAPACITY);
        }
        Ok(())
    }

    /// A caller's way; every second one is through the proxy.
    fn line(&self, caller: usize) -> Line {
        let controller = self.controllers[caller % 2].clone();
        let caller_is_near = caller.is_multiple_of(2);
        let caller = Caller { controller, recorder: self.recorder.clone() };
        let presence = caller_is_near.then(|| Arc::clone(&self.stage.presence));
        Line { caller, presence }
    }

    /// What the round came to, when nothing of it runs any more.
    async fn judge(&self) -> anyhow::Result<Total> {
        self.stage.comes_to_rest(&self.recorder).await;
        let name = "machine_broker_connections{port=\"grpc\"}";
        if !self.stage.broker().comes_to(name, |open| open <= CONNECTIONS).await {
            self.recorder.left_over("connections that nobody has any more".to_owned());
        }
        let give_up = Instant::now() + PATIENCE;
        let (history, vms) = loop {
            let (history, vms) = self.history()?;
            let runs = history.executions.iter().any(|run| run.ended.is_none());
            if !runs || Instant::now() > give_up {
                break (history, vms);
            }
            sleep(Duration::from_millis(100)).await;
        };
        let Verdict { wrong, hung } = Verdict::of(&history, &[]);
        let failed = history.calls.iter().flat_map(|call| &call.endings);
        let failed = failed.filter(|ending| matches!(ending.what, End::Failed { .. })).count();
        let calls = history.calls.len();
        Ok(Total { vms, wrong, hung, calls, failed, ..Total::default() })
    }

    /// With how many VMs there are of the machines that were asked for in the end.
    fn history(&self) -> anyhow::Result<(History, usize)> {
        let mut history = self.recorder.history();
        let vms = self.stage.world.cloud().all()?;
        let standing: Vec<_> = vms.into_iter().map(|vm| (vm.provider_id(), vm.name)).collect();
        self.witness.tell(&mut history, &self.stage.world.journal(), &standing);
        let vms = standing.iter().filter(|(_, machine)| !machine.ends_with("-calm")).count();
        Ok((history, vms))
    }

    /// Deletes the round's machines; none is left.
    async fn clear(&self, machines: &[String]) -> anyhow::Result<()> {
        // Not for the history, which was judged.
        let line = Line {
            caller: Caller { recorder: Recorder::default(), ..self.line(0).caller },
            presence: None,
        };
        calls::delete(&line, machines).await;
        let left = self.stage.world.cloud().all()?;
        ensure!(left.is_empty(), "all machines were deleted, and there are VMs: {left:?}");
        self.stage.comes_to_rest(&self.recorder).await;
        Ok(())
    }

    pub(super) async fn sample(&self, after: Duration, number: usize, round: &Total) -> Sample {
        let broker = self.stage.broker();
        Sample {
            seconds: after.as_secs(),
            round: number,
            broker: broker.process.id(),
            calls: round.calls,
            failed: round.failed,
            faults: round.faults,
            wrong: round.wrong + round.hung,
            rss_kib: broker.memory(),
            fds: broker.descriptors() as u64,
            threads: broker.threads(),
            tasks: broker.metric("machine_broker_tasks").await.unwrap_or_default(),
        }
    }

    /// The drivers leave as on any other day.
    pub(super) async fn leave(&mut self) {
        for driver in mem::take(&mut self.drivers) {
            driver.process.signal("-TERM");
            let mut process = driver.process;
            let ended = spawn_blocking(move || process.end().is_some()).await;
            if !ended.expect("it is only waited for") {
                eprintln!("soak: a driver does not leave");
            }
            driver.line.close().await;
        }
    }
}
