//! Python environments, made once and kept in the cache.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use crate::shell;

/// A Python that has what `requirements` names, for the tests of one tier.
pub(crate) fn with(tier: &str, requirements: &Path) -> anyhow::Result<PathBuf> {
    let wanted = fs::read_to_string(requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let venv = shell::cache()?.join(format!("{tier}-venv"));
    let python = venv.join("bin/python");
    // Written last, so a half-made environment is never taken for a whole one.
    let installed = venv.join("installed.txt");

    let starts = Command::new(&python).arg("--version").output().is_ok();
    if starts && fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    if !Command::new("python3").args(["-c", "import ensurepip"]).status().is_ok_and(|s| s.success())
    {
        bail!("the {tier} tier needs python3 with its venv module (Debian: package python3-venv)");
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
