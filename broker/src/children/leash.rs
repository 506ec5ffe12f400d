//! The process between the broker and a program that it started.
//!
//! 1. It starts the program in a process group of its own.
//! 2. It waits for the program's end, and passes it on as its own.
//! 3. When its standard input ends, the broker is gone or wants the program gone: the group gets
//!    SIGTERM, after [`GRACE`] SIGKILL.
//! 4. When it gets SIGTERM itself, it passes that on.
//! 5. What the program leaves behind in its group ends the same way.
//!
//! Standard input is a socket. Over it the leash tells the broker which group it started and how
//! the program ended, since an exit code cannot tell "exit 137" from "killed".

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::process::ExitStatusExt},
    process::{ExitCode, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group};
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep, sleep_until},
};

/// How long a program may take to end after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long a killed process may take to be gone.
const LAST_BREATH: Duration = Duration::from_secs(1);

/// Runs a program on a leash: all of `machine-broker leash -- PROGRAM ARGS`.
///
/// Starts a runtime of its own, so it must not be called within one.
pub fn run(program_and_args: impl IntoIterator<Item = OsString>) -> ExitCode {
    run_with(program_and_args.into_iter().collect(), GRACE)
}

pub(super) fn run_with(program_and_args: Vec<OsString>, grace: Duration) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Report::Failed(format!("no runtime for the leash: {error}"))),
    };
    let code = runtime.block_on(hold(program_and_args, grace));
    // A thread may still wait for standard input; nobody needs it any more.
    runtime.shutdown_background();
    code
}

async fn hold(program_and_args: Vec<OsString>, grace: Duration) -> ExitCode {
    // Before there is a program, so that no signal can fall between the two.
    let mut told_to_stop = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return fail(&Report::Failed(format!("no signals for the leash: {error}"))),
    };
    become_reaper();
    let (mut child, group) = match start(&program_and_args) {
        Ok(started) => started,
        Err(why) => return fail(&Report::Failed(why)),
    };
    Report::Started(group).send();

    let mut owner_gone = std::pin::pin!(owner_gone());
    let mut asked = false;
    let mut end = None;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            () = &mut owner_gone, if end.is_none() => {
                // Once is enough: to many programs a second SIGTERM means "drop everything".
                if !asked {
                    signal_group(group, Signal::TERM);
                }
                end = Some(Instant::now() + grace);
            }
            () = told_to_stop.recv(), if !asked => {
                signal_group(group, Signal::TERM);
                asked = true;
            }
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {
                signal_group(group, Signal::KILL);
                // For the unlikely case that it started another one just now.
                end = Some(Instant::now() + grace);
            }
        }
    };
    clear(group, end.unwrap_or_else(|| Instant::now() + grace)).await;
    match status {
        Ok(status) => {
            Report::Ended(status).send();
            code(status)
        }
        Err(error) => fail(&Report::Failed(format!("cannot wait for the program: {error}"))),
    }
}

fn start(program_and_args: &[OsString]) -> Result<(Child, Pid), String> {
    let [program, args @ ..] = program_and_args else {
        return Err("no program was named".to_owned());
    };
    let why = |error: io::Error| {
        let program = program.display();
        match error.kind() {
            io::ErrorKind::NotFound => format!("the program {program} was not found"),
            io::ErrorKind::PermissionDenied => format!("{program} may not be executed"),
            _ => format!("{program} cannot be started: {error}"),
        }
    };
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(why)?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let group = group.ok_or("the program has no process id")?;
    Ok((child, group))
}

/// Ends what is left of the group after the program itself has ended.
async fn clear(group: Pid, deadline: Instant) {
    for (signal, deadline) in [(Signal::TERM, deadline), (Signal::KILL, deadline + LAST_BREATH)] {
        signal_group(group, signal);
        while Instant::now() < deadline {
            reap();
            if test_kill_process_group(group).is_err() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

fn signal_group(group: Pid, signal: Signal) {
    // The only error that can be is that there is nobody left, which is what we want.
    kill_process_group(group, signal).ok();
}

/// What the program leaves behind becomes our child, so that it can be waited for, even where the
/// first process of a container does not do it.
fn become_reaper() {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
}

/// Takes note of ended children. Only after the program itself was waited for, whose status would
/// be lost here.
fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

/// Waits until the other end of standard input is closed, however that happens.
async fn owner_gone() {
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0; 64];
    while let Ok(1..) = stdin.read(&mut ignored).await {}
}

fn fail(report: &Report) -> ExitCode {
    report.send();
    // 127 is what a shell answers for a program that it cannot run.
    ExitCode::from(127)
}

/// As a shell tells it.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

struct Signals {
    signals: [tokio::signal::unix::Signal; 3],
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let signals = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        ];
        Ok(Self { signals })
    }

    async fn recv(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.signals;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// What the leash tells the broker, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Started(Pid),
    Ended(ExitStatus),
    /// The program could not be run at all.
    Failed(String),
}

impl Report {
    fn send(&self) {
        // Standard input, since that is the socket. If it is something else, or nobody listens,
        // the exit code has to do.
        let sent =
            io::stdin().as_fd().try_clone_to_owned().map(File::from).and_then(|mut socket| {
                let line = format!("{self}\n");
                socket.write_all(line.as_bytes())
            });
        if let (Err(_), Self::Failed(why)) = (sent, self) {
            eprintln!("{why}");
        }
    }

    /// Reads one line, as [`fmt::Display`] wrote it.
    pub(super) fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ')? {
            ("started", pid) => Pid::from_raw(pid.parse().ok()?).map(Self::Started),
            ("ended", status) => Some(Self::Ended(ExitStatus::from_raw(status.parse().ok()?))),
            ("failed", why) => Some(Self::Failed(why.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(group) => write!(f, "started {}", group.as_raw_nonzero()),
            Self::Ended(status) => write!(f, "ended {}", status.into_raw()),
            Self::Failed(why) => write!(f, "failed {}", why.replace('\n', " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_arrive_as_they_were_sent() {
        for report in [
            Report::Started(Pid::from_raw(42).unwrap()),
            Report::Ended(ExitStatus::from_raw(3 << 8)),
            Report::Ended(ExitStatus::from_raw(9)),
            Report::Failed("the program x was not found".to_owned()),
        ] {
            assert_eq!(Report::parse(&report.to_string()), Some(report));
        }
        for strange in ["", "started", "started x", "started 0", "running 1"] {
            assert_eq!(Report::parse(strange), None);
        }
    }
}
