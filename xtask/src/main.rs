//! The project's verbs, as `cargo xtask …`. CI says the same words.
//!
//! None of them needs a tool installed by hand: what is missing they fetch, in a pinned version,
//! into a cache outside the checkout.

use std::{env, process::ExitCode};

use clap::Parser;

mod check;
mod legacy;
mod python;
mod shell;
mod web;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's verbs")]
enum Verb {
    /// Format, lints, and what the dependencies bring along
    Check,
    /// The real broker against a driver that speaks the protocol of 2018
    Legacy,
    /// The operators' page in a real browser
    Web,
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
        Verb::Legacy => legacy::run(),
        Verb::Web => web::run(),
    }
}
