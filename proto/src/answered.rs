//! A driver's frame, read field by field where it is what nearly all are: the answer to one operation.

use std::ops::Range;

use prost::{
    DecodeError, Message as _,
    bytes::{Buf as _, Bytes},
};

use crate::{
    fields::{Fields, Value, text},
    passing::{DriverSide, OperationResult, driver_side::Response, operation_result::Payload},
};

/// The verbs that we know: a frame that names one of them keeps no memory for it, and any other is read all the
/// same.
const VERBS: [&str; 6] = ["create", "delete", "list", "get_status", "initialize", "get_volume_ids"];

impl DriverSide {
    /// Reads a frame as it came: what is passed on of it stays where it is.
    pub fn read(frame: Bytes) -> Result<Self, DecodeError> {
        let Some(answer) = Answer::read(&frame) else { return Self::decode(frame) };
        let Answer { id, verb, code, message, machine } = answer;
        let payload = machine.map(|machine| Payload::Machine(cut(frame, machine)));
        let result = OperationResult { code, message, payload, retry_after: None };
        Ok(Self {
            operation_id: id,
            operation_type: verb,
            response: Some(Response::Result(Box::new(result))),
        })
    }
}

/// What a frame says that is an answer, and says nothing that is rare.
#[derive(Default)]
struct Answer {
    id: i32,
    verb: Bytes,
    code: i32,
    message: String,
    /// Where in the frame it is.
    machine: Option<Range<usize>>,
}

impl Answer {
    fn read(frame: &[u8]) -> Option<Self> {
        let (mut answer, mut result) = (Self::default(), None);
        let mut fields = Fields(frame);
        while let Some(field) = fields.next().ok()? {
            match field {
                (1, Value::Number(number)) => answer.id = number as i32,
                (2, Value::Bytes(bytes)) => answer.verb = verb(bytes),
                // Two of them would have to be merged.
                (17, Value::Bytes(bytes)) if result.is_none() => result = Some(bytes),
                _ => return None,
            }
        }
        let mut fields = Fields(result?);
        while let Some(field) = fields.next().ok()? {
            match field {
                (1, Value::Number(code)) => answer.code = code as i32,
                (2, Value::Bytes(bytes)) => text(bytes).ok()?.clone_into(&mut answer.message),
                (4, Value::Bytes(machine)) => {
                    let start = machine.as_ptr().addr() - frame.as_ptr().addr();
                    answer.machine = Some(start..start + machine.len());
                }
                _ => return None,
            }
        }
        Some(answer)
    }
}

fn verb(bytes: &[u8]) -> Bytes {
    let known = VERBS.into_iter().find(|verb| verb.as_bytes() == bytes);
    known.map_or_else(|| Bytes::copy_from_slice(bytes), |known| known.as_bytes().into())
}

/// A part of what came, for which all else is let go.
fn cut(mut frame: Bytes, part: Range<usize>) -> Bytes {
    frame.truncate(part.end);
    frame.advance(part.start);
    frame
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
            prop_assert_eq!(Answer::read(&frame).is_none(), seconds.is_some(), "a rare one is not");
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
                if Answer::read(&frame).is_some() {
                    prop_assert_eq!(DriverSide::read(frame.clone()), DriverSide::decode(frame));
                }
            }
        }
    }
}
