//! What a caller asks for, read where it arrived: as messages it would be a dozen texts, of which most are
//! copied only to be dropped.

use std::fmt;

use prost_types::Duration;

use crate::fields::{Fields, Unreadable, Value, duration, text};

/// A [`SubmitRequest`](crate::v1::SubmitRequest), of which nothing was copied.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Submission<'a> {
    pub tag: u64,
    pub operation: Option<Submitted<'a>>,
    /// Or that it is none.
    pub timeout: Option<Result<Duration, Unreadable>>,
}

/// Its operation: a request that is still to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Submitted<'a> {
    Create(&'a [u8]),
    Initialize(&'a [u8]),
    Delete(&'a [u8]),
    GetStatus(&'a [u8]),
    List(&'a [u8]),
    GetVolumeIds(&'a [u8]),
}

impl<'a> Submission<'a> {
    /// Fields that are not known, or are not what they should be, are skipped.
    pub fn read(message: &'a [u8]) -> Result<Self, Unreadable> {
        let mut submission = Self::default();
        let mut fields = Fields(message);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Number(tag)) => submission.tag = tag,
                (2, Value::Bytes(it)) => submission.operation = Some(Submitted::Create(it)),
                (3, Value::Bytes(it)) => submission.operation = Some(Submitted::Initialize(it)),
                (4, Value::Bytes(it)) => submission.operation = Some(Submitted::Delete(it)),
                (5, Value::Bytes(it)) => submission.operation = Some(Submitted::GetStatus(it)),
                (6, Value::Bytes(it)) => submission.operation = Some(Submitted::List(it)),
                (7, Value::Bytes(it)) => submission.operation = Some(Submitted::GetVolumeIds(it)),
                (8, Value::Bytes(bytes)) => submission.timeout = Some(duration(bytes)),
                _ => {}
            }
        }
        Ok(submission)
    }
}

/// A [`MachineRequest`](crate::v1::MachineRequest), of which nothing was copied.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineAsked<'a> {
    /// A `ClassRef`, encoded: it is the same from one request to the next, and is read once.
    pub class: &'a [u8],
    /// Not known to be a text.
    pub machine_name: &'a [u8],
    pub provider_id: &'a str,
    pub last_known_state: &'a str,
    pub user_data: Option<&'a [u8]>,
    pub request_id: &'a str,
    pub wait_for_driver: bool,
}

impl<'a> MachineAsked<'a> {
    /// Fields that are not known, or are not what they should be, are skipped.
    pub fn read(message: &'a [u8]) -> Result<Self, Unreadable> {
        let mut asked = Self::default();
        let mut fields = Fields(message);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(bytes)) => asked.class = bytes,
                (2, Value::Bytes(bytes)) => asked.machine_name = bytes,
                (3, Value::Bytes(bytes)) => asked.provider_id = text(bytes)?,
                (4, Value::Bytes(bytes)) => asked.last_known_state = text(bytes)?,
                (5, Value::Bytes(bytes)) => asked.user_data = Some(bytes),
                (6, Value::Bytes(bytes)) => asked.request_id = text(bytes)?,
                (7, Value::Number(number)) => asked.wait_for_driver = number != 0,
                _ => {}
            }
        }
        Ok(asked)
    }
}

/// The request may hold what nobody may see.
impl fmt::Debug for Submission<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl fmt::Debug for MachineAsked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(self.machine_name);
        f.debug_struct("MachineAsked").field("machine_name", &name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::v1::{ClassRef, MachineRequest, SubmitRequest, submit_request::Operation};

    fn a_request() -> impl Strategy<Value = MachineRequest> {
        let texts = proptest::collection::vec(".{0,300}", 5);
        let user_data = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50));
        (texts, user_data, any::<bool>()).prop_map(|(texts, user_data, wait_for_driver)| {
            let text = |at: usize| texts[at].clone();
            MachineRequest {
                class: Some(ClassRef { name: text(0), ..Default::default() }),
                machine_name: text(1),
                provider_id: text(2),
                last_known_state: text(3),
                user_data: user_data.map(Into::into),
                request_id: text(4),
                wait_for_driver,
            }
        })
    }

    proptest! {
        #[test]
        fn a_request_that_is_read_by_hand_is_what_was_written(request in a_request()) {
            let class = request.class.as_ref().expect("set above").encode_to_vec();
            let written = request.encode_to_vec();
            prop_assert_eq!(MachineAsked::read(&written), Ok(MachineAsked {
                class: &class,
                machine_name: request.machine_name.as_bytes(),
                provider_id: &request.provider_id,
                last_known_state: &request.last_known_state,
                user_data: request.user_data.as_deref(),
                request_id: &request.request_id,
                wait_for_driver: request.wait_for_driver,
            }));
        }

        #[test]
        fn a_submission_that_is_read_by_hand_is_what_was_written(
            request in a_request(),
            tag in any::<u64>(),
            timeout in proptest::option::of((any::<i64>(), any::<i32>())),
            verb in 0..4,
        ) {
            let timeout = timeout.map(|(seconds, nanos)| Duration { seconds, nanos });
            let encoded = request.encode_to_vec();
            let (operation, read) = match verb {
                0 => (Operation::Create(request), Submitted::Create(&encoded)),
                1 => (Operation::Initialize(request), Submitted::Initialize(&encoded)),
                2 => (Operation::Delete(request), Submitted::Delete(&encoded)),
                _ => (Operation::GetStatus(request), Submitted::GetStatus(&encoded)),
            };
            let written = SubmitRequest { tag, operation: Some(operation), timeout }.encode_to_vec();
            let timeout = timeout.map(Ok);
            let expected = Submission { tag, operation: Some(read), timeout };
            prop_assert_eq!(Submission::read(&written), Ok(expected));
        }

        #[test]
        fn whatever_comes_nothing_panics_and_what_prost_reads_too_is_the_same(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            if let (Ok(read), Ok(message)) = (Submission::read(&bytes), SubmitRequest::decode(&*bytes))
            {
                prop_assert_eq!(read.tag, message.tag);
            }
            if let (Ok(read), Ok(message)) =
                (MachineAsked::read(&bytes), MachineRequest::decode(&*bytes))
            {
                prop_assert_eq!(read.request_id, message.request_id);
            }
        }
    }

    #[test]
    fn what_it_prints_tells_nothing_that_is_secret() {
        let request = MachineRequest {
            machine_name: "m".to_owned(),
            last_known_state: "marker".to_owned(),
            user_data: Some("marker".into()),
            ..Default::default()
        };
        let encoded = request.encode_to_vec();
        let operation = Some(Operation::Create(request));
        let submit = SubmitRequest { operation, ..Default::default() }.encode_to_vec();
        let printed = format!("{:?} {:?}", MachineAsked::read(&encoded), Submission::read(&submit));
        assert!(printed.contains("\"m\"") && !printed.contains("marker"), "{printed}");
    }
}
