//! Load with random faults for minutes, and whether the broker stays as it is.
//!
//! A run is a row of rounds. In each, callers ask this and that of machines of the round's own while things go
//! wrong; then everything heals, each machine is asked for once more until that is done, and the round's history
//! is checked and forgotten, so that a long run needs no more memory than a short one. When its machines are
//! deleted and all is quiet, the broker is measured.

mod calls;
mod flat;
mod scene;
mod trouble;

use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use self::{
    flat::{Sample, growth},
    scene::Scene,
};

/// The share of the time in which the broker itself may be killed and stopped. What it has in memory is
/// judged in the rest.
const RESTARTS_FOR: f64 = 0.25;
/// With fewer rounds of one broker its warming up cannot be told from growth.
const ENOUGH: usize = 8;

/// Load with random faults for minutes, and whether the broker stays as it is
///
/// Real processes: a broker and three sim drivers, each behind a proxy that loses, holds, slows and
/// breaks what passes, and callers, half of them behind such a proxy as well. Drivers are killed,
/// stopped and frozen; in the first quarter of the time the broker is killed and stopped, too.
///
/// Prints a table for plotting, one line for each round, measured when the round's work is done and
/// all is quiet. Then the last line says what came of it. It succeeds only if the history checker
/// finds nothing, and memory, descriptors and tasks of the last broker process stayed flat.
#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// How long it goes on; the round that has begun is finished
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Decides the faults and what callers ask [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
}

/// What the rounds came to.
#[derive(Debug, Default)]
pub(crate) struct Total {
    asked: usize,
    vms: usize,
    wrong: usize,
    hung: usize,
    calls: usize,
    failed: usize,
    faults: usize,
}

/// Says whether all is well.
pub(crate) async fn run(args: &Soak) -> anyhow::Result<bool> {
    let seed = args.seed.unwrap_or_else(rand::random);
    eprintln!("soak: seed {seed}; to see the same faults again: --seed {seed}");
    let lasts = Duration::from_secs(args.minutes * 60);
    let (mut scene, mut total) = (Scene::start(seed).await?, Total::default());
    let began = Instant::now();
    let mut samples: Vec<Sample> = Vec::new();
    println!("{}", Sample::HEADER);
    while began.elapsed() < lasts {
        let number = samples.len();
        // By turns, and once at least.
        let restarts = number == 0
            || (number.is_multiple_of(2) && began.elapsed() < lasts.mul_f64(RESTARTS_FOR));
        let round = scene.round(number, restarts).await?;
        let sample = scene.sample(began.elapsed(), number, &round).await;
        println!("{sample}");
        samples.push(sample);
        total.add(&round);
    }
    scene.leave().await;

    let last = samples.last().map(|sample| sample.broker);
    samples.retain(|sample| Some(sample.broker) == last);
    let growth = growth(&samples);
    println!(
        "calls={} failed={} rounds_of_the_last_broker={}",
        total.calls,
        total.failed,
        samples.len()
    );
    let Total { asked, vms, wrong, hung, faults, .. } = total;
    println!(
        "soak: minutes={} asked={asked} vms={vms} wrong={wrong} hung={hung} faults={faults} {growth} \
         seed={seed}",
        args.minutes
    );
    let is_flat = samples.len() < ENOUGH || growth.is_flat();
    Ok(vms == asked && wrong == 0 && hung == 0 && is_flat)
}

impl Total {
    fn add(&mut self, round: &Self) {
        self.asked += round.asked;
        self.vms += round.vms;
        self.wrong += round.wrong;
        self.hung += round.hung;
        self.calls += round.calls;
        self.failed += round.failed;
        self.faults += round.faults;
    }
}
