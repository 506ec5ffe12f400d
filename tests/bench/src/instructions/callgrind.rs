//! Instructions, and some of the system calls with them, by valgrind's callgrind.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    process::Command,
};

use anyhow::Context as _;

use super::Counter;
use crate::site::{Site, machine_broker};

pub(super) struct Callgrind;

const OUTPUT: &str = "callgrind.out";
const CALLS: &str = "system-calls.log";

/// Counts instructions, reads and writes of connections, and looks at the clock.
impl Counter<3> for Callgrind {
    fn name(&self) -> &'static str {
        "callgrind"
    }

    fn output(&self) -> &'static str {
        OUTPUT
    }

    fn command(&self, site: &Site) -> anyhow::Result<Command> {
        let mut command = Command::new("valgrind");
        let file = |name| site.folder().join(name).display().to_string();
        // Threads take turns in order, not as chance has it.
        command.args(["--tool=callgrind", "--fair-sched=yes", "--trace-syscalls=yes"]);
        command.arg(format!("--callgrind-out-file={}", file(OUTPUT)));
        command.arg(format!("--log-file={}", file(CALLS)));
        command.arg(machine_broker()?);
        Ok(command)
    }

    fn counts(&self, site: &Site) -> anyhow::Result<[u64; 3]> {
        let output = site.folder().join(OUTPUT);
        let text = fs::read_to_string(&output)
            .with_context(|| format!("callgrind did not write {}", output.display()))?;
        let instructions = total(&text).context("callgrind's file tells no total")?;
        let calls = File::open(site.folder().join(CALLS)).context("valgrind wrote no log")?;
        let [traffic, clock] = calls_in(BufReader::new(calls))?;
        Ok([instructions, traffic, clock])
    }
}

/// The instructions of the whole run, of the file that callgrind writes.
fn total(text: &str) -> Option<u64> {
    // Near the end, after the costs of all functions.
    let line = text.lines().rev().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How connections are read and written. What else there is does not repeat: waiting for other threads, and
/// the lines of the audit log, of which any number is written at once.
const TRAFFIC: [&str; 6] =
    ["sys_recvfrom", "sys_recvmsg", "sys_readv", "sys_sendto", "sys_sendmsg", "sys_writev"];

/// Reads and writes of connections, and looks at the clock, of valgrind's log.
fn calls_in(log: impl BufRead) -> anyhow::Result<[u64; 2]> {
    let [mut traffic, mut clock] = [0; 2];
    for line in log.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        // A call that waits has a second line without a name, when it returns.
        let Some(name) = call(&line) else { continue };
        traffic += u64::from(TRAFFIC.contains(&name));
        clock += u64::from(name == "sys_clock_gettime");
    }
    Ok([traffic, clock])
}

/// The name in `SYSCALL[123,4](202) sys_futex ( 0x1, … )[async] ...`.
fn call(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix("SYSCALL[")?.split_once(") ")?;
    let name = rest.split([' ', '(']).next()?;
    name.starts_with("sys_").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_at_the_end_of_the_file() {
        let text = "events: Ir\nsummary: 12\n\nfn=(1) main\n10 12\n\ntotals: 123456789\n";
        assert_eq!(total(text), Some(123_456_789));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn a_call_is_counted_once_however_long_it_waits() {
        let log = "==12== Callgrind, a call-graph generating cache profiler\n\
                   SYSCALL[12,3](228) sys_clock_gettime( 1, 0x1 )[sync] --> Success(0x0)\n\
                   SYSCALL[12,4](202) sys_futex ( 0x1, 128, 0 ) --> [async] ... \n\
                   SYSCALL[12,4](202) ... [async] --> Success(0x0) \n\
                   SYSCALL[12,1]( 45) sys_recvfrom ( 9, 0x1, 2 )[sync] --> Success(0x2)\n\
                   SYSCALL[12,1]( 20) sys_writev ( 9, 0x1, 2 ) --> [async] ... \n\
                   SYSCALL[12,1]( 20) ... [async] --> Success(0x2) \n";
        assert_eq!(calls_in(log.as_bytes()).unwrap(), [2, 1]);
    }
}
