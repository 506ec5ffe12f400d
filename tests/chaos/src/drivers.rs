//! The drivers of a run: native ones, or one of 2018.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use broker_tests::{API_VERSION, KIND, process::Process, world::World};

/// How many operations a native driver runs at once.
pub(crate) const CAPACITY: usize = 64;
/// A driver of 2018 runs one at a time, so it has to be quick.
const LEGACY_DELAY: &str = "0.05";
const LEGACY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../legacy");

#[derive(Debug)]
pub(crate) enum Kind {
    Native,
    /// With its Python; the stubs are in the world's folder.
    Legacy {
        python: PathBuf,
        idempotent: bool,
    },
}

impl Kind {
    /// Compiles what a driver of 2018 speaks into the world's folder.
    pub(crate) fn legacy(world: &World, idempotent: bool) -> anyhow::Result<Self> {
        let python = env::var_os("BROKER_CHAOS_PYTHON")
            .context("BROKER_CHAOS_PYTHON names no Python: say `cargo xtask chaos … --legacy`")?;
        let stubs = world.path("stubs");
        fs::create_dir(&stubs)?;
        let made = Command::new(&python)
            .arg(format!("{LEGACY}/stubs.py"))
            .arg(&stubs)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .status()
            .context("cannot start Python")?;
        ensure!(made.success(), "the protocol of 2018 does not compile");
        Ok(Self::Legacy { python: python.into(), idempotent })
    }

    /// Two native ones, so that a retry could go to the wrong one. Drivers of 2018 on one host cannot
    /// be told apart.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Native => 2,
            Self::Legacy { .. } => 1,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Native => CAPACITY,
            Self::Legacy { .. } => 1,
        }
    }

    pub(crate) fn start(&self, world: &World, broker: &str, number: usize) -> Process {
        match self {
            Self::Native => {
                let capacity = CAPACITY.to_string();
                world.driver(broker, &format!("sim-{number}"), &["--capacity", &capacity])
            }
            Self::Legacy { python, idempotent } => {
                let (group, version) = API_VERSION.split_once('/').expect("group/version");
                let (cloud, stubs) = (world.path("cloud"), world.path("stubs"));
                let mut driver = Command::new(python);
                driver.arg(format!("{LEGACY}/driver.py"));
                driver.args(["--broker", broker, "--cloud", &cloud, "--kind", KIND]);
                driver.args(["--group", group, "--version", version]);
                driver.args(["--delay", LEGACY_DELAY, "--retry", "0.2", "--journal"]);
                driver.arg(world.journal()).args(idempotent.then_some("--idempotent"));
                driver.env("PYTHONPATH", stubs).env("PYTHONDONTWRITEBYTECODE", "1");
                Process::start(&mut driver)
            }
        }
    }

    /// What the provider holds: ids and machines.
    pub(crate) fn vms(&self, world: &World) -> anyhow::Result<Vec<(String, String)>> {
        match self {
            Self::Native => {
                let vms = world.cloud().all()?.into_iter();
                Ok(vms.map(|vm| (vm.provider_id(), vm.name)).collect())
            }
            Self::Legacy { .. } => {
                let mut vms = Vec::new();
                for entry in fs::read_dir(world.path("cloud"))? {
                    let path = entry?.path();
                    if path.extension().is_some_and(|extension| extension == "json") {
                        let vm: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
                        let field = |name: &str| {
                            vm[name].as_str().map(str::to_owned).context("a VM has id and name")
                        };
                        vms.push((field("id")?, field("name")?));
                    }
                }
                Ok(vms)
            }
        }
    }
}
