//! What a history comes to, in the figures of a last line.

use broker_tests::history::{History, Rule, Verb, Violation, check};

/// What a run broke.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) wrong: usize,
    pub(crate) hung: usize,
}

impl Verdict {
    /// Shows what is broken on stderr. Rules that `excused` names do not count.
    pub(crate) fn of(history: &History, excused: &[Rule]) -> Self {
        let mut verdict = Self::default();
        for violation in check(history) {
            if excused.contains(&violation.rule) {
                continue;
            }
            eprintln!("{violation}");
            verdict.add(&violation);
        }
        verdict
    }

    fn add(&mut self, violation: &Violation) {
        match violation.rule {
            Rule::AnsweredOnce | Rule::AnsweredInTime => self.hung += 1,
            _ => self.wrong += 1,
        }
    }
}

/// How many executions there were beyond the first of each machine's create.
pub(crate) fn executed_again(history: &History) -> usize {
    let creates = history.executions.iter().filter(|run| run.verb == Verb::Create);
    let machines: std::collections::BTreeSet<_> = creates.clone().map(|run| &run.machine).collect();
    creates.count() - machines.len()
}
