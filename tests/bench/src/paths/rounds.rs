//! What every way measured, round by round.

use std::collections::BTreeMap;

use crate::{
    load::Measured,
    report::median,
    way::{Timing, Way},
};

#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// In the order in which they came first.
    order: Vec<(&'static str, usize)>,
    by_way: BTreeMap<(&'static str, usize), Vec<Measured>>,
}

impl Rounds {
    pub(super) fn measure(
        &mut self,
        way: &Way,
        in_flight: usize,
        timing: Timing,
    ) -> anyhow::Result<()> {
        let measured = way.measure(in_flight, timing)?;
        eprintln!("  {} ({in_flight}): {:.0} ops/s", way.name, measured.rate());
        self.record(way.name, in_flight, measured);
        Ok(())
    }

    fn record(&mut self, way: &'static str, in_flight: usize, measured: Measured) {
        let key = (way, in_flight);
        if !self.order.contains(&key) {
            self.order.push(key);
        }
        self.by_way.entry(key).or_default().push(measured);
    }

    /// All that was measured, way by way.
    pub(super) fn ways(&self) -> Vec<(&'static str, usize)> {
        let mut ways = self.order.clone();
        let first = |way| self.order.iter().position(|(other, _)| *other == way);
        ways.sort_by_key(|(way, in_flight)| (first(*way), *in_flight));
        ways
    }

    /// A figure of a way, of each round.
    pub(super) fn values(
        &self,
        way: &str,
        in_flight: usize,
        of: impl Fn(&Measured) -> f64,
    ) -> Vec<f64> {
        let found =
            self.by_way.iter().find(|((name, number), _)| *name == way && *number == in_flight);
        found.map(|(_, rounds)| rounds.iter().map(of).collect()).unwrap_or_default()
    }

    pub(super) fn median(&self, way: &str, in_flight: usize, of: impl Fn(&Measured) -> f64) -> f64 {
        median(&self.values(way, in_flight, of))
    }

    /// One way divided by another, within each round.
    pub(super) fn ratios(
        &self,
        over: &str,
        under: &str,
        in_flight: usize,
        of: fn(&Measured) -> f64,
    ) -> Vec<f64> {
        let [over, under] = [over, under].map(|way| self.values(way, in_flight, of));
        over.iter().zip(under).map(|(over, under)| over / under).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(operations: u64) -> Measured {
        Measured { operations, seconds: 2.0, p50: 1.0, p99: 2.0, cpu: vec![0.5, 1.5] }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let mut rounds = Rounds::default();
        for (direct, brokered) in [(100, 50), (1000, 900)] {
            rounds.record("direct", 64, measured(direct));
            rounds.record("brokered", 64, measured(brokered));
        }
        assert_eq!(rounds.ratios("brokered", "direct", 64, Measured::rate), [0.5, 0.9]);
        assert_eq!(rounds.values("direct", 64, Measured::rate), [50.0, 500.0]);
        assert_eq!(rounds.values("direct", 1, Measured::rate), [0.0; 0]);
        assert_eq!(measured(1_000_000).cpu_per_operation(), 2.0);
    }

    #[test]
    fn ways_are_told_one_after_the_other() {
        let mut rounds = Rounds::default();
        for in_flight in [1, 16] {
            rounds.record("direct", in_flight, measured(1));
            rounds.record("brokered", in_flight, measured(1));
        }
        let ways = [("direct", 1), ("direct", 16), ("brokered", 1), ("brokered", 16)];
        assert_eq!(rounds.ways(), ways);
    }
}
