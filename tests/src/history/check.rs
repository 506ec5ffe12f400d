//! All rules against one history.

use std::time::Duration;

use super::{History, Rule, Time, Violation, rules};

/// By how much an answer may be late: "before its deadline + 1 s".
pub const SLACK: Duration = Duration::from_secs(1);

/// What the history breaks; nothing if all is well.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Findings::default();
    rules::answers(history, &mut found);
    rules::vms(history, &mut found);
    rules::executions(history, &mut found);
    rules::deliveries(history, &mut found);
    rules::truth(history, &mut found);
    rules::last_word(history, &mut found);
    rules::rest(history, &mut found);
    found.0
}

#[derive(Default)]
pub(super) struct Findings(Vec<Violation>);

impl Findings {
    pub(super) fn add(&mut self, rule: Rule, what: String) {
        self.0.push(Violation { rule, what });
    }
}

/// Pairs of spans that overlap. Spans that only touch do not.
pub(super) fn overlaps<T>(
    items: &[T],
    span: impl Fn(&T) -> (Time, Option<Time>),
) -> impl Iterator<Item = (&T, &T)> {
    let overlap = move |a: &T, b: &T| {
        let ((a_from, a_to), (b_from, b_to)) = (span(a), span(b));
        a_to.is_none_or(|end| b_from < end) && b_to.is_none_or(|end| a_from < end)
    };
    items.iter().enumerate().flat_map(move |(index, one)| {
        let later = &items[index + 1..];
        later
            .iter()
            .filter(|other| overlap(one, other))
            .map(move |other| (one, other))
            .collect::<Vec<_>>()
    })
}
