//! Sees what a panic does not show: input that never ends, or takes all memory, or the whole stack.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Nothing that is read may need so much, and the machine has other things to do.
const MEMORY: u64 = 4 << 30;
const TOO_LONG: Duration = Duration::from_secs(60);
const IDLE: u64 = u64::MAX;

/// Keeps the input that runs now in a file, for a process that does not survive it.
pub(crate) struct Watch {
    current: PathBuf,
    born: Instant,
    began: Arc<AtomicU64>,
}

impl Watch {
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let most = getrlimit(Resource::As).maximum;
        setrlimit(Resource::As, Rlimit { current: Some(MEMORY), maximum: most })
            .context("cannot bound the memory")?;
        let watch = Self {
            current: folder.join("running"),
            born: Instant::now(),
            began: Arc::new(AtomicU64::new(IDLE)),
        };
        let (born, began, file) = (watch.born, Arc::clone(&watch.began), watch.current.clone());
        // It ends with the process.
        thread::spawn(move || {
            loop {
                thread::park_timeout(Duration::from_secs(1));
                let began = began.load(Ordering::Relaxed);
                let now = u64::try_from(born.elapsed().as_millis()).unwrap_or(IDLE);
                if began != IDLE && now.saturating_sub(began) > TOO_LONG.as_millis() as u64 {
                    eprintln!("error: the input in {} does not end", file.display());
                    process::exit(1);
                }
            }
        });
        Ok(watch)
    }

    pub(crate) fn begins(&self, target: &str, input: &[u8]) {
        let now = u64::try_from(self.born.elapsed().as_millis()).unwrap_or_default();
        self.began.store(now, Ordering::Relaxed);
        fs::write(self.current.with_extension(target), input).expect("the folder is ours");
    }

    pub(crate) fn ends(&self) {
        self.began.store(IDLE, Ordering::Relaxed);
    }

    /// The process has survived everything.
    pub(crate) fn over(&self) {
        for target in crate::TARGETS {
            // Not all of them ran.
            fs::remove_file(self.current.with_extension(target.name)).ok();
        }
    }
}
