//! What was found, beside what was aimed at: a table for people and for docs, JSON for machines.

pub(crate) mod output;
pub(crate) mod targets;

use anyhow::ensure;
use serde::Serialize;

use self::targets::{Bench, Bound, TARGETS, Target};

/// A figure with its target, where there is one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) name: String,
    pub(crate) in_flight: Option<usize>,
    /// The median of all rounds.
    pub(crate) value: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
    pub(crate) target: Option<f64>,
    pub(crate) stretch: Option<f64>,
    pub(crate) met: Option<bool>,
    #[serde(skip)]
    bound: Option<Bound>,
}

impl Finding {
    /// The median of `rounds`, by its name and how many operations were in flight.
    pub(crate) fn new(name: &str, in_flight: Option<usize>, rounds: &[f64]) -> Self {
        let target = Target::of(name, in_flight);
        let value = median(rounds);
        Self {
            name: name.to_owned(),
            in_flight,
            value,
            lowest: rounds.iter().copied().fold(f64::INFINITY, f64::min),
            highest: rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            target: target.map(|target| target.target),
            stretch: target.map(|target| target.stretch),
            met: target.map(|target| target.bound.holds(value, target.target)),
            bound: target.map(|target| target.bound),
        }
    }
}

/// All findings of a benchmark, in the order in which they are told.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) results: Vec<Finding>,
}

impl Report {
    pub(crate) fn add(&mut self, name: &str, in_flight: impl Into<Option<usize>>, rounds: &[f64]) {
        self.results.push(Finding::new(name, in_flight.into(), rounds));
    }

    /// Fails if a target of the benchmark was not measured: forgotten, or called otherwise.
    pub(crate) fn complete(&self, bench: Bench) -> anyhow::Result<()> {
        let forgotten = self.unmeasured(bench);
        ensure!(forgotten.is_empty(), "not measured: {forgotten:?}");
        Ok(())
    }

    fn unmeasured(&self, bench: Bench) -> Vec<&'static Target> {
        let found = |target: &Target| {
            self.results.iter().any(|f| f.name == target.name && f.in_flight == target.in_flight)
        };
        TARGETS.iter().filter(|target| target.bench == bench && !found(target)).collect()
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("findings are plain values")
    }

    /// A table that docs can take as it is.
    pub(crate) fn table(&self) -> String {
        let mut rows = vec![
            ["what", "in flight", "median", "lowest – highest", "target", "met"].map(str::to_owned),
        ];
        for finding in &self.results {
            let sign = finding.bound.map_or("", Bound::sign);
            let range = [finding.lowest, finding.highest].map(figure);
            rows.push([
                finding.name.clone(),
                finding.in_flight.map_or_else(String::new, |number| number.to_string()),
                figure(finding.value),
                if finding.lowest == finding.highest { String::new() } else { range.join(" – ") },
                finding
                    .target
                    .map_or_else(String::new, |target| format!("{sign} {}", figure(target))),
                finding.met.map_or("", |met| if met { "yes" } else { "**no**" }).to_owned(),
            ]);
        }
        markdown(&rows)
    }
}

/// A Markdown table whose first row is its head, with columns that stand below each other.
pub(crate) fn markdown<const N: usize>(rows: &[[String; N]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(|column| width(column).max(3));
    let line = |cells: &[String; N]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| {
            let padding = " ".repeat(width - cell.chars().count());
            format!(" {cell}{padding} |")
        });
        format!("|{}\n", padded.collect::<String>())
    };
    let mut lines = rows.iter().map(line);
    let head = lines.next().unwrap_or_default();
    let rule = widths.map(|width| "-".repeat(width));
    format!("{head}{}{}", line(&rule), lines.collect::<String>())
}

/// A number as one would say it: no more digits than mean something.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => grouped(&format!("{value:.0}")),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A whole number.
pub(crate) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// Digits in groups of three.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.split_at(usize::from(digits.starts_with('-')));
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    format!("{sign}{}", groups.join(","))
}

/// The value in the middle; of an even number, the mean of the two.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNARY: &str = targets::INSTRUCTIONS_UNARY;

    #[test]
    fn the_median_does_not_care_for_outliers() {
        assert_eq!(median(&[3.0, 1.0, 100.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), 3.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_finding_says_whether_its_target_is_met() {
        let finding = |rounds: &[f64]| Finding::new(UNARY, Some(64), rounds);
        assert_eq!(finding(&[52_000.0]).met, Some(true));
        assert_eq!(finding(&[50_000.0, 60_000.0, 70_000.0]).met, Some(false));
        assert_eq!(Finding::new("something else", Some(64), &[1.0]).met, None);
    }

    #[test]
    fn figures_have_no_more_digits_than_mean_something() {
        let told = [0.2345, 12.34, 123.4, 1234.5, 1_234_567.0, -1234.0].map(figure);
        assert_eq!(told, ["0.23", "12.3", "123", "1,234", "1,234,567", "-1,234"]);
        assert_eq!([0, 10, 100, 10_000].map(count), ["0", "10", "100", "10,000"]);
    }

    #[test]
    fn the_table_has_the_median_the_spread_the_target_and_whether_it_is_met() {
        let mut report = Report::default();
        report.add(UNARY, 64, &[60_000.0, 50_000.0, 70_000.0]);
        report.add("plain", None, &[1.5]);
        let expected = format!(
            "| {:33} | in flight | median | lowest – highest | target   | met    |\n\
             | {:-<33} | --------- | ------ | ---------------- | -------- | ------ |\n\
             | {UNARY} | 64        | 60,000 | 50,000 – 70,000  | ≤ 52,000 | **no** |\n\
             | {:33} |           | 1.50   |                  |          |        |\n",
            "what", "", "plain"
        );
        assert_eq!(report.table(), expected);
    }

    #[test]
    fn json_has_name_in_flight_value_target_and_met() {
        let mut report = Report::default();
        report.add(UNARY, 64, &[52_000.0]);
        report.add("plain", None, &[1.5]);
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        let results = &json["results"];
        assert_eq!(results[0]["name"], UNARY);
        assert_eq!(results[0]["in_flight"], 64);
        assert_eq!(results[0]["value"], 52_000.0);
        assert_eq!(results[0]["target"], 52_000.0);
        assert_eq!(results[0]["met"], true);
        assert_eq!(results[1]["in_flight"], serde_json::Value::Null);
        assert_eq!(results[1]["met"], serde_json::Value::Null);
    }

    #[test]
    fn a_target_that_was_not_measured_is_noticed() {
        let mut report = Report::default();
        let all = report.unmeasured(Bench::Instructions).len();
        report.add(UNARY, 64, &[1.0]);
        assert_eq!(report.unmeasured(Bench::Instructions).len(), all - 1);
    }
}
