//! A driver's frame, read field by field where it is what nearly all are: the answer to one operation.

use prost::{DecodeError, Message as _, bytes::Bytes};

use crate::{
    fields::{Fields, Value, text},
    passing::{DriverSide, OperationResult, driver_side::Response, operation_result::Payload},
};

impl DriverSide {
    /// Reads a frame as it came: what is passed on of it stays where it is.
    pub fn read(frame: Bytes) -> Result<Self, DecodeError> {
        match answer(&frame) {
            Some(answer) => Ok(answer),
            None => Self::decode(frame),
        }
    }
}

/// The frame, if it is an answer, and says nothing that is rare.
fn answer(frame: &Bytes) -> Option<DriverSide> {
    let (mut id, mut kind, mut result) = (0, None, None);
    let mut fields = Fields(frame);
    while let Some(field) = fields.next().ok()? {
        match field {
            (1, Value::Number(number)) => id = number as i32,
            (2, Value::Bytes(bytes)) => kind = Some(bytes),
            // Two of them would have to be merged.
            (17, Value::Bytes(bytes)) if result.is_none() => result = Some(bytes),
            _ => return None,
        }
    }
    let result = outcome(frame, result?)?;
    Some(DriverSide {
        operation_id: id,
        operation_type: kind.map_or_else(Bytes::new, |kind| frame.slice_ref(kind)),
        response: Some(Response::Result(Box::new(result))),
    })
}

fn outcome(frame: &Bytes, encoded: &[u8]) -> Option<OperationResult> {
    let mut result = OperationResult::default();
    let mut fields = Fields(encoded);
    while let Some(field) = fields.next().ok()? {
        match field {
            (1, Value::Number(code)) => result.code = code as i32,
            (2, Value::Bytes(bytes)) => text(bytes).ok()?.clone_into(&mut result.message),
            (4, Value::Bytes(machine)) => {
                result.payload = Some(Payload::Machine(frame.slice_ref(machine)));
            }
            _ => return None,
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v1;

    proptest! {
        #[test]
        fn an_answer_that_is_read_by_hand_is_what_prost_reads(
            (id, code) in (any::<i32>(), any::<i32>()),
            (kind, message, provider_id) in ("[a-z]{0,10}", ".{0,40}", ".{0,200}"),
            (has_machine, seconds) in (any::<bool>(), proptest::option::of(any::<i64>())),
        ) {
            let machine = v1::MachineResponse { provider_id, ..Default::default() };
            let payload = has_machine.then_some(v1::operation_result::Payload::Machine(machine));
            let retry_after = seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 });
            let result = v1::OperationResult { code, message, retry_after, payload };
            let frame = Bytes::from(v1::DriverSide {
                operation_id: id,
                operation_type: kind,
                response: Some(v1::driver_side::Response::Result(result)),
            }.encode_to_vec());
            prop_assert_eq!(answer(&frame).is_none(), seconds.is_some(), "a rare one is not");
            prop_assert_eq!(DriverSide::read(frame.clone()), DriverSide::decode(frame));
        }

        #[test]
        fn whatever_comes_it_is_read_as_prost_reads_it(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            code in any::<u8>(),
        ) {
            // Mostly nonsense, and then the same as the result of an answer.
            let nested = [&[0x8a, 0x01, bytes.len() as u8], &*bytes].concat();
            let twice = [&*nested, &[0x8a, 0x01, 2, 0x08, code & 0x7f]].concat();
            for frame in [bytes, nested, twice] {
                let frame = Bytes::from(frame);
                if let Some(read) = answer(&frame) {
                    prop_assert_eq!(Ok(read), DriverSide::decode(frame));
                }
            }
        }
    }
}
