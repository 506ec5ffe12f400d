//! What we aim at, on one page.
//!
//! Ratios, since they say the same on any machine: what an operation through the broker costs beside
//! what a user would have instead. Only the times to register again are of the machine on which the
//! tables of `docs/performance.md` were made.

/// Which benchmark tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bench {
    Paths,
    Scale,
    Instructions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    AtLeast,
    AtMost,
}

impl Bound {
    pub(crate) fn holds(self, value: f64, target: f64) -> bool {
        match self {
            Bound::AtLeast => value >= target,
            Bound::AtMost => value <= target,
        }
    }

    pub(crate) fn sign(self) -> &'static str {
        match self {
            Bound::AtLeast => "≥",
            Bound::AtMost => "≤",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) bench: Bench,
    pub(crate) name: &'static str,
    pub(crate) in_flight: Option<usize>,
    pub(crate) bound: Bound,
    pub(crate) target: f64,
    /// What would be better still.
    pub(crate) stretch: f64,
}

impl Target {
    pub(crate) fn of(name: &str, in_flight: Option<usize>) -> Option<&'static Target> {
        TARGETS.iter().find(|target| target.name == name && target.in_flight == in_flight)
    }
}

pub(crate) const BROKERED: &str = "brokered ÷ direct, ops/s, one driver";
pub(crate) const BROKERED_SHARED: &str = "brokered ÷ direct, ops/s, 100 drivers on 4 connections";
pub(crate) const BROKERED_OWN: &str = "brokered ÷ direct, ops/s, 100 drivers on own connections";
pub(crate) const BROKERED_CPU: &str = "brokered ÷ direct, CPU per operation of all processes";
pub(crate) const BROKERED_P50: &str = "brokered ÷ direct, p50";
pub(crate) const SUBMIT_P50: &str = "submit ÷ direct, p50";
pub(crate) const BROKERED_P99: &str = "brokered ÷ direct, p99";
pub(crate) const SUBMIT: &str = "submit ÷ direct, ops/s, one driver";
pub(crate) const SUBMIT_SHARED: &str = "submit ÷ direct, ops/s, 100 drivers on 4 connections";
pub(crate) const SUBMIT_NATS: &str = "submit ÷ NATS, ops/s, one driver";
pub(crate) const MTLS: &str = "mTLS ÷ plain, brokered, ops/s";
pub(crate) const INSTRUCTIONS_UNARY: &str = "instructions per operation, unary";
pub(crate) const INSTRUCTIONS_SUBMIT: &str = "instructions per operation, submit";
pub(crate) const SYSCALLS_UNARY: &str = "system calls per operation under strace, unary";
pub(crate) const MEMORY_SHARED: &str = "KiB per driver, shared connections";
pub(crate) const MEMORY_OWN: &str = "KiB per driver, own connections";
pub(crate) const MEMORY_MTLS: &str = "KiB per driver, own mTLS connections";
pub(crate) const DISPATCH: &str = "dispatch p50, 10,000 drivers ÷ 100";
pub(crate) const AGAIN_SHARED: &str = "10,000 drivers back after kill -9, shared connections, s";
pub(crate) const AGAIN_OWN: &str = "10,000 drivers back after kill -9, own connections, s";
pub(crate) const AGAIN_MTLS: &str = "10,000 drivers back after kill -9, own mTLS connections, s";

use Bench::{Instructions, Paths, Scale};
use Bound::{AtLeast, AtMost};

pub(crate) const TARGETS: &[Target] = &[
    target(Paths, BROKERED, Some(64), AtLeast, 0.95, 1.15),
    target(Paths, BROKERED_SHARED, Some(64), AtLeast, 0.95, 1.1),
    target(Paths, BROKERED_OWN, Some(64), AtLeast, 0.9, 1.1),
    target(Paths, BROKERED_CPU, Some(64), AtMost, 1.05, 0.9),
    target(Paths, BROKERED_P50, Some(1), AtMost, 1.85, 1.5),
    target(Paths, SUBMIT_P50, Some(1), AtMost, 1.5, 1.3),
    target(Paths, BROKERED_P99, Some(64), AtMost, 1.1, 0.85),
    target(Paths, SUBMIT, Some(64), AtLeast, 3.5, 4.5),
    target(Paths, SUBMIT, Some(256), AtLeast, 5.5, 7.5),
    target(Paths, SUBMIT_SHARED, Some(64), AtLeast, 2.5, 3.5),
    target(Paths, SUBMIT_NATS, Some(64), AtLeast, 1.8, 2.4),
    target(Paths, SUBMIT_NATS, Some(256), AtLeast, 2.5, 3.3),
    target(Paths, MTLS, Some(64), AtLeast, 0.85, 0.9),
    target(Instructions, INSTRUCTIONS_UNARY, Some(64), AtMost, 52_000.0, 42_000.0),
    target(Instructions, INSTRUCTIONS_SUBMIT, Some(64), AtMost, 7_000.0, 3_000.0),
    target(Instructions, SYSCALLS_UNARY, Some(64), AtMost, 0.4, 0.25),
    target(Scale, MEMORY_SHARED, None, AtMost, 8.0, 3.0),
    target(Scale, MEMORY_OWN, None, AtMost, 28.0, 22.0),
    target(Scale, MEMORY_MTLS, None, AtMost, 38.0, 32.0),
    target(Scale, DISPATCH, Some(1), AtMost, 1.2, 1.1),
    target(Scale, DISPATCH, Some(64), AtMost, 1.5, 1.2),
    target(Scale, AGAIN_SHARED, None, AtMost, 1.0, 1.0),
    target(Scale, AGAIN_OWN, None, AtMost, 4.0, 4.0),
    target(Scale, AGAIN_MTLS, None, AtMost, 11.0, 11.0),
];

const fn target(
    bench: Bench,
    name: &'static str,
    in_flight: Option<usize>,
    bound: Bound,
    target: f64,
    stretch: f64,
) -> Target {
    Target { bench, name, in_flight, bound, target, stretch }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_target_is_there_once_and_its_stretch_lies_beyond_it() {
        let mut seen = BTreeSet::new();
        for target in TARGETS {
            assert!(seen.insert((target.name, target.in_flight)), "{target:?}");
            assert!(target.bound.holds(target.stretch, target.target), "{target:?}");
        }
    }

    #[test]
    fn a_target_is_of_a_number_in_flight() {
        assert_eq!(Target::of(SUBMIT, Some(64)).map(|target| target.target), Some(3.5));
        assert_eq!(Target::of(SUBMIT, Some(256)).map(|target| target.target), Some(5.5));
        assert!(Target::of(SUBMIT, Some(1)).is_none());
    }
}
