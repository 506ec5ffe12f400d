//! How long operations take, and where the time goes.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry::{Registry, Unit},
};

use crate::{driver::Verb, operation::Operation};

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;
/// Nanoseconds. From what a driver answers from memory to the longest default deadline.
const BUCKETS: [u64; 19] = [
    MILLI,
    5 * MILLI / 2,
    5 * MILLI,
    10 * MILLI,
    25 * MILLI,
    50 * MILLI,
    100 * MILLI,
    250 * MILLI,
    500 * MILLI,
    SECOND,
    5 * SECOND / 2,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    120 * SECOND,
    300 * SECOND,
    600 * SECOND,
    1_200 * SECOND,
];

/// Of answered operations, by verb. One lock for all that is told of an operation: it is held for a few
/// additions. Cheap to clone: every clone is the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies(Arc<[Mutex<Phases>; Verb::ALL.len()]>);

#[derive(Debug, Default)]
struct Phases {
    queue: Histogram,
    ack: Histogram,
    execution: Histogram,
    duration: Histogram,
}

/// Of our own, since Prometheus' client locks each of its histograms: four of them cost an operation three
/// times as much as these, which share a lock.
#[derive(Clone, Copy, Debug, Default)]
struct Histogram {
    /// The last one is of what is beyond all bounds.
    counts: [u64; BUCKETS.len() + 1],
    /// Nanoseconds.
    sum: u128,
}

/// One phase of all verbs, for Prometheus.
#[derive(Debug)]
struct Phase {
    latencies: Latencies,
    of: fn(&Phases) -> &Histogram,
}

impl Latencies {
    pub(super) fn observe(&self, operation: &Operation, took: Duration) {
        let sent = operation.sent_after().unwrap_or(took);
        let accepted = operation.accepted_after().unwrap_or(took);
        let [sent, accepted, took] = [sent, accepted, took].map(nanos);
        let mut phases = self.phases(operation.request.verb);
        phases.queue.observe(sent);
        phases.ack.observe(accepted.saturating_sub(sent));
        phases.execution.observe(took.saturating_sub(accepted));
        phases.duration.observe(took);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let mut register = |name: &str, help: &str, of: fn(&Phases) -> &Histogram| {
            let phase = Phase { latencies: self.clone(), of };
            registry.register_with_unit(format!("operation_{name}"), help, Unit::Seconds, phase);
        };
        let help = "How long answered operations waited until they were sent";
        register("queue", help, |phases| &phases.queue);
        let help = "From sent to accepted by the driver, of answered operations";
        register("ack", help, |phases| &phases.ack);
        register("execution", "From accepted to answered", |phases| &phases.execution);
        register("duration", "From submitted to answered", |phases| &phases.duration);
    }

    fn phases(&self, verb: Verb) -> MutexGuard<'_, Phases> {
        self.0[verb as usize].lock().expect("no panic while locked")
    }
}

impl Histogram {
    #[inline]
    fn observe(&mut self, nanos: u64) {
        // From the shortest on, since two of the four are mostly short.
        let bucket = BUCKETS.iter().position(|bound| nanos <= *bound);
        self.counts[bucket.unwrap_or(BUCKETS.len())] += 1;
        self.sum += u128::from(nanos);
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let seconds = |nanos: f64| nanos / SECOND as f64;
        let bounds = BUCKETS.iter().map(|bound| seconds(*bound as f64)).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.counts).collect();
        let count = self.counts.iter().sum();
        encoder.encode_histogram::<NoLabelSet>(seconds(self.sum as f64), count, &buckets, None)
    }
}

impl EncodeMetric for Phase {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for verb in Verb::ALL {
            let histogram = *(self.of)(&self.latencies.phases(verb));
            histogram.encode(encoder.encode_family(&[("verb", verb.as_str())])?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn a_time_is_counted_up_to_the_bound_that_it_just_reaches() {
        let latencies = Latencies::default();
        for nanos in [MILLI, MILLI + 1, 5 * MILLI / 2, 3_000 * SECOND] {
            latencies.phases(Verb::List).ack.observe(nanos);
        }
        let (mut registry, mut page) = (Registry::default(), String::new());
        latencies.register(&mut registry);
        text::encode(&mut page, &registry).unwrap();
        let lines: Vec<_> = page
            .lines()
            .skip_while(|line| !line.contains("_ack"))
            .filter(|line| line.starts_with('#') || line.contains(r#"verb="list""#))
            .take(8)
            .collect();
        assert_eq!(
            lines,
            [
                "# HELP operation_ack_seconds From sent to accepted by the driver, of answered operations.",
                "# TYPE operation_ack_seconds histogram",
                "# UNIT operation_ack_seconds seconds",
                r#"operation_ack_seconds_sum{verb="list"} 3000.004500001"#,
                r#"operation_ack_seconds_count{verb="list"} 4"#,
                r#"operation_ack_seconds_bucket{le="0.001",verb="list"} 1"#,
                r#"operation_ack_seconds_bucket{le="0.0025",verb="list"} 3"#,
                r#"operation_ack_seconds_bucket{le="0.005",verb="list"} 3"#,
            ]
        );
        let beyond = r#"operation_ack_seconds_bucket{le="+Inf",verb="list"} 4"#;
        assert!(page.lines().any(|line| line == beyond), "{page}");
    }
}
