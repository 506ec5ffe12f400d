//! Programs that a tier needs and that no crate brings along: installed if we may.

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::shell;

/// Makes sure that a program starts, whatever its version.
pub(crate) fn program(name: &str, package: &str) -> anyhow::Result<()> {
    any_program(&[name], package).map(drop)
}

/// The first of these that starts, with the Debian package installed if none does.
pub(crate) fn any_program<'a>(names: &[&'a str], package: &str) -> anyhow::Result<&'a str> {
    let found = || names.iter().copied().find(|name| answers(name));
    if let Some(name) = found() {
        return Ok(name);
    }
    let user = Command::new("id").arg("-u").output().context("cannot tell who we are")?;
    if user.stdout != b"0\n" || !answers("apt-get") {
        bail!("{} is needed (Debian: package {package})", names[0]);
    }
    shell::run(Command::new("apt-get").args(["update", "-qq"]))?;
    shell::run(
        Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends", package])
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )?;
    found().with_context(|| format!("{package} was installed and {} does not start", names[0]))
}

fn answers(program: &str) -> bool {
    let mut command = Command::new(program);
    let quiet = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
