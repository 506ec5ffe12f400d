//! System calls, by strace.

use std::{fs, process::Command};

use super::Counter;
use crate::{
    process::until,
    site::{Site, machine_broker},
};

pub(super) struct Strace;

const OUTPUT: &str = "strace.out";

impl Counter<1> for Strace {
    fn name(&self) -> &'static str {
        "strace"
    }

    fn output(&self) -> &'static str {
        OUTPUT
    }

    fn command(&self, site: &Site) -> anyhow::Result<Command> {
        let mut command = Command::new("strace");
        // As a process beside the broker (-D): the one we start and stop is the broker itself.
        command.args(["-D", "-f", "-c", "-o"]).arg(site.folder().join(OUTPUT));
        command.arg(machine_broker()?);
        Ok(command)
    }

    fn counts(&self, site: &Site) -> anyhow::Result<[u64; 1]> {
        let output = site.folder().join(OUTPUT);
        // It writes when it has seen the broker end, which is not before we have.
        until(|| Ok(fs::read_to_string(&output).ok().and_then(|text| total(&text)).map(|n| [n])))
    }
}

/// The number of calls in the last line of strace's table.
fn total(text: &str) -> Option<u64> {
    let total = text.lines().find(|line| line.trim_end().ends_with(" total"))?;
    // "% time" is two words in the head, and one number below.
    let calls = text.lines().next()?.split_whitespace().position(|word| word == "calls")? - 1;
    total.split_whitespace().nth(calls)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_with_errors_and_without() {
        let head = "% time     seconds  usecs/call     calls    errors syscall\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                     99.00    0.100000          10      1000        20 futex\n\
                    ------ ----------- ----------- --------- --------- ----------------\n";
        let with = format!("{head}100.00    0.123456          10     12345        20 total\n");
        let without = format!("{head}100.00    0.123456          10     12345           total\n");
        assert_eq!(total(&with), Some(12_345));
        assert_eq!(total(&without), Some(12_345));
        assert_eq!(total(head), None);
    }
}
