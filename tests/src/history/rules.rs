//! The rules, one function for those that look at the same things.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Call, Delivery, End, Execution, History, Rule, Time, Verb, Vm,
    check::{Findings, SLACK, overlaps},
};

pub(super) fn answers(history: &History, found: &mut Findings) {
    for call in &history.calls {
        if call.endings.len() != 1 {
            found.add(Rule::AnsweredOnce, format!("{} answers to {call:?}", call.endings.len()));
        }
        if let Some(at) = call.over()
            && at > call.deadline + SLACK
        {
            found.add(Rule::AnsweredInTime, format!("{:?} late: {call:?}", at - call.deadline));
        }
        let untold = |end: &End| matches!(end, End::Failed { delivery: Delivery::Untold, .. });
        if call.reached && call.endings.iter().any(|ending| untold(&ending.what)) {
            found.add(Rule::ReachedIsTold, format!("{call:?}"));
        }
        if call.calm && !call.succeeded() {
            found.add(Rule::CalmCallsSucceed, format!("{call:?}"));
        }
    }
}

pub(super) fn vms(history: &History, found: &mut Findings) {
    for (machine, vms) in by_machine(&history.vms, |vm| &vm.machine) {
        for (one, other) in overlaps(&vms, |vm| (vm.born.unwrap_or_default(), vm.died)) {
            found.add(Rule::OneVmPerMachine, format!("{machine}: {one:?} and {other:?}"));
        }
        for vm in vms {
            let asked = |call: &Call| {
                let before = vm.born.is_none_or(|born| call.invoked <= born);
                call.verb == Verb::Create && call.machine == machine && before
            };
            if !history.calls.iter().any(asked) {
                found.add(Rule::NoVmUnasked, format!("{vm:?}"));
            }
        }
    }
}

pub(super) fn executions(history: &History, found: &mut Findings) {
    let mutations: Vec<_> =
        history.executions.iter().filter(|run| run.verb.mutates()).cloned().collect();
    for (machine, runs) in by_machine(&mutations, |run| &run.machine) {
        for (one, other) in overlaps(&runs, |run| (run.began, run.ended)) {
            found.add(Rule::OneMutationPerMachine, format!("{machine}: {one:?} and {other:?}"));
        }
    }
    for (boot, capacity) in &history.capacities {
        let runs: Vec<_> = history.executions.iter().filter(|run| run.boot == *boot).collect();
        for run in &runs {
            let at_once =
                runs.iter().filter(|other| other.began <= run.began && !other.ended_by(run.began));
            let at_once = at_once.count();
            if at_once > *capacity {
                let what = format!("{boot} runs {at_once} at {:?} and can {capacity}", run.began);
                found.add(Rule::WithinCapacity, what);
            }
        }
    }
}

/// What callers were told of how far they got.
pub(super) fn deliveries(history: &History, found: &mut Findings) {
    for call in &history.calls {
        let Some(ending) = call.endings.first() else { continue };
        let End::Failed { delivery, .. } = ending.what else { continue };
        let mut own = history.executions.iter().filter(|run| run.call == Some(call.id));
        match delivery {
            Delivery::NotSent => {
                // Whoever joined it may go on waiting, and then it is executed for them.
                let for_another = |run: &Execution| {
                    run.began >= ending.at
                        && history.calls.iter().any(|other| {
                            let same = (other.verb, &other.machine) == (call.verb, &call.machine);
                            let waits = other.over().is_none_or(|over| over >= ending.at);
                            same && other.id != call.id && other.invoked <= run.began && waits
                        })
                };
                if let Some(run) = own.find(|run| !for_another(run)) {
                    found.add(Rule::NotSentIsNotExecuted, format!("{call:?} and {run:?}"));
                }
            }
            // It may have joined another's, or met what an earlier call began.
            Delivery::Accepted => {
                let begun = |run: &Execution| {
                    run.verb == call.verb && run.machine == call.machine && run.began <= ending.at
                };
                if call.verb.mutates() && !history.executions.iter().any(begun) {
                    found.add(Rule::AcceptedWasExecuted, format!("{call:?}"));
                }
            }
            Delivery::Answered => {
                if let Some(run) = own.find(|run| !run.ended_by(ending.at)) {
                    found.add(Rule::FailureIsFinal, format!("{call:?} and {run:?}"));
                }
            }
            Delivery::Sent | Delivery::Untold => {}
        }
    }
}

