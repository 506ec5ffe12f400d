//! Builds the broker as it is shipped, and `tests/bench` that measures it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::{
    debian,
    shell::{self, cargo},
};

/// What was counted before.
const BASELINE: &str = "tests/bench/baseline.json";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    paths: Measure,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Up to 10,000 drivers: memory, dispatch, registering again, heartbeats
    Scale(Measure),
    /// Throughput against kinds, drivers, operations in flight and classes
    Growth(Measure),
    /// Instructions and system calls of the broker for each operation, against the baseline
    Instructions {
        /// Make what is counted now the baseline
        #[arg(long)]
        write_baseline: bool,
        #[command(flatten)]
        output: Output,
        /// Keep what callgrind and strace write in this folder; callgrind_annotate shows the former
        #[arg(long, value_name = "FOLDER")]
        keep: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Measure {
    /// How often everything is measured; the median counts
    #[arg(long, value_name = "NUMBER")]
    rounds: Option<usize>,
    /// Little and once: to see that it works, not for its figures
    #[arg(long)]
    quick: bool,
    /// Only what has these words in its name
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["document", "plot"])]
    only: Option<String>,
    #[command(flatten)]
    output: Output,
    /// Draw it; there is nothing to draw of `scale`
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Output {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Put the tables in place of those in this document (docs/performance.md)
    #[arg(long, value_name = "FILE.md")]
    document: Option<PathBuf>,
}

impl Output {
    fn flags(&self) -> impl Iterator<Item = String> {
        let document = self.document.as_ref().map(|file| format!("--document={}", file.display()));
        self.json.then(|| "--json".to_owned()).into_iter().chain(document)
    }
}

/// Which peers of the broker are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peers {
    None,
    Nats,
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match &bench.what {
        None => {
            debian::program("nats-server", "nats-server")?;
            measure("paths", &bench.paths, Peers::Nats)
        }
        Some(What::Scale(how)) => measure("scale", how, Peers::None),
        Some(What::Growth(how)) => measure("growth", how, Peers::None),
        Some(What::Instructions { write_baseline, output, keep }) => {
            debian::program("valgrind", "valgrind")?;
            debian::program("strace", "strace")?;
            let mut command = Command::new(build(Peers::None)?);
            command.args(["instructions", "--baseline", BASELINE]);
            command.args(write_baseline.then_some("--write-baseline"));
            command.args(output.flags());
            command.args(keep.as_ref().map(|folder| format!("--keep={}", folder.display())));
            shell::run(&mut command)
        }
    }
}

fn measure(what: &str, how: &Measure, peers: Peers) -> anyhow::Result<()> {
    let mut command = Command::new(build(peers)?);
    command.arg(what).args(how.output.flags()).args(how.quick.then_some("--quick"));
    command.args(how.rounds.map(|rounds| format!("--rounds={rounds}")));
    command.args(how.only.as_ref().map(|words| format!("--only={words}")));
    command.args(how.plot.as_ref().map(|file| format!("--plot={}", file.display())));
    shell::run(&mut command)
}

/// Builds both, and says where the benchmark lies; the broker lies beside it.
///
/// Each by itself, so that neither gets what only the other asks for of the libraries that they share: the
/// broker is what is shipped, and its peers are what anybody else would build.
fn build(with: Peers) -> anyhow::Result<PathBuf> {
    let build = |package| {
        let mut build = cargo();
        build.args(["build", "--quiet", "--release", "--bins", "--package", package]);
        build
    };
    shell::run(&mut build("broker"))?;
    shell::run(
        build("broker-bench").args((with == Peers::None).then_some("--no-default-features")),
    )?;
    // This program is in the same target folder, in another profile.
    let this = env::current_exe().context("cannot tell where this program lies")?;
    let target = this.parent().and_then(Path::parent).context("this program lies in no target")?;
    Ok(target.join("release/broker-bench"))
}
