//! Runs `tests/kubernetes`: scenarios against an API server of their own.

use std::{env, process::Command};

use anyhow::Context;

use super::{definitions, tools};
use crate::shell::{self, cargo};

pub(super) fn run(only: &[String]) -> anyhow::Result<()> {
    let tools = tools::find_or_build()?;
    let definitions = definitions::find_or_fetch()?;
    // In two steps, as other tests have them built: together they would get other features.
    let packages = ["broker", "brokerctl", "sim-driver"].into_iter();
    let packages = packages.flat_map(|name| ["--package", name]);
    shell::run(cargo().args(["build", "--bins"]).args(packages))?;
    shell::run(cargo().args(["build", "--package", "broker-e2e"]))?;
    // Cargo has put them beside this program: same target folder, same profile.
    let built = env::current_exe().context("cannot tell where this program lies")?;
    shell::run(
        Command::new(built.with_file_name("broker-e2e"))
            .arg("--tools")
            .arg(tools)
            .arg("--definitions")
            .arg(definitions)
            .args(only),
    )
}