/// Successes against the provider, at any time between question and answer.
pub(super) fn truth(history: &History, found: &mut Findings) {
    let vms: BTreeMap<&str, &Vm> =
        history.vms.iter().map(|vm| (vm.provider_id.as_str(), vm)).collect();
    for call in &history.calls {
        let Some(ending) = call.endings.first() else { continue };
        let (from, to) = (call.invoked, ending.at);
        let is_true = |machine: &str, id: &str| {
            vms.get(id).is_some_and(|vm| vm.machine == machine && vm.lived_within(from, to))
        };
        let lie = match &ending.what {
            End::Machine { provider_id } => !is_true(&call.machine, provider_id),
            End::Gone => always_alive(history, &call.machine, from, to),
            End::Listed(machines) => {
                let listed: BTreeSet<_> = machines.iter().map(|(_, id)| id.as_str()).collect();
                let stood = |vm: &Vm| {
                    vm.born.is_some_and(|born| born < from) && vm.died.is_none_or(|died| died > to)
                };
                let missing =
                    vms.values().any(|vm| stood(vm) && !listed.contains(vm.provider_id.as_str()));
                missing || machines.iter().any(|(machine, id)| !is_true(machine, id))
            }
            End::Left | End::Failed { .. } => false,
        };
        if lie {
            let of_machine: Vec<_> =
                history.vms.iter().filter(|vm| vm.machine == call.machine).collect();
            found.add(Rule::SuccessIsTrue, format!("{call:?}, VMs {of_machine:?}"));
        }
    }
}

/// Whether one VM of the machine stood all the time.
fn always_alive(history: &History, machine: &str, from: Time, to: Time) -> bool {
    history.vms.iter().any(|vm| {
        vm.machine == machine
            && vm.born.is_some_and(|born| born < from)
            && vm.died.is_none_or(|died| died > to)
    })
}

/// A success that came after all else that was asked of a machine is what is true at the end, whatever
/// became of the others: what may still run must not meet it.
pub(super) fn last_word(history: &History, found: &mut Findings) {
    let mutations: Vec<_> =
        history.calls.iter().filter(|call| call.verb.mutates()).cloned().collect();
    for (machine, calls) in by_machine(&mutations, |call| &call.machine) {
        let Some(last) = calls.iter().max_by_key(|call| call.invoked) else { continue };
        let is_last =
            |call: &Call| call.id == last.id || call.over().is_some_and(|over| over < last.invoked);
        if !last.succeeded() || !calls.iter().all(is_last) {
            continue;
        }
        let standing: Vec<_> = history
            .vms
            .iter()
            .filter(|vm| vm.machine == machine && vm.died.is_none())
            .map(|vm| vm.provider_id.as_str())
            .collect();
        let expected = match &last.endings[0].what {
            End::Machine { provider_id } => vec![provider_id.as_str()],
            _ => Vec::new(),
        };
        if standing != expected {
            let what = format!("{last:?}, but there is {standing:?}");
            found.add(Rule::LastWordHolds, what);
        }
    }
}

pub(super) fn rest(history: &History, found: &mut Findings) {
    for leftover in &history.leftovers {
        found.add(Rule::NothingLeft, leftover.clone());
    }
    for run in history.executions.iter().filter(|run| run.ended.is_none()) {
        found.add(Rule::NothingLeft, format!("{run:?}"));
    }
}

fn by_machine<T: Clone>(items: &[T], machine: impl Fn(&T) -> &str) -> BTreeMap<String, Vec<T>> {
    let mut sorted: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for item in items.iter().filter(|item| !machine(item).is_empty()) {
        sorted.entry(machine(item).to_owned()).or_default().push(item.clone());
    }
    sorted
}
