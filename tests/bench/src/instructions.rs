//! What an operation costs the broker in instructions and in system calls.
//!
//! Unlike times these are nearly the same on any machine and whatever else runs on it, so that a
//! change can be held against them. Each figure is the difference of two runs that differ in the
//! number of operations alone: what starting and stopping costs is in both.

mod baseline;
mod callgrind;
mod strace;

use std::{fs, path::PathBuf, process::Command};

use anyhow::Context as _;

use self::baseline::Baseline;
use crate::{
    house::{Drivers, House},
    load::{self, Path},
    report::{
        Report,
        output::Output,
        targets::{Bench, INSTRUCTIONS_SUBMIT, INSTRUCTIONS_UNARY, SYSCALLS_UNARY},
    },
    site::{BrokerUnderTest, Carrier, Site, Who, any_port},
};

const IN_FLIGHT: usize = 64;
/// Counts depend on how many threads share the work, so that is the same everywhere.
const WORKERS: &str = "2";

/// Count instructions (callgrind) and system calls (strace) of the broker for each operation
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make what is counted now the baseline
    #[arg(long)]
    write_baseline: bool,
    #[command(flatten)]
    output: Output,
    /// What was counted before; fails if anything rose by more than 10 %
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,
    /// Keep callgrind's files in this folder, for callgrind_annotate
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    for (name, path, lengths) in [
        (INSTRUCTIONS_UNARY, Path::Unary, [4_000, 12_000]),
        (INSTRUCTIONS_SUBMIT, Path::Submit, [8_000, 40_000]),
    ] {
        let count = per_operation(lengths, |length| {
            let site = run_under(&callgrind::Callgrind, path, length)?;
            if let Some(folder) = &args.keep {
                let file = folder.join(format!("callgrind.out.{}.{length}", path.name()));
                fs::copy(site.folder().join(callgrind::OUTPUT), &file)
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
            callgrind::Callgrind.count(&site)
        })?;
        eprintln!("{name} ({IN_FLIGHT} in flight): {count:.0}");
        report.add(name, IN_FLIGHT, &[count]);
    }
    let count = per_operation([10_000, 60_000], |length| {
        strace::Strace.count(&run_under(&strace::Strace, Path::Unary, length)?)
    })?;
    report.add(SYSCALLS_UNARY, IN_FLIGHT, &[count]);
    args.output.tell("instructions", &report, &[report.table()])?;
    report.complete(Bench::Instructions)?;
    if args.write_baseline {
        return Baseline::of(&report).write(&args.baseline);
    }
    Baseline::read(&args.baseline)?.compare(&report)
}

/// What one more operation costs.
fn per_operation(
    [short, long]: [u64; 2],
    mut run: impl FnMut(u64) -> anyhow::Result<u64>,
) -> anyhow::Result<f64> {
    let (less, more) = (run(short)?, run(long)?);
    Ok((more as f64 - less as f64) / (long - short) as f64)
}

/// A program that runs the broker and counts what it does.
trait Counter {
    fn name(&self) -> &'static str;
    /// The command, up to the broker's own arguments.
    fn command(&self, site: &Site) -> anyhow::Result<Command>;
    /// What was counted, once the broker has ended.
    fn count(&self, site: &Site) -> anyhow::Result<u64>;
}

/// Counts over the life of a broker that serves so many operations; the count lies in its site.
fn run_under(counter: &dyn Counter, path: Path, operations: u64) -> anyhow::Result<Site> {
    eprintln!("{}: {operations} operations, {path:?}", counter.name());
    let site = Site::new(1)?;
    let mut command = counter.command(&site)?;
    command.env("TOKIO_WORKER_THREADS", WORKERS);
    let broker =
        BrokerUnderTest::start_by(&mut command, &site, "broker", Carrier::Plain, any_port())?;
    let house = House::of(site, broker).with(&Drivers::of_own_kinds(1))?;
    let mut load = house.site.role("load", &house.broker, Who::Controller)?;
    load.arg(path.name()).arg(format!("--in-flight={IN_FLIGHT}"));
    load::result_of(load.arg(format!("--count={operations}")))?;
    house.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_grow_with_the_number_of_operations_is_no_part_of_the_cost() {
        let cost = per_operation([10, 110], |length| Ok(1_000_000 + 7 * length)).unwrap();
        assert_eq!(cost, 7.0);
    }
}
