//! Runs `tests/legacy/run`: the real broker against a driver in Python that behaves as those of
//! 2018 do.

use std::{env, path::Path, process::Command};

use anyhow::Context;

use crate::{
    python,
    shell::{self, cargo},
};

pub(crate) fn run() -> anyhow::Result<()> {
    let tests = Path::new("tests/legacy");
    let python = python::with("legacy", &tests.join("requirements.txt"))?;

    shell::run(cargo().args(["build", "--package", "broker", "--package", "brokerctl"]))?;
    // Cargo has put them beside this program: same target folder, same profile.
    let built = env::current_exe().context("cannot tell where this program lies")?;
    shell::run(
        Command::new(python)
            .arg(tests.join("run"))
            .arg("--machine-broker")
            .arg(built.with_file_name("machine-broker"))
            .arg("--brokerctl")
            .arg(built.with_file_name("brokerctl"))
            // No __pycache__ in the checkout.
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )
}
