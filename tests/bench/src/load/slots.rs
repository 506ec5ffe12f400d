//! The operations in flight on one stream, where answers come in any order.

use tokio::time::Instant;

use super::{samples::Samples, window::Window};
use crate::workload::Operation;

/// Each operation has a slot while it is in flight; the next one takes it over.
#[derive(Debug)]
pub(super) struct Slots {
    /// The number, over all streams, of whoever has the first slot.
    first: usize,
    began: Vec<Instant>,
    /// How many are in flight.
    busy: usize,
    window: Window,
    samples: Samples,
}

impl Slots {
    pub(super) fn new(first: usize, slots: usize, window: &Window) -> Self {
        Self {
            first,
            began: vec![Instant::now(); slots],
            busy: 0,
            window: window.clone(),
            samples: Samples::default(),
        }
    }

    pub(super) fn all(&self) -> std::ops::Range<usize> {
        0..self.began.len()
    }

    /// The next operation for a free slot, as long as there is to be one.
    pub(super) fn next(&mut self, slot: usize, now: Instant) -> Option<Operation> {
        let number = self.window.next(now)?;
        self.began[slot] = now;
        self.busy += 1;
        Some(Operation { asker: self.first + slot, number })
    }

    /// The operation in this slot was answered; the next one begins.
    pub(super) fn turn(&mut self, slot: usize, now: Instant) -> Option<Operation> {
        if self.window.counts(now) {
            self.samples.push(now - self.began[slot]);
        }
        self.busy -= 1;
        self.next(slot, now)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.busy == 0
    }

    pub(super) fn into_samples(self) -> Samples {
        self.samples
    }
}

/// How many slots each of so many streams has, and which number its first one.
pub(super) fn spread(in_flight: usize, streams: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..streams).map(move |stream| {
        let first = stream * in_flight / streams;
        (first, (stream + 1) * in_flight / streams - first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_again_until_the_last_operation_is_answered() {
        let window = Window::of(3);
        let mut slots = Slots::new(10, 2, &window);
        let asked = |operation: Option<Operation>| operation.map(|o| (o.asker, o.number));
        let now = Instant::now();
        assert_eq!(asked(slots.next(0, now)), Some((10, 0)));
        assert_eq!(asked(slots.next(1, now)), Some((11, 1)));
        assert_eq!(asked(slots.turn(1, now)), Some((11, 2)));
        assert_eq!(asked(slots.turn(1, now)), None);
        assert!(!slots.is_idle());
        assert_eq!(asked(slots.turn(0, now)), None);
        assert!(slots.is_idle());
        assert_eq!(slots.into_samples().len(), 3);
    }

    #[test]
    fn streams_share_what_is_in_flight_evenly() {
        assert_eq!(spread(7, 3).collect::<Vec<_>>(), [(0, 2), (2, 2), (4, 3)]);
        assert_eq!(spread(1, 1).collect::<Vec<_>>(), [(0, 1)]);
    }
}
