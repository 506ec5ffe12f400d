//! Runs `tests/web/run`: the operators' page in a real Chromium, against real processes.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

use crate::{
    python,
    shell::{self, cargo},
};

pub(crate) fn run() -> anyhow::Result<()> {
    let tests = Path::new("tests/web");
    let chromium = chromium()?;
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

/// A Chromium that starts, installed if we may.
fn chromium() -> anyhow::Result<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = || names.into_iter().find(|name| answers(name, "--version"));
    if let Some(name) = found() {
        return Ok(name);
    }
    let user = Command::new("id").arg("-u").output().context("cannot tell who we are")?;
    if user.stdout != b"0\n" || !answers("apt-get", "--version") {
        bail!("the web tier needs Chromium (Debian: package chromium)");
    }
    shell::run(Command::new("apt-get").args(["update", "-qq"]))?;
    shell::run(
        Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends", "chromium"])
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )?;
    found().context("Chromium was installed and does not start")
}

fn answers(program: &str, flag: &str) -> bool {
    let mut command = Command::new(program);
    let quiet = command.arg(flag).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
