//! Answers that did not reach their broker, by its address.

use super::{AddressId, Report, machines::Machines};
use crate::maps::HashMap;

/// How many answers wait for one broker. Beyond it the oldest go: the memory still has their
/// successes, and a retry brings them out.
const AT_MOST: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Unreported {
    brokers: HashMap<AddressId, Reports>,
}

/// In the order in which they came, and one per machine: the newest is the only one still true.
#[derive(Debug, Default)]
struct Reports(Machines<(Report, Told)>);

/// Whether some broker has read it.
type Told = bool;

impl Unreported {
    pub(super) fn push(&mut self, address: AddressId, report: Report, told: Told) {
        self.brokers.entry(address).or_default().push(report, told);
    }

    /// The oldest first.
    pub(super) fn take(&mut self, address: AddressId) -> impl Iterator<Item = Report> + use<> {
        let mut reports = self.brokers.remove(&address).unwrap_or_default();
        std::iter::from_fn(move || reports.pop()).map(|(report, _)| report)
    }

    pub(super) fn forget(&mut self, address: AddressId) {
        self.brokers.remove(&address);
    }

    pub(super) fn owes(&self, address: AddressId) -> bool {
        let reports = self.brokers.get(&address);
        reports.is_some_and(|reports| reports.0.last_to_first().any(|(_, told)| !told))
    }
}

impl Reports {
    fn push(&mut self, report: Report, told: Told) {
        let machine = &report.request().machine;
        if let Some(before) = self.0.find(machine) {
            self.0.remove(before);
        }
        let place = self.0.insert(machine.clone(), (report, told));
        self.0.line_up(place);
        if self.0.line_len() > AT_MOST {
            self.pop();
        }
    }

    /// The oldest.
    fn pop(&mut self) -> Option<(Report, Told)> {
        self.0.first().map(|oldest| self.0.remove(oldest))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::{
        answer::Payload,
        machine::Machine,
        operations::{ClassRef, Request},
        verb::Verb,
    };

    const BROKER: AddressId = AddressId(0);

    fn report(machine: usize) -> Report {
        let class = ClassRef::from_wire(broker_proto::v1::ClassRef::default());
        let texts = [&*machine.to_string(), "", ""];
        let request = Request::new(Verb::Create, Arc::new(class), texts, &mut String::new());
        let outcome = Ok(Payload::machine(Machine::default()));
        Report::new(request, outcome, Instant::now())
    }

    fn are(taken: &[Report], wanted: &[Report]) -> bool {
        taken.len() == wanted.len() && taken.iter().zip(wanted).all(|(one, other)| one.is(other))
    }

    #[test]
    fn the_newest_of_each_machine_is_told_and_in_the_order_in_which_they_came() {
        let [first, other, second] = [1, 2, 1].map(report);
        let mut unreported = Unreported::default();
        unreported.push(BROKER, first, false);
        unreported.push(BROKER, other.clone(), true);
        assert!(unreported.owes(BROKER));
        unreported.push(BROKER, second.clone(), true);
        assert!(!unreported.owes(BROKER), "all that is still true has been read");
        assert!(are(&unreported.take(BROKER).collect::<Vec<_>>(), &[other, second]));
        assert!(unreported.take(BROKER).next().is_none());
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let mut unreported = Unreported::default();
        let reports: Vec<_> = (0..=AT_MOST).map(report).collect();
        reports.iter().for_each(|report| unreported.push(BROKER, report.clone(), false));
        assert!(are(&unreported.take(BROKER).collect::<Vec<_>>(), &reports[1..]));
    }
}
