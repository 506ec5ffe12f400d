//! Runs `tests/fuzz`: mutated input for everything that reads what others wrote.

use std::path::PathBuf;

use crate::shell::{self, cargo};

/// A longer run is worth an optimised build, which tries many times as much.
const WORTH_OPTIMISING: u64 = 120;

#[derive(Debug, clap::Args)]
pub(crate) struct Fuzz {
    /// How long to look, over all targets
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Only this one: session, handshake, class-name, catalog, policy or tokens
    #[arg(long)]
    target: Option<String>,
    /// Run this file alone, through the target that was named
    #[arg(long, requires = "target", value_name = "FILE")]
    input: Option<PathBuf>,
    /// Find what an earlier run found [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(fuzz: &Fuzz) -> anyhow::Result<()> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "broker-fuzz"]);
    if fuzz.seconds > WORTH_OPTIMISING {
        command.arg("--release");
    }
    command.arg("--");
    command.arg("--seconds").arg(fuzz.seconds.to_string());
    command.arg("--failures").arg(shell::cache()?.join("fuzz-failures"));
    if let Some(target) = &fuzz.target {
        command.args(["--target", target]);
    }
    if let Some(input) = &fuzz.input {
        command.arg("--input").arg(input);
    }
    if let Some(seed) = fuzz.seed {
        command.arg("--seed").arg(seed.to_string());
    }
    shell::run(&mut command)
}
