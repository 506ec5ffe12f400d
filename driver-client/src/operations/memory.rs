//! What is known of each machine: what runs there, how the last mutation ended, and which successes are
//! worth remembering, until something makes them untrue.

#[cfg(test)]
mod tests;

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;

use super::{
    ExecutionId, Known, MachineKey, Report, Request,
    machines::{Machines, Place},
};
use crate::{answer::Payload, error::Code, machine::ListedMachine, verb::Verb};

/// How long a success is remembered, and a machine after the last end.
pub(super) const REMEMBERED_FOR: Duration = Duration::from_secs(15 * 60);
/// How many machines are, at most, besides those where something runs. Beyond it those go first where
/// nothing has ended for the longest time.
pub(super) const REMEMBERED_AT_MOST: usize = 16_384;

/// In line are the pages of machines where nothing runs, by when something last ended there.
#[derive(Debug, Default)]
pub(super) struct Memory {
    machines: Machines<Page>,
}

/// Of one machine.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The mutation that runs there.
    running: Option<ExecutionId>,
    /// The newest end, well or not, and who knows of it: whoever was last at a machine has to say so, lest
    /// another who remembers it is believed.
    end: Option<(Report, Known)>,
    /// The latest success of each mutating verb.
    ///
    /// The latest only: a request id that comes again after another one has succeeded is executed
    /// again, which the driver's own idempotence covers.
    create: Option<Report>,
    initialize: Option<Report>,
    delete: Option<Report>,
}

impl Memory {
    /// A machine's page, and where it is until nothing runs there any more.
    pub(super) fn find(&self, machine: &MachineKey) -> Option<(Place, &Page)> {
        self.machines.find(machine).map(|place| (place, self.machines.get(place)))
    }

    /// A mutation begins to execute, so the machine will not be what it was. Its page, if there is one,
    /// was `found` just now.
    ///
    /// Not only when it succeeds: a delete that ran out of time may have removed the machine all
    /// the same, and executing a create once too often is what drivers can cope with.
    pub(super) fn began(
        &mut self,
        found: Option<Place>,
        request: &Request,
        execution: ExecutionId,
    ) -> Place {
        let machine = request.machine.clone();
        let Some(place) = found else {
            return self
                .machines
                .insert(machine, Page { running: Some(execution), ..Page::default() });
        };
        self.machines.rename(place, machine);
        self.machines.leave_line(place);
        let page = self.machines.get_mut(place);
        page.running = Some(execution);
        let changes: &[Verb] = match request.verb {
            Verb::Create => &[Verb::Create, Verb::Delete],
            Verb::Delete => MUTATING,
            Verb::Initialize | Verb::GetStatus | Verb::List | Verb::GetVolumeIds => &[],
        };
        changes.iter().for_each(|verb| *page.success_mut(*verb) = None);
        place
    }

    /// A mutation is over. A failure is no answer for those who ask again, but it was the last that
    /// happened there.
    pub(super) fn ended(&mut self, place: Place, report: &Report, known: Known) {
        let page = self.machines.get_mut(place);
        page.running = None;
        page.end = Some((report.clone(), known));
        if report.outcome().is_ok() {
            *page.success_mut(report.request().verb) = Some(report.clone());
        }
        self.machines.line_up(place);
        self.expire(report.ended());
    }

    /// Draws the conclusions from the answer to a read. It only speaks of what ended before it `began`.
    pub(super) fn learn(&mut self, report: &Report, began: Instant) {
        let request = report.request();
        match (request.verb, report.outcome()) {
            (Verb::GetStatus, Err(error)) if error.code() == Code::NotFound => {
                self.forget_before(&request.machine, MADE, began);
            }
            (Verb::GetStatus, Ok(_)) => {
                self.forget_before(&request.machine, &[Verb::Delete], began);
            }
            (Verb::GetStatus, Err(error)) if error.code() == Code::Uninitialized => {
                self.forget_before(&request.machine, &[Verb::Delete], began);
            }
            (Verb::List, Ok(Payload::List(machines))) if request.provider_id().is_empty() => {
                self.learn_list(request, machines, began);
            }
            _ => {}
        }
    }

