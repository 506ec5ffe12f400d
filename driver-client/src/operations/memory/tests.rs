use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    error::Error,
    machine::Machine,
    operations::{Addresses, ClassRef},
};

fn request(verb: Verb, machine: u8) -> Request {
    let class = ClassRef::from_wire(broker_proto::v1::ClassRef::default());
    let texts = [&*machine.to_string(), "", ""];
    Request::new(verb, Arc::new(class), texts, &mut String::new())
}

#[derive(Clone, Debug)]
enum Step {
    Begin { machine: u8, verb: Verb },
    End { machine: u8, succeeds: bool },
    Forget { machine: u8 },
    Pass { minutes: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let machine = || 0..6_u8;
    let step = prop_oneof![
        4 => (machine(), prop::sample::select(MUTATING))
            .prop_map(|(machine, verb)| Step::Begin { machine, verb }),
        4 => (machine(), any::<bool>())
            .prop_map(|(machine, succeeds)| Step::End { machine, succeeds }),
        1 => machine().prop_map(|machine| Step::Forget { machine }),
        1 => (0..10_u64).prop_map(|minutes| Step::Pass { minutes }),
    ];
    prop::collection::vec(step, 1..80)
}

/// The same in lists.
#[derive(Default)]
struct Model {
    running: BTreeMap<u8, (Request, Place)>,
    /// The newest last.
    ends: Vec<(u8, Report)>,
    successes: Vec<(u8, Report)>,
}

impl Model {
    fn forget(&mut self, machine: u8, verbs: &[Verb]) {
        self.successes
            .retain(|(other, report)| *other != machine || !verbs.contains(&report.request().verb));
    }

    fn forget_end(&mut self, machine: u8) {
        self.ends.retain(|(other, _)| *other != machine);
    }
}

proptest! {
    #[test]
    fn the_newest_end_of_each_machine_is_known_in_order_and_successes_for_their_time(
        steps in steps(),
    ) {
        let mut memory = Memory::default();
        let mut model = Model::default();
        let mut now = Instant::now();
        for step in steps {
            match step {
                Step::Begin { machine, verb } if !model.running.contains_key(&machine) => {
                    let request = request(verb, machine);
                    let found = memory.find(&request.machine).map(|(place, _)| place);
                    let place = memory.began(found, &request, ExecutionId(usize::from(machine)));
                    model.running.insert(machine, (request, place));
                    model.forget_end(machine);
                    match verb {
                        Verb::Create => model.forget(machine, &[Verb::Create, Verb::Delete]),
                        Verb::Delete => model.forget(machine, MUTATING),
                        _ => {}
                    }
                }
                Step::End { machine, succeeds } => {
                    let Some((request, place)) = model.running.remove(&machine) else { continue };
                    let outcome = match succeeds {
                        true => Ok(Payload::machine(Machine::default())),
                        false => Err(Error::internal("no")),
                    };
                    let verb = request.verb;
                    let report = Report::new(request, outcome, now);
                    let known = Known { asked: Addresses::new(), told: Addresses::new() };
                    memory.ended(place, &report, known);
                    model.ends.push((machine, report.clone()));
                    if succeeds {
                        model.forget(machine, &[verb]);
                        model.successes.push((machine, report));
                    }
                }
                Step::Forget { machine } => {
                    memory.forget(&request(Verb::Create, machine).machine);
                    model.forget_end(machine);
                    model.forget(machine, MUTATING);
                }
                Step::Pass { minutes } => now += Duration::from_secs(60 * minutes),
                Step::Begin { .. } => {}
            }

            let ends: Vec<_> = memory.ends().map(|(report, _)| report).collect();
            let young = ends.iter().filter(|report| !report.is_old(now));
            let expected = model.ends.iter().rev().map(|(_, report)| report);
            let expected: Vec<_> = expected.filter(|report| !report.is_old(now)).collect();
            prop_assert_eq!(young.clone().count(), expected.len());
            prop_assert!(young.zip(expected).all(|(one, other)| one.is(other)));
            prop_assert_eq!(memory.len(), ends.len(), "in line is what ended");

            for (machine, verb) in (0..6).flat_map(|n| MUTATING.iter().map(move |verb| (n, *verb))) {
                let request = request(verb, machine);
                let page = memory.find(&request.machine).map(|(_, page)| page);
                let runs = page.and_then(Page::running);
                prop_assert_eq!(runs.is_some(), model.running.contains_key(&machine));
                let recalled = page.and_then(|page| page.recall(&request, now));
                let expected = model.successes.iter().find(|(other, report)| {
                    *other == machine && report.request().verb == verb && !report.is_old(now)
                });
                prop_assert_eq!(recalled.is_some(), expected.is_some());
                prop_assert!(recalled.zip(expected).is_none_or(|(one, (_, other))| one.is(other)));
            }
        }
    }
}
