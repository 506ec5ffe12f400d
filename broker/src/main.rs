//! `machine-broker`: parse, start logging, run.

use std::process::ExitCode;

use broker::{commands, commands::Command};
use clap::Parser;
use mimalloc::MiMalloc;

/// An operation costs fewer instructions with it than with the system's allocator. Without huge pages:
/// with them an idle driver costs half as much memory again.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
