//! The project's verbs, as `cargo xtask …`. CI says the same words.
//!
//! None of them needs a tool installed by hand: what is missing they fetch, in a pinned version,
//! into a cache outside the checkout.

use std::{env, process::ExitCode};

use clap::Parser;

mod bench;
mod chaos;
mod check;
mod crds;
mod debian;
mod e2e;
mod fuzz;
mod legacy;
mod lints;
mod python;
mod shell;
mod simulate;
mod web;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's verbs")]
enum Verb {
    /// Format, lints, and what the dependencies bring along
    Check,
    /// The real broker against a driver that speaks the protocol of 2018
    Legacy,
    /// Writes the CustomResourceDefinitions from their Rust types to manifests/crds
    Crds,
    /// The system among real peers
    E2e {
        #[command(subcommand)]
        tier: e2e::Tier,
    },
    /// The system over a simulated network, by seed
    Simulate(simulate::Seeds),
    /// Breaks promises one at a time, and expects the simulation to find out
    Mutants {
        /// Only this one of tests/mutations
        name: Option<String>,
    },
    /// Kills the broker, or drivers, while a thousand machines are made; --help tells all
    #[command(disable_help_flag = true)]
    Chaos(chaos::Args),
    /// Load and random faults for minutes, and whether the broker stays as it is; --help tells all
    #[command(disable_help_flag = true)]
    Soak(chaos::Args),
    /// The operators' page in a real browser
    Web,
    /// Mutated input for everything that reads what others wrote
    Fuzz(fuzz::Fuzz),
    /// What an operation costs, beside what a user would pick instead
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    match run(Verb::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not by returning it: a backtrace of ours would bury what the failed program said.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<()> {
    // From here on paths are those of the checkout, wherever in it the verb was typed.
    env::set_current_dir(shell::root()?)?;
    match verb {
        Verb::Check => check::run(),
        Verb::Crds => crds::run(),
        Verb::E2e { tier } => e2e::run(&tier),
        Verb::Legacy => legacy::run(),
        Verb::Simulate(seeds) => simulate::run(&seeds),
        Verb::Mutants { name } => simulate::mutants(name.as_deref()),
        Verb::Chaos(args) => chaos::run("chaos", &args),
        Verb::Soak(args) => chaos::run("soak", &args),
        Verb::Web => web::run(),
        Verb::Fuzz(fuzz) => fuzz::run(&fuzz),
        Verb::Bench(bench) => bench::run(&bench),
    }
}
