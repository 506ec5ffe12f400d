//! What a session has done so far, for those who judge it. Pure.

use std::time::SystemTime;

use crate::operation::{Answer, shortened};

/// How many answers the error rate looks back on.
const LATELY: u32 = 100;
/// How many failures from the start make a driver one that does not work.
const ENOUGH: u64 = 3;
const MAX_ERROR: usize = 512;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub succeeded: u64,
    pub failed: u64,
    /// Failures by the driver's own fault.
    faults: u64,
    /// Whether each of the last answers was such a failure: a bit each, the newest is the lowest.
    lately: u128,
    pub last_error: Option<LastError>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LastError {
    pub message: String,
    pub at: SystemTime,
}

impl Record {
    pub fn note(&mut self, answer: &Answer) {
        let fault = answer.code.blames_driver();
        if answer.code.is_ok() {
            self.succeeded += 1;
        } else {
            self.failed += 1;
            self.faults += u64::from(fault);
            let message = format!("{}: {}", answer.code, answer.message);
            let at = SystemTime::now();
            self.last_error = Some(LastError { message: shortened(message, MAX_ERROR), at });
        }
        self.lately = (self.lately << 1 | u128::from(fault)) & ((1 << LATELY) - 1);
    }

    /// The share of failures by the driver's own fault among its last answers, 0 to 1.
    pub fn error_rate(&self) -> f64 {
        let answers = (self.succeeded + self.failed).min(LATELY.into());
        // At most a hundred: exact.
        if answers == 0 { 0.0 } else { f64::from(self.lately.count_ones()) / answers as f64 }
    }

    /// Whether all of its first operations failed by its own fault.
    pub fn fails_from_the_start(&self) -> bool {
        self.succeeded == 0 && self.faults >= ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Code, Payload};

    fn note(record: &mut Record, code: i32) {
        let answer = match Code::from_wire(code) {
            Code::OK => Answer::ok(Payload::None),
            code => Answer::failed(code, "no".to_owned()),
        };
        record.note(&answer);
    }

    #[test]
    fn only_failures_by_its_own_fault_count_against_a_driver() {
        let mut record = Record::default();
        for code in [8, 5, 13] {
            note(&mut record, code);
        }
        assert_eq!((record.succeeded, record.failed), (0, 3));
        assert!((record.error_rate() - 1.0 / 3.0).abs() < 1e-9);
        assert!(!record.fails_from_the_start());
        note(&mut record, 2);
        note(&mut record, 12);
        assert!(record.fails_from_the_start());
        assert_eq!(record.last_error.as_ref().unwrap().message, "UNIMPLEMENTED: no");
        note(&mut record, 0);
        assert!(!record.fails_from_the_start());
    }

    #[test]
    fn the_error_rate_forgets() {
        let mut record = Record::default();
        note(&mut record, 13);
        for _ in 0..LATELY {
            note(&mut record, 0);
        }
        assert_eq!(record.error_rate(), 0.0);
        assert_eq!(record.failed, 1);
    }
}
