//! Instructions, by valgrind's callgrind.

use std::{fs, process::Command};

use anyhow::Context as _;

use super::Counter;
use crate::site::{Site, machine_broker};

pub(super) struct Callgrind;

pub(super) const OUTPUT: &str = "callgrind.out";

impl Counter for Callgrind {
    fn name(&self) -> &'static str {
        "callgrind"
    }

    fn command(&self, site: &Site) -> anyhow::Result<Command> {
        let mut command = Command::new("valgrind");
        let output = site.folder().join(OUTPUT);
        // Threads take turns in order, not as chance has it.
        command.args(["--tool=callgrind", "--fair-sched=yes"]);
        command.arg(format!("--callgrind-out-file={}", output.display()));
        command.arg(machine_broker()?);
        Ok(command)
    }

    fn count(&self, site: &Site) -> anyhow::Result<u64> {
        let output = site.folder().join(OUTPUT);
        let text = fs::read_to_string(&output)
            .with_context(|| format!("callgrind did not write {}", output.display()))?;
        total(&text).context("callgrind's file tells no total")
    }
}

/// The instructions of the whole run, of the file that callgrind writes.
fn total(text: &str) -> Option<u64> {
    // Near the end, after the costs of all functions.
    let line = text.lines().rev().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
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
}
