//! Answers that did not reach their broker, by its address.

use std::collections::{HashMap, VecDeque};

use super::{AddressId, Report};

/// How many answers wait for one broker. Beyond it the oldest go: the memory still has their
/// successes, and a retry brings them out.
const AT_MOST: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Unreported {
    reports: HashMap<AddressId, VecDeque<Report>>,
}

impl Unreported {
    pub(super) fn push(&mut self, address: AddressId, report: Report) {
        let reports = self.reports.entry(address).or_default();
        if reports.len() == AT_MOST {
            reports.pop_front();
        }
        reports.push_back(report);
    }

    pub(super) fn take(&mut self, address: AddressId) -> impl Iterator<Item = Report> + use<> {
        self.reports.remove(&address).unwrap_or_default().into_iter()
    }

    pub(super) fn owes(&self, address: AddressId) -> bool {
        self.reports.contains_key(&address)
    }
}
