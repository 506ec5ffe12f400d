//! Kills the broker, or the drivers, at random moments while machines are made and callers simply
//! retry. In the end each machine has one VM, and its caller knows which.

mod load;

use std::{ops::Range, time::Duration};

use anyhow::ensure;
use broker_tests::{
    Controller,
    caller::Caller,
    chance::Chance,
    history::{End, Recorder, Rule},
    process::Process,
    witness::Witness,
    world::World,
};
use clap::{Args, ValueEnum};
use tokio::time::{Instant, sleep, timeout};

use self::load::Load;
use crate::{
    drivers,
    stage::Stage,
    verdict::{Verdict, executed_again},
};

/// Long enough to be killed in, before the VM is there and after.
const SPEC: &str = "createDelay: 2s, machineType: small";
/// How long after a moment its kill comes: anywhere in a create.
const AFTER_MILLIS: Range<usize> = 0..2_000;
/// Until somebody has noticed and starts it again.
const AWAY_MILLIS: Range<usize> = 0..300;
/// Without any progress for so long nothing will come any more.
const STUCK: Duration = Duration::from_secs(180);

/// Kills the broker, or the drivers, while machines are made and callers simply retry
///
/// Starts the real broker and two sim drivers as processes, has many callers create machines at
/// once, and sends SIGKILL at moments that the seed decides: when so many machines are made, and
/// up to two seconds later. What is killed is started again soon after. Callers repeat their
/// request until they know. Then the last line says what came of it:
///
///     chaos: asked=1000 vms=1000 wrong=0 hung=0 kills=20 seed=7
///
/// asked   machines that callers asked for
/// vms     VMs that the cloud holds
/// wrong   answers that do not name the machine's VM, VMs twice or unasked, and whatever else
///         the history checker finds; each is shown on stderr
/// hung    calls without an answer one second after their deadline
///
/// It succeeds only if vms=asked, wrong=0, hung=0, and all kills came while creates were under
/// way. That it can fail is shown by a broker that does not wait for its drivers after a restart:
///
///     BROKER_SETTLE=0s cargo xtask chaos --kill broker
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Chaos {
    /// Who is killed
    #[arg(long)]
    kill: Victim,
    /// How many machines are made
    #[arg(long, default_value_t = 1000)]
    creates: usize,
    /// How often it is killed
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// Decides the moments [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// With a driver that speaks the protocol of 2018: one operation at a time, and no memory
    #[arg(long)]
    legacy: bool,
    /// With one that makes a VM each time it is asked: shows what is left then, and fails
    #[arg(long, requires = "legacy")]
    not_idempotent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Victim {
    Broker,
    Driver,
}

impl Chaos {
    /// How many callers there are: as many as the work lasts for all the kills. After a kill of the
    /// broker all have to wait, so that there may be more.
    fn callers(&self) -> usize {
        match self.kill {
            Victim::Broker => 100,
            Victim::Driver if self.legacy => 16,
            Victim::Driver => 40,
        }
    }
}

/// Says whether all is well.
pub(crate) async fn run(args: &Chaos) -> anyhow::Result<bool> {
    ensure!(
        args.creates > args.kills,
        "with so few creates they cannot all be under way at a kill"
    );
    ensure!(
        !args.legacy || args.kill == Victim::Driver,
        "--legacy is for --kill driver: drivers of 2018 cannot tell a new broker what they do"
    );
    let seed = args.seed.unwrap_or_else(rand::random);
    eprintln!("chaos: seed {seed}; to see the same moments again: --seed {seed}");
    let mut scene = Scene::start(args, seed)?;
    let began = Instant::now();
    let caller = Caller {
        controller: Controller::new(scene.stage.broker().channel().await),
        recorder: scene.recorder.clone(),
    };
    let mut load = Load::start(args.creates, args.callers(), seed, &caller, &scene.stage.presence);
    let kills = scene.kill(args, &mut load).await;
    if timeout(STUCK, load.ended()).await.is_err() {
        scene.recorder.left_over(format!("{} machines were never made", load.missing()));
    }
    drop(load);
    scene.leave().await;

    let vms = scene.drivers.vms(&scene.stage.world)?;
    let mut history = scene.recorder.history();
    scene.witness.tell(&mut history, &scene.stage.world.journal(), &vms);
    // What a driver of 2018 is sent counts as accepted, since it never says so.
    let excused: &[Rule] = if args.legacy { &[Rule::AcceptedWasExecuted] } else { &[] };
    let Verdict { wrong, hung } = Verdict::of(&history, excused);
    let failed = history.calls.iter().flat_map(|call| &call.endings);
    let failed = failed.filter(|ending| matches!(ending.what, End::Failed { .. })).count();
    println!(
        "calls={} failed={failed} executed={} again={} seconds={}",
        history.calls.len(),
        history.executions.len(),
        executed_again(&history),
        began.elapsed().as_secs(),
    );
    let (asked, vms) = (args.creates, vms.len());
    if args.not_idempotent {
        let most = asked + kills;
        eprintln!(
            "chaos: one operation at a time, so one VM too many for each kill: {most} at most"
        );
        ensure!(vms <= most, "{vms} VMs are more than {most}: something else was executed twice");
    }
    println!("chaos: asked={asked} vms={vms} wrong={wrong} hung={hung} kills={kills} seed={seed}");
    Ok(vms == asked && wrong == 0 && hung == 0 && kills >= args.kills)
}

/// Everybody who takes part, but for the callers.
struct Scene {
    stage: Stage,
    drivers: drivers::Kind,
    processes: Vec<Process>,
    recorder: Recorder,
    witness: Witness,
    chance: Chance,
}

impl Scene {
    fn start(args: &Chaos, seed: u64) -> anyhow::Result<Self> {
        let stage = Stage::start(World::with(SPEC), &[]);
        let drivers = match args.legacy {
            false => drivers::Kind::Native,
            true => drivers::Kind::legacy(&stage.world, !args.not_idempotent)?,
        };
        let recorder = Recorder::default();
        let (witness, chance) = (Witness::of(&recorder), Chance::new(seed, "kills"));
        let processes = Vec::new();
        let mut scene = Self { stage, drivers, processes, recorder, witness, chance };
        for number in 0..scene.drivers.count() {
            let driver = scene.start_driver(number);
            scene.processes.push(driver);
        }
        Ok(scene)
    }

    fn start_driver(&self, number: usize) -> Process {
        let driver = self.drivers.start(&self.stage.world, &self.stage.address, number);
        self.recorder.capacity(&driver.id().to_string(), self.drivers.capacity());
        driver
    }

    /// Kills at the moments that the seed decides. Says how often creates were under way.
    async fn kill(&mut self, args: &Chaos, load: &mut Load) -> usize {
        let mut kills = 0;
        for moment in moments(&self.chance, args.kills, load.last_moment()) {
            if timeout(STUCK, load.made(moment)).await.is_err() {
                eprintln!("chaos: nothing was made for {STUCK:?}");
                break;
            }
            sleep(self.chance.millis(AFTER_MILLIS)).await;
            // All callers may have found nobody just now and be about to ask again.
            while self.stage.presence.waiting() == 0 && load.missing() > 0 {
                sleep(Duration::from_millis(1)).await;
            }
            if load.missing() == 0 {
                eprintln!(
                    "chaos: all were made before all kills; more --creates would last longer"
                );
                break;
            }
            kills += 1;
            let (made, waiting) = (args.creates - load.missing(), self.stage.presence.waiting());
            match args.kill {
                Victim::Broker => self.stage.kill_broker(self.chance.millis(AWAY_MILLIS)).await,
                Victim::Driver => self.kill_driver().await,
            }
            eprintln!("chaos: kill {kills} with {made} made, {waiting} calls under way");
        }
        kills
    }

    async fn kill_driver(&mut self) {
        let number = self.chance.among(0..self.processes.len());
        let victim = &mut self.processes[number];
        victim.kill();
        self.witness.killed(victim.id());
        sleep(self.chance.millis(AWAY_MILLIS)).await;
        self.processes[number] = self.start_driver(number);
    }

    /// Everybody leaves in good order; what stays is written down.
    async fn leave(&mut self) {
        self.stage.comes_to_rest(&self.recorder).await;
        for driver in &mut self.processes {
            driver.signal("-TERM");
            if driver.end().is_none() {
                self.recorder.left_over(format!("a driver does not leave:\n{}", driver.output()));
            }
        }
        self.stage.has_sessions(0, &self.recorder).await;
    }
}

/// Each is a number of machines that are made; some may be the same.
fn moments(chance: &Chance, kills: usize, last: usize) -> Vec<usize> {
    let mut moments: Vec<_> = (0..kills).map(|_| chance.among(0..last)).collect();
    moments.sort_unstable();
    moments
}
