//! Runs `tests/web/run`: the operators' page in a real Chromium, against real processes.

use std::{env, path::Path, process::Command};

use anyhow::Context;

use crate::{
    debian, python,
    shell::{self, cargo},
};

pub(crate) fn run() -> anyhow::Result<()> {
    let tests = Path::new("tests/web");
    let chromium =
        debian::any_program(&["chromium", "chromium-browser", "google-chrome"], "chromium")?;
    let python = python::with("web", &tests.join("requirements.txt"))?;

    let packages = ["--package", "broker", "--package", "brokerctl", "--package", "sim-driver"];
    shell::run(cargo().arg("build").args(packages))?;
    // Cargo has put them beside this program: same target folder, same profile.
    let built = env::current_exe().context("cannot tell where this program lies")?;
    let programs = built.parent().context("this program lies in no folder")?;
    shell::run(
        Command::new(python)
            .arg(tests.join("run"))
            .arg("--programs")
            .arg(programs)
            .args(["--chromium", chromium, "--pictures"])
            .arg(shell::cache()?.join("web-pictures"))
            // No __pycache__ in the checkout.
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )
}
