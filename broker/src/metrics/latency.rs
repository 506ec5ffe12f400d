//! How long operations take, and where the time goes.

use std::time::Duration;

use prometheus_client::{
    metrics::{family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::{driver::Verb, operation::Operation};

/// Seconds. From what a driver answers from memory to the longest default deadline.
const BUCKETS: [f64; 19] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0, 1200.0,
];

/// Of answered operations, by verb.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    queue: ByVerb,
    ack: ByVerb,
    execution: ByVerb,
    duration: ByVerb,
}

#[derive(Debug)]
struct ByVerb {
    family: Family<[(&'static str, &'static str); 1], Histogram>,
    /// The family's own, looked up once.
    histograms: [Histogram; Verb::ALL.len()],
}

impl Latencies {
    pub(super) fn observe(&self, operation: &Operation, took: Duration) {
        let verb = operation.request.verb;
        let sent = operation.sent_after().unwrap_or(took);
        let accepted = operation.accepted_after().unwrap_or(took);
        self.queue.observe(verb, sent);
        self.ack.observe(verb, accepted.saturating_sub(sent));
        self.execution.observe(verb, took.saturating_sub(accepted));
        self.duration.observe(verb, took);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let all = [
            ("queue", "How long answered operations waited until they were sent", &self.queue),
            ("ack", "From sent to accepted by the driver, of answered operations", &self.ack),
            ("execution", "From accepted to answered", &self.execution),
            ("duration", "From submitted to answered", &self.duration),
        ];
        for (name, help, by_verb) in all {
            let name = format!("operation_{name}");
            registry.register_with_unit(name, help, Unit::Seconds, by_verb.family.clone());
        }
    }
}

impl Default for ByVerb {
    fn default() -> Self {
        let family = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> _);
        let histograms =
            Verb::ALL.map(|verb| family.get_or_create_owned(&[("verb", verb.as_str())]));
        Self { family, histograms }
    }
}

impl ByVerb {
    fn observe(&self, verb: Verb, time: Duration) {
        self.histograms[verb as usize].observe(time.as_secs_f64());
    }
}
