//! Mutated input for everything that reads what others wrote.
//!
//! cargo-fuzz needs a nightly toolchain, and its targets `unsafe`. This runs anywhere: proptest chooses
//! a seed of the corpus and mutations of it, and shrinks what fails. It is not guided by coverage, so
//! the corpus does that part: every form that a reader knows should be in it.
//!
//! 1. All files of `corpus/<target>` are run as they are: what was found once is never found again.
//! 2. Then mutations of them, until the time is over.
//! 3. What fails, shrunk, is written into a file that `--input` runs again.

mod mutation;
mod targets;
mod watch;

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Parser;
use proptest::{
    strategy::Strategy as _,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};

use self::{
    targets::{TARGETS, Target},
    watch::Watch,
};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
/// Nothing that is read may take longer, on a machine that is busy with other things.
const SLOW: Duration = Duration::from_secs(10);
/// Inputs per batch; the clock is looked at in between.
const BATCH: u32 = 128;

#[derive(Debug, Parser)]
struct Args {
    /// How long to look, over all targets
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Only this one
    #[arg(long)]
    target: Option<String>,
    /// Run this file alone, through the target that was named
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
    /// Find what an earlier run found [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Where input that fails is written
    #[arg(long, default_value = "fuzz-failures")]
    failures: PathBuf,
    /// Write those seeds of the corpus that are frames, and not text, anew
    #[arg(long, hide = true)]
    write_seeds: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    if args.write_seeds {
        return targets::write_seeds(Path::new(CORPUS));
    }
    let chosen: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| args.target.as_ref().is_none_or(|name| name == target.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        bail!("there is no such target; there are: {}", names.join(", "));
    }
    if let (Some(file), [target]) = (&args.input, &chosen[..]) {
        let input = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        // As it is, so that a panic shows its backtrace.
        (target.run)(&input);
        println!("{}: {} passes", target.name, file.display());
        return Ok(());
    }
    // What fails is told once, at the end, and not for each step of its shrinking.
    panic::set_hook(Box::new(|_| {}));
    let seed = args.seed.unwrap_or_else(rand::random);
    println!("seed {seed}; the same again: --seed {seed}");
    fs::create_dir_all(&args.failures).context("cannot make the folder for failures")?;
    let watch = Watch::start(&args.failures)?;
    let share = Duration::from_secs(args.seconds) / u32::try_from(chosen.len()).unwrap_or(1);
    let mut failed = Vec::new();
    for target in chosen {
        match look(target, seed, share, &watch) {
            Ok(tried) => println!("{}: {tried} inputs, all well", target.name),
            Err(Found { input, why }) => {
                let file = args.failures.join(format!("{}-{seed}", target.name));
                fs::write(&file, input).context("cannot write what failed")?;
                println!("{}: FAILED: {why}", target.name);
                println!(
                    "  again: cargo xtask fuzz --target {} --input {}",
                    target.name,
                    file.display()
                );
                failed.push(target.name);
            }
        }
    }
    watch.over();
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

struct Found {
    input: Vec<u8>,
    why: String,
}

/// Runs the corpus, and then mutations of it for a while.
fn look(target: &Target, seed: u64, time: Duration, watch: &Watch) -> Result<usize, Found> {
    let corpus = corpus(target);
    let mut tried = 0;
    for input in &corpus {
        tried += 1;
        attempt(target, input, watch).map_err(|why| Found { input: input.clone(), why })?;
    }
    let end = Instant::now() + time;
    let mut batch = seed;
    let strategy = mutation::several(corpus.len(), target.words).prop_map(|changes| {
        let mut input = Vec::new();
        changes.apply(&corpus, target.words, &mut input);
        input
    });
    while Instant::now() < end {
        let config = Config { cases: BATCH, failure_persistence: None, ..Config::default() };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&batch.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let outcome = runner
            .run(&strategy, |input| attempt(target, &input, watch).map_err(TestCaseError::fail));
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(why, input)) => {
                return Err(Found { input, why: why.message().to_owned() });
            }
            Err(TestError::Abort(why)) => {
                return Err(Found { input: Vec::new(), why: why.message().to_owned() });
            }
        }
        tried += BATCH as usize;
        batch = batch.wrapping_add(1);
    }
    Ok(tried)
}

/// Runs one input: `Err` is what is wrong.
fn attempt(target: &Target, input: &[u8], watch: &Watch) -> Result<(), String> {
    let began = Instant::now();
    watch.begins(target.name, input);
    let end = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    watch.ends();
    if let Err(panic) = end {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        return Err(format!("it panicked: {}", text.unwrap_or("without a word")));
    }
    let took = began.elapsed();
    if took > SLOW { Err(format!("it took {took:?}")) } else { Ok(()) }
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(CORPUS).join(target.name);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("no corpus in {}: {error}", folder.display()))
        .map(|entry| entry.expect("a folder can be listed").path())
        .collect();
    // The same seed has to mean the same input everywhere.
    files.sort_unstable();
    assert!(!files.is_empty(), "the corpus of {} is empty", target.name);
    files.iter().map(|file| fs::read(file).expect("a seed can be read")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails for inputs with an `x` somewhere after an `a`.
    const PICKY: Target = Target {
        name: "class-name",
        words: &["x"],
        run: |input| {
            let a = input.iter().position(|byte| *byte == b'a');
            assert!(!a.is_some_and(|a| input[a..].contains(&b'x')), "an x after an a");
        },
    };

    #[test]
    fn what_fails_is_found_and_can_be_run_again() {
        let folder = std::env::temp_dir().join(format!("broker-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let watch = Watch::start(&folder).unwrap();
        let found = look(&PICKY, 1, Duration::from_secs(60), &watch).unwrap_err();
        watch.over();
        assert!(found.why.contains("an x after an a"), "{}", found.why);
        assert!(attempt(&PICKY, &found.input, &Watch::start(&folder).unwrap()).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_corpus_passes() {
        let folder = std::env::temp_dir().join(format!("broker-fuzz-c-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let watch = Watch::start(&folder).unwrap();
        for target in TARGETS {
            for input in corpus(target) {
                assert_eq!(attempt(target, &input, &watch), Ok(()), "{}", target.name);
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
