//! Runs `tests/legacy/run`: the real broker against a driver in Python that behaves as those of
//! 2018 do.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use crate::shell::{self, cargo};

pub(crate) fn run() -> anyhow::Result<()> {
    let tests = Path::new("tests/legacy");
    let python = python(&tests.join("requirements.txt"))?;

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

/// A Python that has what `requirements` names.
fn python(requirements: &Path) -> anyhow::Result<PathBuf> {
    let wanted = fs::read_to_string(requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let venv = shell::cache()?.join("legacy-venv");
    let python = venv.join("bin/python");
    // Written last, so a half-made environment is never taken for a whole one.
    let installed = venv.join("installed.txt");

    let starts = Command::new(&python).arg("--version").output().is_ok();
    if starts && fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    if !Command::new("python3").args(["-c", "import ensurepip"]).status().is_ok_and(|s| s.success())
    {
        bail!("the legacy tier needs python3 with its venv module (Debian: package python3-venv)");
    }
    shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    shell::run(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--only-binary", ":all:", "--requirement"])
            .arg(requirements),
    )?;
    fs::write(&installed, wanted).context("cannot write into the environment just made")?;
    Ok(python)
}
