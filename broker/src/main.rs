//! `machine-broker`: parse, start logging, run.

use std::process::ExitCode;

use broker::{commands, commands::Command};
use clap::Parser;

/// The broker that cloud-provider drivers dial into
#[derive(Debug, Parser)]
#[command(name = "machine-broker", version, after_help = commands::EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    commands::main(Args::parse().command)
}
