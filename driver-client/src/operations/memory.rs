//! Successes worth remembering, and what makes them untrue.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{MachineKey, Report, Request};
use crate::{answer::Payload, error::Code, machine::ListedMachine, maps::HashedMap, verb::Verb};

/// How long a success is remembered.
pub(super) const REMEMBERED_FOR: Duration = Duration::from_secs(15 * 60);
/// How many are, at most. Beyond it the oldest go first.
pub(super) const REMEMBERED_AT_MOST: usize = 16_384;

/// The latest success of each mutating verb, by machine.
///
/// The latest only: a request id that comes again after another one has succeeded is executed
/// again, which the driver's own idempotence covers.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Each for as long as one of its `ages` is there, if it is not empty before.
    machines: HashedMap<MachineKey, Successes>,
    /// In order of time, for expiry. Entries whose number is not the stored one are stale.
    ages: VecDeque<(Instant, MachineKey, Verb, u64)>,
    next: u64,
}

/// Of one machine, by verb.
#[derive(Debug, Default)]
struct Successes {
    create: Option<Success>,
    initialize: Option<Success>,
    delete: Option<Success>,
}

#[derive(Debug)]
struct Success {
    report: Report,
    number: u64,
}

impl Memory {
    /// The answer to `request`, if it is the repetition of a remembered success.
    pub(super) fn recall(&mut self, request: &Request, now: Instant) -> Option<Report> {
        self.expire(now);
        let success = self.machines.get(&request.machine)?.of(request.verb)?;
        let age = now.saturating_duration_since(success.report.ended());
        if request.recall_within.is_some_and(|within| age > within) {
            return None;
        }
        request.repeats(success.report.request()).then(|| success.report.clone())
    }

    /// Whether this very success is still remembered.
    pub(super) fn holds(&self, report: &Report) -> bool {
        let request = report.request();
        let machine = self.machines.get(&request.machine);
        let success = machine.and_then(|successes| successes.of(request.verb));
        success.is_some_and(|success| success.report.is(report))
    }

    /// A mutation begins to execute, so the machine will not be what it was.
    ///
    /// Not only when it succeeds: a delete that ran out of time may have removed the machine all
    /// the same, and executing a create once too often is what drivers can cope with.
    pub(super) fn began(&mut self, request: &Request) {
        let changes: &[Verb] = match request.verb {
            Verb::Create => &[Verb::Create, Verb::Delete],
            Verb::Delete => MUTATING,
            Verb::Initialize | Verb::GetStatus | Verb::List | Verb::GetVolumeIds => return,
        };
        // Most likely it succeeds, so its place stays: what is too old goes together with it.
        if let Some(successes) = self.machines.get_mut(&request.machine) {
            changes.iter().for_each(|verb| *successes.place(*verb) = None);
        }
    }

    /// Draws the conclusions from an answer. Reads only speak of what ended before they `began`.
    pub(super) fn learn(&mut self, report: &Report, began: Instant) {
        let request = report.request();
        match (request.verb, report.outcome()) {
            (Verb::Create | Verb::Initialize | Verb::Delete, Ok(_)) => self.remember(report),
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
        let holds = |success: &Success| {
            let request = success.report.request();
            if !request.class().is_same(list.class()) || success.report.ended() > began {
                return true;
            }
            let shown = names.contains(request.machine.name())
                || success.report.provider_id().is_some_and(|id| ids.contains(id));
            // A listed machine was not deleted, an unlisted one is not there.
            shown != (request.verb == Verb::Delete)
        };
        self.machines.retain(|_, successes| {
            for verb in MUTATING {
                successes.place(*verb).take_if(|success| !holds(success));
            }
            !successes.is_empty()
        });
    }

    fn remember(&mut self, report: &Report) {
        let Request { machine, verb, .. } = report.request();
        let number = self.next;
        self.next += 1;
        self.ages.push_back((report.ended(), machine.clone(), *verb, number));
        let successes = self.machines.entry(machine.clone()).or_default();
        *successes.place(*verb) = Some(Success { report: report.clone(), number });
        self.expire(report.ended());
    }

    /// The machine is not what it was.
    pub(super) fn forget_all(&mut self, machine: &MachineKey) {
        self.machines.remove(machine);
    }

    fn forget_before(&mut self, machine: &MachineKey, verbs: &[Verb], began: Instant) {
        self.forget(machine, verbs, |success| success.report.ended() <= began);
    }

    fn forget(&mut self, machine: &MachineKey, verbs: &[Verb], which: impl Fn(&Success) -> bool) {
        let Some(successes) = self.machines.get_mut(machine) else { return };
        for verb in verbs {
            successes.place(*verb).take_if(|success| which(success));
        }
        if successes.is_empty() {
            self.machines.remove(machine);
        }
    }

    fn expire(&mut self, now: Instant) {
        let too_old = now.checked_sub(REMEMBERED_FOR);
        while let Some((at, ..)) = self.ages.front() {
            let old = too_old.is_some_and(|too_old| *at <= too_old);
            // `ages` counts stale entries as well, so this bounds both collections.
            if !old && self.ages.len() <= REMEMBERED_AT_MOST {
                break;
            }
            let Some((_, machine, verb, number)) = self.ages.pop_front() else { break };
            self.forget(&machine, &[verb], |success| success.number == number);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ages.len()
    }
}

const MUTATING: &[Verb] = &[Verb::Create, Verb::Initialize, Verb::Delete];
/// The verbs whose success says that the machine is there.
const MADE: &[Verb] = &[Verb::Create, Verb::Initialize];

impl Successes {
    fn of(&self, verb: Verb) -> Option<&Success> {
        match verb {
            Verb::Create => self.create.as_ref(),
            Verb::Initialize => self.initialize.as_ref(),
            Verb::Delete => self.delete.as_ref(),
            Verb::GetStatus | Verb::List | Verb::GetVolumeIds => None,
        }
    }

    /// Where the success of a verb is, which is one of [`MUTATING`].
    fn place(&mut self, verb: Verb) -> &mut Option<Success> {
        match verb {
            Verb::Create => &mut self.create,
            Verb::Initialize => &mut self.initialize,
            Verb::Delete => &mut self.delete,
            Verb::GetStatus | Verb::List | Verb::GetVolumeIds => unreachable!("it changes nothing"),
        }
    }

    fn is_empty(&self) -> bool {
        self.create.is_none() && self.initialize.is_none() && self.delete.is_none()
    }
}

impl Report {
    fn provider_id(&self) -> Option<&str> {
        match self.outcome() {
            Ok(Payload::Machine(machine)) if !machine.provider_id.is_empty() => {
                Some(&machine.provider_id)
            }
            _ => None,
        }
    }
}
