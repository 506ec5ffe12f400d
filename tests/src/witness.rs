//! What drivers wrote down and what the cloud holds, as parts of a history.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs, io,
    path::Path,
    time::Duration,
};

use sim_driver::journal::{Journal, Line, What};

use crate::{
    caller::call_of,
    history::{Execution, History, Recorder, Time, Verb, Vm},
};

/// Knows when a line of a journal was in the time of a history.
#[derive(Clone, Debug)]
pub struct Witness {
    /// The journal's clock when the history began.
    zero: u64,
    /// Processes that were killed, by their number.
    killed: HashMap<u32, Time>,
}

impl Witness {
    pub fn of(recorder: &Recorder) -> Self {
        let since = u64::try_from(recorder.now().as_nanos()).expect("a run ends within centuries");
        Self { zero: Journal::now().saturating_sub(since), killed: HashMap::new() }
    }

    /// A process does nothing any more.
    pub fn killed(&mut self, process: u32) {
        let now = self.time(Journal::now());
        self.killed.insert(process, now);
    }

    /// Adds what the journal tells; `standing` is what the cloud holds now, as id and machine.
    pub fn tell(&self, history: &mut History, journal: &Path, standing: &[(String, String)]) {
        let text = match fs::read_to_string(journal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.expect("the journal can be read"),
        };
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line of ours"));
        self.tell_lines(history, lines, standing);
    }

    fn tell_lines(
        &self,
        history: &mut History,
        lines: impl Iterator<Item = Line>,
        standing: &[(String, String)],
    ) {
        let mut executions: BTreeMap<(u32, u64), Execution> = BTreeMap::new();
        let mut vms: BTreeMap<String, Vm> = BTreeMap::new();
        let mut removing: BTreeMap<String, Time> = BTreeMap::new();
        for Line { at, process, what } in lines {
            let at = self.time(at);
            match what {
                What::Began { number, verb, machine, traceparent } => {
                    let Some(verb) = verb_of(&verb) else { continue };
                    let (boot, call) = (process.to_string(), call_of(traceparent.as_deref()));
                    let ended = self.killed.get(&process).copied();
                    let run = Execution { boot, call, verb, machine, began: at, ended };
                    executions.insert((process, number), run);
                }
                What::Ended { number } => {
                    if let Some(run) = executions.get_mut(&(process, number)) {
                        run.ended = Some(at);
                    }
                }
                What::Making { id, machine } => {
                    let vm = Vm { provider_id: id.clone(), machine, born: Some(at), died: None };
                    vms.entry(id).or_insert(vm);
                }
                What::Removing { id } => {
                    removing.entry(id).or_insert(at);
                }
                What::Removed { id } => {
                    if let Some(vm) = vms.get_mut(&id) {
                        vm.died.get_or_insert(at);
                    }
                }
            }
        }
        let stands: BTreeSet<&str> = standing.iter().map(|(id, _)| id.as_str()).collect();
        vms.retain(|id, vm| {
            if stands.contains(id.as_str()) {
                vm.died = None;
            } else {
                // Killed before it said that it was done, or before there was a VM at all.
                vm.died = vm.died.or(removing.get(id).copied());
            }
            stands.contains(id.as_str()) || vm.died.is_some()
        });
        for (id, machine) in standing {
            let (provider_id, machine) = (id.clone(), machine.clone());
            let unannounced = Vm { provider_id, machine, born: None, died: None };
            vms.entry(id.clone()).or_insert(unannounced);
        }
        history.executions.extend(executions.into_values());
        history.vms.extend(vms.into_values());
    }

    fn time(&self, at: u64) -> Time {
        Duration::from_nanos(at.saturating_sub(self.zero))
    }
}

fn verb_of(verb: &str) -> Option<Verb> {
    match verb {
        "create" => Some(Verb::Create),
        "delete" => Some(Verb::Delete),
        "get_status" => Some(Verb::Status),
        "list" => Some(Verb::List),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn line(at: u64, what: What) -> Line {
        Line { at: at * SECOND, process: 7, what }
    }

    fn making(id: &str) -> What {
        What::Making { id: id.to_owned(), machine: "m".to_owned() }
    }

    fn told(lines: Vec<Line>, standing: &[&str]) -> History {
        let killed = HashMap::from([(7, Duration::from_secs(100))]);
        let standing: Vec<_> =
            standing.iter().map(|id| ((*id).to_owned(), "m".to_owned())).collect();
        let mut history = History::default();
        Witness { zero: SECOND, killed }.tell_lines(&mut history, lines.into_iter(), &standing);
        history
    }

    #[test]
    fn what_a_killed_driver_ran_ended_with_it() {
        let began = |number| What::Began {
            number,
            verb: "create".to_owned(),
            machine: "m".to_owned(),
            traceparent: None,
        };
        let lines = vec![line(2, began(0)), line(3, What::Ended { number: 0 }), line(4, began(1))];
        let ends: Vec<_> = told(lines, &[]).executions.iter().map(|run| run.ended).collect();
        assert_eq!(ends, [Some(Duration::from_secs(2)), Some(Duration::from_secs(100))]);
    }

    #[test]
    fn vms_that_were_only_announced_never_were_and_the_others_live_from_then_on() {
        let removing = |id: &str| What::Removing { id: id.to_owned() };
        let removed = |id: &str| What::Removed { id: id.to_owned() };
        let lines = vec![
            line(2, making("never-was")),
            line(3, making("stands")),
            line(4, making("gone")),
            line(5, removing("gone")),
            line(6, removed("gone")),
            line(7, making("cut-short")),
            line(8, removing("cut-short")),
            line(9, making("survived")),
            line(9, removing("survived")),
        ];
        let history = told(lines, &["stands", "survived", "unannounced"]);
        let lives: BTreeMap<_, _> = history
            .vms
            .iter()
            .map(|vm| {
                let seconds = |time: Option<Time>| time.map(|time| time.as_secs());
                (vm.provider_id.as_str(), (seconds(vm.born), seconds(vm.died)))
            })
            .collect();
        let expected = [
            ("cut-short", (Some(6), Some(7))),
            ("gone", (Some(3), Some(5))),
            ("stands", (Some(2), None)),
            ("survived", (Some(8), None)),
            ("unannounced", (None, None)),
        ];
        assert_eq!(lives, BTreeMap::from(expected));
    }
}
