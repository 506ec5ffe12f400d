//! What an operation costs the broker in instructions and in system calls.
//!
//! Unlike times, what callgrind counts is nearly the same on any machine and whatever else runs on it: it
//! lets threads take turns, and the broker is always the slowest of all. So a change can be held against
//! it. What strace counts is what really happens, but depends on who happens to be waiting for whom.
//! Each figure is the difference of two runs that differ in the number of operations alone: what
//! starting and stopping costs is in both.

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
    site::{BrokerUnderTest, Carrier, Site, Who, any_port, ensure_audited},
};

const IN_FLIGHT: usize = 64;
const TRAFFIC_UNARY: &str = "reads and writes of connections per operation, unary";
const TRAFFIC_SUBMIT: &str = "reads and writes of connections per operation, submit";
/// What depends on who happens to be waiting for whom: it is told, and not held against the baseline.
const UNSTEADY: [&str; 3] = [SYSCALLS_UNARY, TRAFFIC_UNARY, TRAFFIC_SUBMIT];
/// System calls under valgrind alone, and not free either.
const CLOCK_UNARY: &str = "looks at the clock per operation, unary";
const CLOCK_SUBMIT: &str = "looks at the clock per operation, submit";

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
    /// Keep what callgrind and strace write in this folder; callgrind_annotate shows the former
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    for (path, names, lengths) in [
        (Path::Unary, [INSTRUCTIONS_UNARY, TRAFFIC_UNARY, CLOCK_UNARY], [4_000, 12_000]),
        (Path::Submit, [INSTRUCTIONS_SUBMIT, TRAFFIC_SUBMIT, CLOCK_SUBMIT], [8_000, 32_000]),
    ] {
        let counts = per_operation(lengths, |length| {
            run_under(&callgrind::Callgrind, path, length, args.keep.as_deref())
        })?;
        for (name, count) in names.into_iter().zip(counts) {
            report.add(name, IN_FLIGHT, &[count]);
        }
    }
    let [calls] = per_operation([10_000, 60_000], |length| {
        run_under(&strace::Strace, Path::Unary, length, args.keep.as_deref())
    })?;
    report.add(SYSCALLS_UNARY, IN_FLIGHT, &[calls]);
    args.output.tell("instructions", &report, &[report.table()])?;
    report.complete(Bench::Instructions)?;
    if args.write_baseline {
        return Baseline::of(&report).write(&args.baseline);
    }
    Baseline::read(&args.baseline)?.compare(&report)
}

/// What one more operation costs.
fn per_operation<const N: usize>(
    [short, long]: [u64; 2],
    mut run: impl FnMut(u64) -> anyhow::Result<[u64; N]>,
) -> anyhow::Result<[f64; N]> {
    let (less, more) = (run(short)?, run(long)?);
    let difference = |at: usize| (more[at] as f64 - less[at] as f64) / (long - short) as f64;
    Ok(std::array::from_fn(difference))
}

/// A program that runs the broker and counts so many things of what it does.
trait Counter<const N: usize> {
    fn name(&self) -> &'static str;
    /// The file that it writes, in the site's folder.
    fn output(&self) -> &'static str;
    /// The command, up to the broker's own arguments.
    fn command(&self, site: &Site) -> anyhow::Result<Command>;
    /// What was counted, once the broker has ended.
    fn counts(&self, site: &Site) -> anyhow::Result<[u64; N]>;
}

/// Counts over the life of a broker that serves so many operations.
fn run_under<const N: usize>(
    counter: &impl Counter<N>,
    path: Path,
    operations: u64,
    keep: Option<&std::path::Path>,
) -> anyhow::Result<[u64; N]> {
    eprintln!("{}: {operations} operations, {path:?}", counter.name());
    let site = Site::new(1)?;
    let mut command = counter.command(&site)?;
    let broker =
        BrokerUnderTest::start_by(&mut command, &site, "broker", Carrier::Plain, any_port())?;
    let house = House::of(site, broker).with(&Drivers::of_own_kinds(1))?;
    let mut load = house.site.role("load", &house.broker, Who::Controller)?;
    load.arg(path.name()).arg(format!("--in-flight={IN_FLIGHT}"));
    load::result_of(load.arg(format!("--count={operations}")))?;
    let log = house.broker.process.log().to_owned();
    let site = house.close()?;
    ensure_audited(&log)?;
    let counts = counter.counts(&site)?;
    if let Some(folder) = keep {
        let file = folder.join(format!("{}.{}.{operations}", counter.output(), path.name()));
        fs::copy(site.folder().join(counter.output()), &file)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_grow_with_the_number_of_operations_is_no_part_of_the_cost() {
        let run = |length| Ok([1_000_000 + 7 * length, 5]);
        assert_eq!(per_operation([10, 110], run).unwrap(), [7.0, 0.0]);
    }
}
