//! Format, lints, and what the dependencies bring along: licences, sources, known holes.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;

use crate::{
    lints,
    shell::{self, cargo},
};

const CARGO_DENY: &str = "0.20.2";

pub(crate) fn run() -> anyhow::Result<()> {
    shell::run(cargo().args(["fmt", "--all", "--check"]))?;
    shell::run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;

    lints::check()?;

    let deny = cargo_deny()?;
    // The graphs of who uses a crate fill screens, for duplicates that are none of our doing.
    let check = ["check", "--hide-inclusion-graph"];
    shell::run(Command::new(&deny).args(check).args(["licenses", "bans", "sources"]))?;
    if advisories_are_reachable(&deny)? {
        shell::run(Command::new(&deny).args(check).arg("advisories"))?;
    }
    Ok(())
}

/// The database of advisories is a git repository that a closed network does not reach. Nothing of
/// ours is wrong then, but nobody may believe that it was checked.
fn advisories_are_reachable(deny: &Path) -> anyhow::Result<bool> {
    let fetch =
        Command::new(deny).args(["fetch", "db"]).output().context("cannot run cargo-deny")?;
    if !fetch.status.success() {
        eprintln!("NOT CHECKED: advisories, because their database cannot be fetched from here");
    }
    Ok(fetch.status.success())
}

/// Where cargo-deny is, built if this is the first time.
fn cargo_deny() -> anyhow::Result<PathBuf> {
    let home = shell::cache()?.join(format!("cargo-deny-{CARGO_DENY}"));
    let program = home.join("bin/cargo-deny");
    if !program.exists() {
        eprintln!("building cargo-deny {CARGO_DENY}, once");
        shell::run(
            cargo()
                // It runs for a second and builds for minutes: without optimisation, for half as many.
                .args(["install", "--quiet", "--locked", "--debug", "cargo-deny"])
                .args(["--version", CARGO_DENY])
                .arg("--root")
                .arg(&home)
                .env("CARGO_PROFILE_DEV_DEBUG", "false")
                // In a folder of its own that goes away afterwards, not among our artifacts.
                .env_remove("CARGO_TARGET_DIR"),
        )?;
    }
    Ok(program)
}
