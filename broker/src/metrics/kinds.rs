//! The kinds that are told apart, and what is counted for each of them.

use std::sync::{
    Arc, OnceLock, RwLock,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::{
    driver::Verb,
    maps::HashMap,
    operation::{Code, Delivery, Outcome},
};

/// Every label costs memory here and in Prometheus; kinds beyond these share one.
const MOST: usize = 64;
const OTHER: &str = "other";
/// The codes, and the two ways to end without one.
const OUTCOMES: usize = 20;

/// Kinds by name, once seen never forgotten.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    known: RwLock<HashMap<Arc<str>, Arc<Kind>>>,
    other: OnceLock<Arc<Kind>>,
}

#[derive(Debug)]
pub(super) struct Kind {
    name: Arc<str>,
    /// By verb and outcome. All of them are there, so that counting one is one addition.
    operations: [[AtomicU64; OUTCOMES]; Verb::ALL.len()],
    /// Callers that wait for a driver to come.
    pub(super) waiting: AtomicUsize,
}

/// How an operation ended, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Answered(Code),
    Lost,
    NotSent,
}

impl Kinds {
    /// Looks up, or adds, a kind. Nothing is allocated for one that is known.
    pub(super) fn with<T>(&self, name: &str, then: impl FnOnce(&Arc<Kind>) -> T) -> T {
        if name == OTHER {
            return then(self.other());
        }
        let known = self.known.read().expect("no panic while locked");
        if let Some(kind) = known.get(name) {
            return then(kind);
        }
        let full = known.len() >= MOST;
        drop(known);
        if full {
            return then(self.other());
        }
        let mut known = self.known.write().expect("no panic while locked");
        // Others may have come in the meantime.
        if known.len() >= MOST && !known.contains_key(name) {
            return then(self.other());
        }
        let kind = known.entry(name.into()).or_insert_with(|| Arc::new(Kind::new(name)));
        then(&Arc::clone(kind))
    }

    fn other(&self) -> &Arc<Kind> {
        self.other.get_or_init(|| Arc::new(Kind::new(OTHER)))
    }

    /// All kinds in order; the shared one only if it is used.
    pub(super) fn all(&self) -> Vec<Arc<Kind>> {
        let known = self.known.read().expect("no panic while locked");
        let mut all: Vec<_> = known.values().map(Arc::clone).collect();
        all.extend(self.other.get().map(Arc::clone));
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }
}

impl Kind {
    fn new(name: &str) -> Self {
        Self { name: name.into(), operations: Default::default(), waiting: AtomicUsize::new(0) }
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(super) fn count(&self, verb: Verb, ended: Ended) {
        self.operations[verb as usize][ended.at()].fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted so far: verb, outcome and how many; without those that never happened.
    pub(super) fn counts(&self) -> impl Iterator<Item = (Verb, &'static str, u64)> {
        Verb::ALL.into_iter().flat_map(|verb| {
            let counts = self.operations[verb as usize].iter().enumerate();
            counts
                .map(move |(at, count)| (verb, Ended::name_at(at), count.load(Ordering::Relaxed)))
                .filter(|(_, _, count)| *count > 0)
        })
    }
}

impl Ended {
    pub(super) fn of(outcome: &Outcome, delivery: Delivery) -> Self {
        match outcome {
            Outcome::Answered(answer) => Ended::Answered(answer.code),
            Outcome::Lost if delivery == Delivery::NotSent => Ended::NotSent,
            Outcome::Lost => Ended::Lost,
        }
    }

    fn at(self) -> usize {
        match self {
            Ended::Answered(code) => usize::try_from(code.number()).unwrap_or_default(),
            Ended::Lost => OUTCOMES - 2,
            Ended::NotSent => OUTCOMES - 1,
        }
    }

    fn name_at(at: usize) -> &'static str {
        match (at + 2).checked_sub(OUTCOMES) {
            Some(0) => "LOST",
            Some(_) => "NOT_SENT",
            None => Code::from_wire(at as i32).name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_64_kinds_are_told_apart_and_the_rest_is_other() {
        let kinds = Kinds::default();
        for n in 0..100 {
            kinds.with(&format!("kind-{n}"), |kind| kind.count(Verb::List, Ended::Lost));
        }
        let all = kinds.all();
        assert_eq!(all.len(), MOST + 1);
        let other = all.iter().find(|kind| &*kind.name == OTHER).unwrap();
        assert_eq!(other.counts().collect::<Vec<_>>(), [(Verb::List, "LOST", 36)]);
        kinds.with("kind-0", |kind| assert_eq!(&*kind.name, "kind-0", "an early one stays"));
    }

    #[test]
    fn a_kind_called_other_is_no_second_series() {
        let kinds = Kinds::default();
        kinds.with(OTHER, |kind| assert_eq!(&*kind.name, OTHER));
        assert_eq!(kinds.all().len(), 1);
    }

    #[test]
    fn every_outcome_has_a_place_and_a_name_of_its_own() {
        let kind = Kind::new("K");
        let codes = (0..=17).map(|code| Ended::Answered(Code::from_wire(code)));
        for ended in codes.chain([Ended::Lost, Ended::NotSent]) {
            kind.count(Verb::Create, ended);
        }
        let names: Vec<_> = kind.counts().map(|(_, name, count)| (name, count)).collect();
        assert_eq!(names.len(), OUTCOMES);
        assert!(names.iter().all(|(_, count)| *count == 1));
        assert_eq!((names[0].0, names[17].0), ("OK", "UNINITIALIZED"));
        assert_eq!((names[18].0, names[19].0), ("LOST", "NOT_SENT"));
    }
}