    fn learn_list(&mut self, list: &Request, machines: &[ListedMachine], began: Instant) {
        let names: HashSet<_> = machines.iter().map(|m| m.machine_name.as_str()).collect();
        let ids: HashSet<_> = machines.iter().map(|m| m.provider_id.as_str()).collect();
        let holds = |success: &Report| {
            let request = success.request();
            if !request.class().is_same(list.class()) || success.ended() > began {
                return true;
            }
            let shown = names.contains(request.machine.name())
                || success.provider_id().is_some_and(|id| ids.contains(id));
            // A listed machine was not deleted, an unlisted one is not there.
            shown != (request.verb == Verb::Delete)
        };
        for page in self.machines.iter_mut() {
            page.forget(MUTATING, |success| !holds(success));
        }
    }

    fn forget_before(&mut self, machine: &MachineKey, verbs: &[Verb], began: Instant) {
        if let Some(page) = self.machines.of_mut(machine) {
            page.forget(verbs, |success| success.ended() <= began);
        }
    }

    /// The machine is not what it was. What runs there runs on.
    pub(super) fn forget(&mut self, machine: &MachineKey) {
        let Some(place) = self.machines.find(machine) else { return };
        match self.machines.get(place).running {
            None => drop(self.machines.remove(place)),
            running => *self.machines.get_mut(place) = Page { running, ..Page::default() },
        }
    }

    /// The newest end of each machine where nothing runs, and of these the newest first.
    pub(super) fn ends(&self) -> impl Iterator<Item = &(Report, Known)> {
        self.machines.last_to_first().filter_map(|page| page.end.as_ref())
    }

    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.machines.first() {
            let end = self.machines.get(first).end.as_ref();
            let is_old = end.is_none_or(|(report, _)| report.is_old(now));
            if !is_old && self.machines.line_len() <= REMEMBERED_AT_MOST {
                break;
            }
            self.machines.remove(first);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.machines.line_len()
    }
}

impl Page {
    pub(super) fn running(&self) -> Option<ExecutionId> {
        self.running
    }

    /// The answer to `request`, if it is the repetition of a remembered success.
    pub(super) fn recall(&self, request: &Request, now: Instant) -> Option<Report> {
        let success = self.success(request.verb)?;
        let age = now.saturating_duration_since(success.ended());
        let is_too_old =
            success.is_old(now) || request.recall_within.is_some_and(|within| age > within);
        (!is_too_old && request.repeats(success.request())).then(|| success.clone())
    }

    /// Whether this very success is still remembered.
    pub(super) fn holds(&self, report: &Report) -> bool {
        self.success(report.request().verb).is_some_and(|success| success.is(report))
    }

    fn forget(&mut self, verbs: &[Verb], which: impl Fn(&Report) -> bool) {
        for verb in verbs {
            self.success_mut(*verb).take_if(|success| which(success));
        }
    }

    fn success(&self, verb: Verb) -> Option<&Report> {
        match verb {
            Verb::Create => self.create.as_ref(),
            Verb::Initialize => self.initialize.as_ref(),
            Verb::Delete => self.delete.as_ref(),
            Verb::GetStatus | Verb::List | Verb::GetVolumeIds => None,
        }
    }

    /// Where the success of a verb is, which is one of [`MUTATING`].
    fn success_mut(&mut self, verb: Verb) -> &mut Option<Report> {
        match verb {
            Verb::Create => &mut self.create,
            Verb::Initialize => &mut self.initialize,
            Verb::Delete => &mut self.delete,
            Verb::GetStatus | Verb::List | Verb::GetVolumeIds => unreachable!("it changes nothing"),
        }
    }
}

const MUTATING: &[Verb] = &[Verb::Create, Verb::Initialize, Verb::Delete];
/// The verbs whose success says that the machine is there.
const MADE: &[Verb] = &[Verb::Create, Verb::Initialize];

impl Report {
    /// Older than anything that is remembered.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.ended()) >= REMEMBERED_FOR
    }

    fn provider_id(&self) -> Option<&str> {
        match self.outcome() {
            Ok(Payload::Machine(machine)) => machine.provider_id(),
            _ => None,
        }
    }
}
