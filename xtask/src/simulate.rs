//! Seeds of the simulation, and the proof that it can fail.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::shell::{self, cargo};

#[derive(Debug, Args)]
pub(crate) struct Seeds {
    /// How many seeds are run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs just this one; RUST_LOG=info shows what happened
    #[arg(long)]
    seed: Option<u64>,
    /// Runs each seed twice, and fails if the two runs differ
    #[arg(long)]
    twice: bool,
}

pub(crate) fn run(seeds: &Seeds) -> anyhow::Result<()> {
    let mut simulate = cargo();
    simulate.args(["run", "--quiet", "--package", "broker-simulation", "--bin", "simulate"]);
    // Building it so takes longer than a few seeds do.
    if seeds.seed.is_none() && seeds.seeds >= MANY {
        simulate.args(["--profile", "simulation"]);
    }
    simulate.arg("--");
    match seeds.seed {
        Some(seed) => simulate.args(["--seed", &seed.to_string()]),
        None => simulate
            .args(["--seeds", &seeds.seeds.to_string(), "--from", &seeds.from.to_string()])
            .args(seeds.twice.then_some("--twice")),
    };
    shell::run(&mut simulate)
}

/// From so many seeds on an optimised build pays.
const MANY: u64 = 500;
/// How `simulate` ends when a promise was broken.
const RED: i32 = 3;
/// Enough to find each of the mutations many times over.
const SEEDS: &str = "2000";

/// Breaks the product in each of the ways that `tests/mutations` knows, in a copy of it, and expects the
/// simulation to find out, or the test that the patch names: not everything shows from outside.
pub(crate) fn mutants(only: Option<&str>) -> anyhow::Result<()> {
    let home = shell::cache()?.join("mutants");
    let tree = Tree::copy(home.join("tree"))?;
    let mut patches: Vec<PathBuf> = fs::read_dir("tests/mutations")?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    patches.retain(|patch| only.is_none_or(|only| patch.file_stem().is_some_and(|n| n == only)));
    patches.sort();
    ensure!(!patches.is_empty(), "there is no such mutation in tests/mutations");
    let mut missed = Vec::new();
    for patch in &patches {
        let patch = patch.canonicalize()?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&patch)?;
        let (what, _) = text.split_once("\ndiff ").context("a patch says what it breaks first")?;
        tree.apply(&patch, &[]).with_context(|| format!("{name} does not apply any more"))?;
        let test = what.lines().find_map(|line| line.strip_prefix("test: "));
        let target = home.join("target");
        let found = match test {
            Some(test) => tree.test(test, &target),
            None => tree.simulate(&target),
        };
        tree.apply(&patch, &["--reverse"])?;
        match found? {
            Some(found) => println!("mutant {name}: found by {found}"),
            None => missed.push(name),
        }
    }
    println!("mutants: {} of {} found", patches.len() - missed.len(), patches.len());
    ensure!(missed.is_empty(), "nothing found {}", missed.join(", "));
    Ok(())
}

/// The product once more, to be broken.
struct Tree(PathBuf);

impl Tree {
    /// All files of the checkout, at a place that stays the same so that little is built again.
    fn copy(to: PathBuf) -> anyhow::Result<Self> {
        let files = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .output()
            .context("cannot run git")?;
        ensure!(files.status.success(), "git lists no files");
        let files = String::from_utf8(files.stdout).context("a name that is no UTF-8")?;
        for file in files.split_terminator('\0').map(Path::new).filter(|file| file.exists()) {
            let (copy, text) = (to.join(file), fs::read(file)?);
            // What did not change keeps its time, and is not built again.
            if fs::read(&copy).ok().as_ref() != Some(&text) {
                fs::create_dir_all(copy.parent().context("a file is in a folder")?)?;
                fs::write(&copy, text)?;
            }
        }
        Ok(Self(to))
    }

    fn apply(&self, patch: &Path, how: &[&str]) -> anyhow::Result<()> {
        let mut git = Command::new("git");
        git.arg("apply").args(how).arg(patch).current_dir(&self.0);
        // The copy is no repository, wherever it lies.
        shell::run(git.env("GIT_CEILING_DIRECTORIES", self.0.parent().unwrap_or(&self.0)))
    }

    /// Runs a test of `broker-tests`, or those of a crate, and says which functions failed; `None` if none
    /// did.
    fn test(&self, test: &str, target: &Path) -> anyhow::Result<Option<String>> {
        let which: &[&str] = match test.strip_prefix("crate ") {
            Some(package) => &["--package", package, "--lib"],
            None => &["--package", "broker-tests", "--test", test],
        };
        let cargo = |args: &[&str]| {
            let mut command = cargo();
            command.arg("test").args(which).args(args);
            command.current_dir(&self.0).env("CARGO_TARGET_DIR", target);
            command
        };
        // A mutation that does not compile was not found.
        shell::run(&mut cargo(&["--quiet", "--no-run"]))?;
        let output = cargo(&[]).output().context("cannot start cargo")?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let failed = printed.lines().find_map(|line| line.strip_suffix(" ... FAILED"));
        match (output.status.success(), failed) {
            (true, _) => Ok(None),
            (false, Some(failed)) => Ok(Some(failed.to_owned())),
            (false, None) => bail!("{}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Runs seeds until one is red, and says which rule was broken; `None` if they are all green.
    fn simulate(&self, target: &Path) -> anyhow::Result<Option<String>> {
        let build =
            ["build", "--quiet", "--profile", "simulation", "--package", "broker-simulation"];
        shell::run(cargo().args(build).current_dir(&self.0).env("CARGO_TARGET_DIR", target))?;
        let output = Command::new(target.join("simulation/simulate"))
            .args(["--until-red", "--seeds", SEEDS])
            .stdin(Stdio::null())
            .output()
            .context("cannot start the simulation")?;
        let printed = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(RED) => {
                let rule = |line: &str| Some(line.split_once(" (")?.0.to_owned());
                let found =
                    printed.lines().find_map(|line| line.strip_prefix("seed ").and(rule(line)));
                found.map(Some).context("red, but no rule was broken")
            }
            Some(0) => Ok(None),
            _ => bail!("the simulation failed: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}
