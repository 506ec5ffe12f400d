//! Runs `tests/chaos`: real processes under load, killed and troubled.

use std::path::Path;

use crate::{
    python,
    shell::{self, cargo},
};

/// All are for the program; its help is theirs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(verb: &str, args: &Args) -> anyhow::Result<()> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "broker-chaos", "--", verb]).args(&args.args);
    if args.args.iter().any(|arg| arg == "--legacy") {
        let requirements = Path::new("tests/legacy/requirements.txt");
        command.env("BROKER_CHAOS_PYTHON", python::with("legacy", requirements)?);
    }
    shell::run(&mut command)
}
