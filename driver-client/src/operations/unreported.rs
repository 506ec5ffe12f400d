//! Answers that did not reach their broker, by its address.

use std::collections::BTreeMap;

use super::{AddressId, MachineKey, Report};
use crate::maps::HashMap;

/// How many answers wait for one broker. Beyond it the oldest go: the memory still has their
/// successes, and a retry brings them out.
const AT_MOST: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Unreported {
    brokers: HashMap<AddressId, Reports<Told>>,
}

/// In the order in which they came, and one per machine: the newest is the only one still true. Each
/// with a note.
#[derive(Debug)]
pub(super) struct Reports<Note> {
    ordered: BTreeMap<u64, (Report, Note)>,
    latest: HashMap<MachineKey, u64>,
    next: u64,
}

/// Whether some broker has read it.
type Told = bool;

impl Unreported {
    pub(super) fn push(&mut self, address: AddressId, report: Report, told: Told) {
        self.brokers.entry(address).or_default().push(report, told);
    }

    pub(super) fn take(&mut self, address: AddressId) -> impl Iterator<Item = Report> + use<> {
        self.brokers
            .remove(&address)
            .unwrap_or_default()
            .ordered
            .into_values()
            .map(|(report, _)| report)
    }

    pub(super) fn forget(&mut self, address: AddressId) {
        self.brokers.remove(&address);
    }

    pub(super) fn owes(&self, address: AddressId) -> bool {
        let reports = self.brokers.get(&address);
        reports.is_some_and(|reports| reports.ordered.values().any(|(_, told)| !told))
    }
}

impl<Note> Default for Reports<Note> {
    fn default() -> Self {
        Self { ordered: BTreeMap::new(), latest: HashMap::default(), next: 0 }
    }
}

impl<Note> Reports<Note> {
    pub(super) fn remove(&mut self, machine: &MachineKey) {
        if let Some(number) = self.latest.remove(machine) {
            self.ordered.remove(&number);
        }
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &(Report, Note)> {
        self.ordered.values().rev()
    }

    pub(super) fn push(&mut self, report: Report, note: Note) {
        let number = self.next;
        self.next += 1;
        if let Some(before) = self.latest.insert(report.request.machine.clone(), number) {
            self.ordered.remove(&before);
        }
        self.ordered.insert(number, (report, note));
        if self.ordered.len() > AT_MOST
            && let Some((_, (oldest, _))) = self.ordered.pop_first()
        {
            self.latest.remove(&oldest.request.machine);
        }
    }
}
