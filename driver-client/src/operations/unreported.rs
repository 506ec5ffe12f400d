//! Answers that did not reach their broker, by its address.

use std::collections::VecDeque;

use super::{AddressId, MachineKey, Report};
use crate::maps::{HashMap, HashedMap};

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
    /// The first of which has number `first`, and is there. Those that are not true any more leave holes.
    ordered: VecDeque<Option<(Report, Note)>>,
    first: u64,
    /// The number of each machine's.
    latest: HashedMap<MachineKey, u64>,
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
            .into_iter()
            .flatten()
            .map(|(report, _)| report)
    }

    pub(super) fn forget(&mut self, address: AddressId) {
        self.brokers.remove(&address);
    }

    pub(super) fn owes(&self, address: AddressId) -> bool {
        let reports = self.brokers.get(&address);
        reports.is_some_and(|reports| reports.ordered.iter().flatten().any(|(_, told)| !told))
    }
}

impl<Note> Default for Reports<Note> {
    fn default() -> Self {
        Self { ordered: VecDeque::new(), first: 0, latest: HashedMap::default() }
    }
}

impl<Note> Reports<Note> {
    pub(super) fn remove(&mut self, machine: &MachineKey) {
        if let Some(number) = self.latest.remove(machine) {
            self.take(number);
        }
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &(Report, Note)> {
        self.ordered.iter().rev().flatten()
    }

    pub(super) fn push(&mut self, report: Report, note: Note) {
        let number = self.first + self.ordered.len() as u64;
        let before = self.latest.insert(report.request().machine.clone(), number);
        self.ordered.push_back(Some((report, note)));
        if let Some(before) = before {
            self.take(before);
        }
        if self.latest.len() > AT_MOST
            && let Some((oldest, _)) = self.take(self.first)
        {
            self.latest.remove(&oldest.request().machine);
        }
        if self.ordered.len() > 2 * AT_MOST {
            self.close_ranks();
        }
    }

    fn take(&mut self, number: u64) -> Option<(Report, Note)> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let taken = self.ordered.get_mut(at)?.take();
        while let Some(None) = self.ordered.front() {
            self.ordered.pop_front();
            self.first += 1;
        }
        taken
    }

    /// Leaves no holes. Seldom: as many came as there may be since it was last done.
    fn close_ranks(&mut self) {
        self.ordered.retain(Option::is_some);
        for (number, (report, _)) in (self.first..).zip(self.ordered.iter().flatten()) {
            self.latest.insert(report.request().machine.clone(), number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        answer::Payload,
        machine::Machine,
        operations::{ClassRef, Request},
        verb::Verb,
    };

    fn report(machine: usize) -> Report {
        let class = ClassRef::from_wire(broker_proto::v1::ClassRef::default());
        let texts = [&*machine.to_string(), "", ""];
        let request = Request::new(Verb::Create, Arc::new(class), texts, &mut String::new());
        let outcome = Ok(Payload::Machine(Machine::default()));
        Report::new(request, outcome, Instant::now())
    }

    /// The notes, the oldest first.
    fn notes(reports: &Reports<usize>) -> Vec<usize> {
        let mut notes: Vec<_> = reports.newest_first().map(|(_, note)| *note).collect();
        notes.reverse();
        notes
    }

    proptest! {
        #[test]
        fn the_newest_of_each_machine_is_kept_in_the_order_in_which_they_came(
            steps in proptest::collection::vec((0_usize..8, proptest::bool::weighted(0.2)), 0..60),
        ) {
            let mut reports = Reports::default();
            let mut model = BTreeMap::new();
            for (number, (machine, removes)) in steps.into_iter().enumerate() {
                model.retain(|_, known| *known != machine);
                if removes {
                    reports.remove(&report(machine).request().machine);
                } else {
                    reports.push(report(machine), number);
                    model.insert(number, machine);
                }
                prop_assert_eq!(notes(&reports), model.keys().copied().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_and_holes_do_not_pile_up() {
        let mut reports = Reports::default();
        for number in 0..=AT_MOST {
            reports.push(report(number), number);
        }
        assert_eq!(notes(&reports), (1..=AT_MOST).collect::<Vec<_>>());
        // The first stays, and one machine comes again and again.
        for number in 0..3 * AT_MOST {
            reports.push(report(AT_MOST), number);
            assert!(reports.ordered.len() <= 2 * AT_MOST);
        }
        let expected = (1..AT_MOST).chain([3 * AT_MOST - 1]).collect::<Vec<_>>();
        assert_eq!(notes(&reports), expected);
        reports.push(report(7), 7);
        let expected = (1..AT_MOST).filter(|number| *number != 7).chain([3 * AT_MOST - 1, 7]);
        assert_eq!(notes(&reports), expected.collect::<Vec<_>>());
    }
}
