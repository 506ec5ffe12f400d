//! The load: so many operations in flight at any time, each followed by the next, and what that took.
//!
//! It is a process of its own, and prints what it measured as one line of JSON.

mod answers;
mod callers;
mod lists;
mod lookups;
mod nats;
mod ready;
mod relay;
mod samples;
mod slots;
mod submit;
mod unary;
mod window;

use std::{
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tonic::transport::Channel;

use self::window::Window;
use crate::{
    dial::{Bearer, Dialing},
    process::{PATIENCE, cpu_time},
    way::MACHINES,
    workload::{ASKERS, KINDS, MOST_MACHINES, Workload},
};

/// How operations get to whoever executes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Path {
    /// A unary create, to the broker or straight to a driver that is a server
    Unary,
    /// Creates on Submit streams
    Submit,
    /// A unary list
    List,
    /// Requests over NATS
    Nats,
    /// Frames over a TCP connection
    Relay,
    /// A driver's questions for classes
    Class,
    /// A driver's questions for secrets
    Secret,
}

impl Path {
    /// As it is said on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Keeps so many operations in flight, and measures
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum)]
    path: Path,
    #[command(flatten)]
    dialing: Dialing,
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Asks for any of so many kinds
    #[arg(long, default_value_t = 1)]
    kinds: u64,
    #[arg(long, default_value_t = 0)]
    first_kind: u64,
    /// Asks for so many machines in all, each of one kind
    #[arg(long, default_value_t = MACHINES)]
    machines: u64,
    /// Stops after so many operations
    #[arg(long, conflicts_with_all = ["seconds", "warm_up"])]
    count: Option<u64>,
    /// Measures for so long
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Works for so long before it measures
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
    /// Processes whose CPU time is measured along with that of this one
    #[arg(long, value_delimiter = ',')]
    cpu_of: Vec<u32>,
}

/// What a load took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    /// Microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// CPU seconds of this process, and of each of `--cpu-of`.
    pub(crate) cpu: Vec<f64>,
}

impl Measured {
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Microseconds of CPU time of all processes for each operation.
    pub(crate) fn cpu_per_operation(&self) -> f64 {
        self.cpu.iter().sum::<f64>() * 1e6 / self.operations as f64
    }
}

/// What the paths need to know of it.
#[derive(Clone, Debug)]
struct Plan {
    channels: Vec<Channel>,
    bearer: Bearer,
    in_flight: usize,
    workload: Workload,
    window: Window,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let ids = [&[std::process::id()], args.cpu_of.as_slice()].concat();
    // An operation that hangs fails at its own deadline; this is for everything else.
    let work = PATIENCE + Duration::from_secs_f64(args.seconds + args.warm_up);
    let measured = timeout(work, measure(&args, &ids)).await.context("the load hangs")??;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// The load's own process, and what it printed.
pub(crate) fn result_of(command: &mut Command) -> anyhow::Result<Measured> {
    let output = command.output().context("cannot start the load")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("the load printed something else")
}

async fn measure(args: &Args, ids: &[u32]) -> anyhow::Result<Measured> {
    ensure!(
        args.in_flight > 0 && args.kinds > 0 && args.connections > 0,
        "0 of anything is no load"
    );
    ensure!(
        args.in_flight <= ASKERS
            && args.kinds.saturating_add(args.first_kind) <= KINDS
            && args.machines <= MOST_MACHINES,
        "more in flight, kinds or machines than there are numbers"
    );
    ensure!(args.machines >= args.kinds, "some kinds have no machine");
    // Before the time runs: with TLS, connections take theirs.
    let channels = match args.path {
        Path::Nats | Path::Relay => Vec::new(),
        _ => args.dialing.connect_all(args.connections.min(args.in_flight)).await?,
    };
    let window = match args.count {
        Some(count) => Window::of(count),
        None => Window::new(args.warm_up, args.seconds),
    };
    let plan = Plan {
        channels,
        bearer: args.dialing.bearer()?,
        in_flight: args.in_flight,
        workload: Workload::new(
            args.first_kind..args.first_kind + args.kinds,
            args.machines,
            args.in_flight,
            this_run()?,
        ),
        window: window.clone(),
    };
    let work = async {
        let began = Instant::now();
        let samples = match args.path {
            Path::Unary => unary::run(&plan).await?,
            Path::List => lists::run(&plan).await?,
            Path::Submit => submit::run(&plan).await?,
            Path::Nats => nats::run(&plan, args.dialing.address.parse()?).await?,
            Path::Relay => relay::run(&plan, &args.dialing.address).await?,
            Path::Class => lookups::run(&plan, lookups::What::Class).await?,
            Path::Secret => lookups::run(&plan, lookups::What::Secret).await?,
        };
        window.close();
        Ok((samples, window.length().unwrap_or_else(|| began.elapsed())))
    };
    let ((samples, seconds), cpu) = tokio::try_join!(work, cpu_within(&window, ids))?;
    let operations = samples.len();
    let [p50, p99] = samples.percentiles([0.5, 0.99]).map(|time| time.as_secs_f64() * 1e6);
    Ok(Measured { operations, seconds: seconds.as_secs_f64(), p50, p99, cpu })
}

/// Sets this load's request ids apart from all others.
fn this_run() -> anyhow::Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::from(std::process::id()) << 40 ^ u64::try_from(now.as_micros())?)
}

/// The CPU time that each process uses from the beginning to the end of the measurement.
async fn cpu_within(window: &Window, ids: &[u32]) -> anyhow::Result<Vec<f64>> {
    let used = || ids.iter().map(|id| cpu_time(*id)).collect::<anyhow::Result<Vec<_>>>();
    window.opened().await;
    let before = used()?;
    window.closed().await;
    let after = used()?;
    Ok(after.iter().zip(before).map(|(after, before)| (*after - before).as_secs_f64()).collect())
}
