//! `simulate --seed 7` runs one seed, `simulate --seeds 1000` many, each in a process of its own.

use std::{
    env,
    process::{Command, ExitCode, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, ensure};
use broker_simulation::Run;
use broker_tests::history::{End, Verb};
use clap::Parser;
use tracing_subscriber::EnvFilter;

#[derive(Debug, Parser)]
#[command(about = "Runs the system over a simulated network")]
struct Args {
    /// Runs this seed, and says what it saw; RUST_LOG=info shows what happened
    #[arg(long, env = "BROKER_SIM_SEED")]
    seed: Option<u64>,
    /// Runs so many seeds
    #[arg(long, default_value_t = 100, env = "BROKER_SIM_SEEDS")]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs each seed twice, and fails if the two runs differ
    #[arg(long)]
    twice: bool,
    /// Ends with the first seed that is red
    #[arg(long)]
    until_red: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    match args.seed {
        Some(seed) => Ok(one(seed)),
        None => many(&args),
    }
}

fn one(seed: u64) -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_timer(Simulated)
        .init();
    let run = broker_simulation::run(seed);
    for violation in &run.violations {
        println!("seed {seed}: {violation}");
    }
    println!("{}", figures(&run));
    if run.violations.is_empty() { ExitCode::SUCCESS } else { RED.into() }
}

/// How the program ends when a rule was broken, to be told from all that may go wrong otherwise.
const RED: u8 = 3;

/// The last line of a run, from which many are summed up.
fn figures(run: &Run) -> String {
    let history = &run.history;
    let creates = history.calls.iter().filter(|call| call.verb == Verb::Create);
    let machines: std::collections::BTreeSet<_> =
        creates.clone().map(|call| call.machine.as_str()).collect();
    let failed = history.calls.iter().flat_map(|call| &call.endings);
    let failed = failed.filter(|ending| matches!(ending.what, End::Failed { .. })).count();
    format!(
        "digest={:016x} seconds={} calls={} failed={failed} creates={} machines={} executions={} vms={}",
        run.digest,
        run.lasted.as_secs(),
        history.calls.len(),
        creates.count(),
        machines.len(),
        history.executions.len(),
        history.vms.len(),
    )
}

/// What the seeds came to.
#[derive(Default)]
struct Total {
    sums: std::collections::BTreeMap<String, u64>,
    red: Vec<u64>,
}

impl Total {
    fn add(&mut self, figures: &str) {
        for (name, value) in figures.split(' ').filter_map(|figure| figure.split_once('=')) {
            if let Ok(value) = value.parse::<u64>()
                && name != "digest"
            {
                *self.sums.entry(name.to_owned()).or_default() += value;
            }
        }
    }
}

fn many(args: &Args) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let (next, total) = (AtomicU64::new(args.from), Mutex::new(Total::default()));
    let is_red = AtomicBool::new(false);
    let work = || -> anyhow::Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let enough = args.until_red && is_red.load(Ordering::Relaxed);
            if seed >= args.from + args.seeds || enough {
                return Ok(());
            }
            let (green, printed) = child(seed)?;
            if args.twice {
                let again = child(seed)?.1;
                ensure!(printed == again, "seed {seed} differs:\n{printed}\n{again}");
            }
            let mut total = total.lock().expect("no panic while locked");
            if !green {
                print!("{printed}");
                println!("seed {seed} is red: cargo xtask simulate --seed {seed}");
                total.red.push(seed);
                is_red.store(true, Ordering::Relaxed);
            }
            total.add(printed.lines().last().unwrap_or_default());
        }
    };
    thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().expect("no worker panics"))
    })?;
    let total = total.into_inner().expect("no panic while locked");
    ensure!(total.sums.contains_key("calls") || args.seeds == 0, "no seed was run");
    let sums: Vec<_> = total.sums.iter().map(|(name, sum)| format!("{name}={sum}")).collect();
    println!(
        "simulate: seeds={} red={} {} in {:.0?}",
        args.seeds,
        total.red.len(),
        sums.join(" "),
        began.elapsed()
    );
    Ok(if total.red.is_empty() { ExitCode::SUCCESS } else { RED.into() })
}

/// Runs a seed as a process of its own. Says whether it was green, and what it printed.
fn child(seed: u64) -> anyhow::Result<(bool, String)> {
    let output = Command::new(env::current_exe()?)
        .args(["--seed", &seed.to_string()])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .context("cannot start ourselves")?;
    let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        printed.insert_str(0, &String::from_utf8_lossy(&output.stderr));
    }
    Ok((output.status.success(), printed))
}

/// Log lines carry the time of the run.
struct Simulated;

impl tracing_subscriber::fmt::time::FormatTime for Simulated {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        thread_local!(static BEGAN: tokio::time::Instant = tokio::time::Instant::now());
        write!(w, "{:9.3}", BEGAN.with(tokio::time::Instant::elapsed).as_secs_f64())
    }
}
