//! What was counted when it was last looked at.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::UNSTEADY;
use crate::report::{Finding, Report, figure};

/// A rise by more than this part fails.
const TOLERANCE: f64 = 0.1;

/// Counts by their name and number in flight.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Baseline(BTreeMap<String, f64>);

impl Baseline {
    pub(super) fn of(report: &Report) -> Self {
        // Digits beyond what repeats would only make the file change.
        let rounded =
            |value: f64| if value >= 100.0 { value.round() } else { (value * 1e3).round() / 1e3 };
        Self(compared(report).map(|found| (key(found), rounded(found.value))).collect())
    }

    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("cannot read the baseline {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no baseline", file.display()))
    }

    pub(super) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("wrote {}", file.display());
        Ok(())
    }

    /// Fails if anything costs notably more than it did.
    pub(super) fn compare(&self, report: &Report) -> anyhow::Result<()> {
        let mut risen = Vec::new();
        for found in compared(report) {
            let key = key(found);
            let before = *self
                .0
                .get(&key)
                .with_context(|| format!("the baseline has no {key:?}: say --write-baseline"))?;
            let change = found.value / before - 1.0;
            let told = format!(
                "{key}: {} against {} of the baseline ({:+.1} %)",
                figure(found.value),
                figure(before),
                change * 100.0
            );
            eprintln!("{told}");
            if change > TOLERANCE {
                risen.push(told);
            } else if change < -TOLERANCE {
                eprintln!("  better: keep it so with --write-baseline");
            }
        }
        ensure!(
            risen.is_empty(),
            "more than 10 % above the baseline; --write-baseline if that is meant:\n  {}",
            risen.join("\n  ")
        );
        Ok(())
    }
}

/// What repeats, whatever else the machine does.
fn compared(report: &Report) -> impl Iterator<Item = &Finding> {
    report.results.iter().filter(|found| !UNSTEADY.contains(&&*found.name))
}

fn key(found: &Finding) -> String {
    match found.in_flight {
        Some(in_flight) => format!("{} ({in_flight} in flight)", found.name),
        None => found.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(value: f64) -> Report {
        let mut report = Report::default();
        report.add("instructions", 64, &[value]);
        report
    }

    #[test]
    fn a_rise_of_more_than_ten_percent_fails_and_says_what_rose() {
        let baseline = Baseline::of(&report(1000.0));
        assert!(baseline.compare(&report(1099.0)).is_ok());
        assert!(baseline.compare(&report(500.0)).is_ok());
        let error = baseline.compare(&report(1101.0)).unwrap_err().to_string();
        assert!(error.contains("instructions (64 in flight): 1,101 against 1,000"), "{error}");
    }

    #[test]
    fn what_the_baseline_does_not_know_fails() {
        let error = Baseline(BTreeMap::new()).compare(&report(1.0)).unwrap_err().to_string();
        assert!(error.contains("--write-baseline"), "{error}");
    }

    #[test]
    fn what_does_not_repeat_is_not_compared() {
        let mut report = report(1000.0);
        report.add(UNSTEADY[0], 64, &[5.0]);
        assert_eq!(Baseline::of(&report), Baseline::of(&self::report(1000.0)));
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("baseline.json");
        let baseline = Baseline::of(&report(0.123_456));
        assert_eq!(baseline.0["instructions (64 in flight)"], 0.123);
        baseline.write(&file).unwrap();
        assert_eq!(Baseline::read(&file).unwrap(), baseline);
    }
}
