//! How long each operation took.

use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    pub(super) fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(super) fn extend(&mut self, others: Samples) {
        self.0.extend(others.0);
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// The times that these parts of all operations do not exceed (nearest rank).
    pub(super) fn percentiles<const N: usize>(mut self, parts: [f64; N]) -> [Duration; N] {
        self.0.sort_unstable();
        parts.map(|part| {
            let rank = (part * self.0.len() as f64).ceil() as usize;
            self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let mut samples = Samples::default();
        (1..=100).rev().for_each(|time| samples.push(Duration::from_micros(time)));
        let [lowest, median, high, highest] = samples.percentiles([0.0, 0.5, 0.99, 1.0]);
        let expected = [1, 50, 99, 100].map(Duration::from_micros);
        assert_eq!([lowest, median, high, highest], expected);
    }

    #[test]
    fn the_one_sample_is_every_percentile() {
        let mut samples = Samples::default();
        samples.push(Duration::from_micros(7));
        assert_eq!(samples.percentiles([0.5, 0.99]), [Duration::from_micros(7); 2]);
    }
}
