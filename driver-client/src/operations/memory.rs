//! Successes worth remembering, and what makes them untrue.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{MachineKey, Report, Request};
use crate::{
    answer::{Outcome, Payload},
    error::Code,
    machine::ListedMachine,
    verb::Verb,
};

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
    successes: HashMap<(MachineKey, Verb), Success>,
    /// In order of time, for expiry. Entries whose number is not the stored one are stale.
    ages: VecDeque<(Instant, MachineKey, Verb, u64)>,
    next: u64,
}

#[derive(Debug)]
struct Success {
    report: Report,
    at: Instant,
    number: u64,
}

impl Memory {
    /// The answer to `request`, if it is the repetition of a remembered success.
    pub(super) fn recall(&mut self, request: &Request, now: Instant) -> Option<Arc<Outcome>> {
        self.expire(now);
        let success = self.successes.get(&(request.machine_key(), request.verb))?;
        let age = now.saturating_duration_since(success.at);
        if request.recall_within.is_some_and(|within| age > within) {
            return None;
        }
        request.repeats(&success.report.request).then(|| success.report.outcome.clone())
    }

    /// Whether this very success is still remembered.
    pub(super) fn holds(&self, report: &Report) -> bool {
        let request = &report.request;
        let success = self.successes.get(&(request.machine_key(), request.verb));
        success.is_some_and(|success| Arc::ptr_eq(&success.report.outcome, &report.outcome))
    }

    /// A mutation begins to execute, so the machine will not be what it was.
    ///
    /// Not only when it succeeds: a delete that ran out of time may have removed the machine all
    /// the same, and executing a create once too often is what drivers can cope with.
    pub(super) fn began(&mut self, request: &Request) {
        let machine = request.machine_key();
        match request.verb {
            Verb::Create => self.forget(&machine, &[Verb::Create, Verb::Delete]),
            Verb::Delete => self.forget_all(&machine),
            Verb::Initialize | Verb::GetStatus | Verb::List | Verb::GetVolumeIds => {}
        }
    }

    /// Draws the conclusions from an answer. Reads only speak of what ended before they `began`.
    pub(super) fn learn(&mut self, report: &Report, began: Instant, now: Instant) {
        let request = &report.request;
        match (request.verb, &*report.outcome) {
            (Verb::Create | Verb::Initialize | Verb::Delete, Ok(_)) => self.remember(report, now),
            (Verb::GetStatus, Err(error)) if error.code() == Code::NotFound => {
                self.forget_before(&request.machine_key(), MADE, began);
            }
            (Verb::GetStatus, Ok(_)) => {
                self.forget_before(&request.machine_key(), &[Verb::Delete], began);
            }
            (Verb::GetStatus, Err(error)) if error.code() == Code::Uninitialized => {
                self.forget_before(&request.machine_key(), &[Verb::Delete], began);
            }
            (Verb::List, Ok(Payload::List(machines))) if request.provider_id.is_empty() => {
                self.learn_list(request, machines, began);
            }
            _ => {}
        }
    }

    fn learn_list(&mut self, list: &Request, machines: &[ListedMachine], began: Instant) {
        let names: HashSet<_> = machines.iter().map(|m| m.machine_name.as_str()).collect();
        let ids: HashSet<_> = machines.iter().map(|m| m.provider_id.as_str()).collect();
        self.successes.retain(|(_, verb), success| {
            let request = &success.report.request;
            if !request.class.is_same(&list.class) || success.at > began {
                return true;
            }
            let shown = names.contains(request.machine.as_str())
                || success.report.provider_id().is_some_and(|id| ids.contains(id));
            // A listed machine was not deleted, an unlisted one is not there.
            shown != (*verb == Verb::Delete)
        });
    }

    fn remember(&mut self, report: &Report, now: Instant) {
        let machine = report.request.machine_key();
        let verb = report.request.verb;
        let number = self.next;
        self.next += 1;
        self.ages.push_back((now, machine.clone(), verb, number));
        self.successes.insert((machine, verb), Success { report: report.clone(), at: now, number });
        self.expire(now);
    }

    /// The machine is not what it was.
    pub(super) fn forget_all(&mut self, machine: &MachineKey) {
        self.forget(machine, &[Verb::Create, Verb::Initialize, Verb::Delete]);
    }

    fn forget(&mut self, machine: &MachineKey, verbs: &[Verb]) {
        for verb in verbs {
            self.successes.remove(&(machine.clone(), *verb));
        }
    }

    fn forget_before(&mut self, machine: &MachineKey, verbs: &[Verb], began: Instant) {
        for verb in verbs {
            let key = (machine.clone(), *verb);
            if self.successes.get(&key).is_some_and(|success| success.at <= began) {
                self.successes.remove(&key);
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((at, ..)) = self.ages.front() {
            let old = now.saturating_duration_since(*at) >= REMEMBERED_FOR;
            // `ages` counts stale entries as well, so this bounds both collections.
            if !old && self.ages.len() <= REMEMBERED_AT_MOST {
                break;
            }
            let Some((_, machine, verb, number)) = self.ages.pop_front() else { break };
            let key = (machine, verb);
            if self.successes.get(&key).is_some_and(|success| success.number == number) {
                self.successes.remove(&key);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ages.len()
    }
}

/// The verbs whose success says that the machine is there.
const MADE: &[Verb] = &[Verb::Create, Verb::Initialize];

impl Report {
    fn provider_id(&self) -> Option<&str> {
        match &*self.outcome {
            Ok(Payload::Machine(machine)) if !machine.provider_id.is_empty() => {
                Some(&machine.provider_id)
            }
            _ => None,
        }
    }
}
