//! How much is done in one turn before whoever is next may begin with it.
//!
//! An operation passes from its caller through the broker to a driver and back. What is in flight at the same
//! time tends to travel together: if the broker sees to all of it before it hands anything on, caller,
//! broker and driver work one after the other, and all but one of the machine's processors idle. If it hands
//! on one by one, all that they do is wake each other.

/// So many are worth waking somebody for.
const LEAST: usize = 16;

/// So many take a few milliseconds, in which nobody else is served.
const MOST: usize = 1_024;

/// How many operations are handed on together, of so many in flight: half of them, so that there is
/// something to do on both sides of us.
pub(crate) fn turn(in_flight: usize) -> usize {
    (in_flight / 2).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_half_but_never_a_few_nor_thousands() {
        assert_eq!([0, 1, 64, 100, 256, 10_000].map(turn), [16, 16, 32, 50, 128, 1_024]);
    }
}
