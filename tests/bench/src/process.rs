//! Processes of a benchmark: started, waited for, watched and killed.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take to start or to end, also under valgrind, and ten thousand handshakes, on a
/// busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A process whose output goes to a file. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program, with its output in `folder`.
    pub(crate) fn start(name: &str, command: &mut Command, folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where its output is.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Waits for a line that `wanted` makes something of.
    pub(crate) fn line<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> anyhow::Result<T> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            // Before the look, so that the last words of one that ended are seen.
            let ended = self.child.try_wait()?;
            let text = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
            if let Some(found) = text.lines().find_map(&wanted) {
                return Ok(found);
            }
            if let Some(status) = ended {
                bail!("{} ended ({status}) and said:\n{text}", self.name);
            }
            ensure!(Instant::now() < give_up, "{} does not start; it said:\n{text}", self.name);
            pause();
        }
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(mut self) -> anyhow::Result<ExitStatus> {
        let id = self.id().cast_signed();
        let id = Pid::from_raw(id).with_context(|| format!("{} has no id", self.name))?;
        kill_process(id, Signal::TERM)?;
        let status = until(|| Ok(self.child.try_wait()?));
        status.with_context(|| format!("{} does not stop", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Looks again and again until there is something.
pub(crate) fn until<T>(mut look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(Instant::now() < give_up, "waited for {PATIENCE:?}");
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks at a condition, in no runtime")]
fn pause() {
    thread::sleep(LOOK_EVERY);
}

/// This program, to play a role.
pub(crate) fn this_program() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    Ok(Command::new(program))
}

/// What `/proc` counts in: part of what Linux promises to programs on x86-64 and aarch64.
const TICKS_A_SECOND: f64 = 100.0;

/// The CPU time that a process has used so far.
pub(crate) fn cpu_time(id: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{id}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = cpu_ticks(&stat).with_context(|| format!("{path} is not as expected: {stat}"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / TICKS_A_SECOND))
}

/// User and system time of a line of `/proc/ID/stat`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name of the program may hold spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The memory that a process has, in KiB.
pub(crate) fn memory(id: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{id}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    resident(&status).with_context(|| format!("{path} does not tell of memory"))
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_user_and_system_time_whatever_the_program_is_called() {
        let stat = "42 (a) b (c)) S 1 2 3 0 -1 4194304 100 0 0 0 250 130 0 0 20 0 5 0 9999 1 2";
        assert_eq!(cpu_ticks(stat), Some(380));
        assert_eq!(cpu_ticks("42 (a) S 1"), None);
    }

    #[test]
    fn memory_is_what_is_resident() {
        assert_eq!(resident("VmPeak:\t 99 kB\nVmRSS:\t   12345 kB\n"), Some(12345));
        assert_eq!(resident("VmPeak:\t 99 kB\n"), None);
    }

    #[test]
    fn a_process_that_ends_early_is_told_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo port taken >&2; exit 3"]);
        let mut process = Process::start("sh", &mut command, folder.path()).unwrap();
        let error = process.line(|line| line.strip_prefix("ready ").map(str::to_owned));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("port taken"), "{error}");
    }

    #[test]
    fn a_process_of_ours_has_a_cpu_time_and_memory() {
        assert!(cpu_time(std::process::id()).is_ok());
        assert!(memory(std::process::id()).unwrap() > 0);
    }
}
