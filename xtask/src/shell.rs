//! Starting other programs, and where things lie.

use std::{
    env, iter,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};

/// The checkout's root.
///
/// Asked when we run, not when we are compiled: two checkouts that share a target folder share this
/// program as well.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let xtask = env::var_os("CARGO_MANIFEST_DIR").context("not started by `cargo xtask`")?;
    let root = Path::new(&xtask).parent().context("xtask does not lie in a checkout")?;
    Ok(root.to_owned())
}

/// A folder outside the checkout for what is fetched once and kept.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|base| !base.is_empty()) {
        Some(base) => PathBuf::from(base),
        None => env::home_dir().context("neither XDG_CACHE_HOME nor HOME is set")?.join(".cache"),
    };
    Ok(base.join("machine-broker"))
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What it told us of ourselves. The build script of ring runs again when that changes, and with it
    // all that depends on ring: there and back with every verb.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    cargo
}

/// Shows the command, runs it and fails if it does.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let line = line_of(command);
    eprintln!("+ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    ensure!(status.success(), "`{line}` failed: {status}");
    Ok(())
}

fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program());
    iter::once(program.file_name().unwrap_or(program.as_os_str()))
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
