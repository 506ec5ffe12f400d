//! What a driver is asked, read where it arrived: as a message it would be a dozen texts, of which most are
//! copied only to be dropped.

use std::fmt;

use prost_types::Duration;

use crate::fields::{Fields, Unreadable, Value, duration, text};

/// An [`OperationParams`](crate::v1::OperationParams), of which nothing was copied. Who sends it writes it
/// with [`Parts`](crate::passing::Parts).
#[derive(Clone, Default, PartialEq)]
pub struct Asked<'a> {
    /// A `MachineClassMeta`, encoded: it is the same from one operation to the next, and is read once.
    pub machine_class: &'a [u8],
    pub machine_id: &'a str,
    pub machine_name: &'a str,
    /// A `ClassRef`, encoded.
    pub class: &'a [u8],
    pub request_id: &'a str,
    pub time_left: Option<Duration>,
    pub last_known_state: &'a str,
    pub user_data: Option<&'a [u8]>,
    pub volume_specs: Vec<&'a str>,
    pub secret_revision: i32,
    pub traceparent: &'a str,
    pub tracestate: &'a str,
    pub recall_within: Option<Duration>,
}

impl<'a> Asked<'a> {
    /// Fields that are not known, or are not what they should be, are skipped.
    pub fn read(params: &'a [u8]) -> Result<Self, Unreadable> {
        let mut asked = Self::default();
        let mut fields = Fields(params);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(bytes)) => asked.machine_class = bytes,
                (3, Value::Bytes(bytes)) => asked.machine_id = text(bytes)?,
                (4, Value::Bytes(bytes)) => asked.machine_name = text(bytes)?,
                (16, Value::Bytes(bytes)) => asked.class = bytes,
                (17, Value::Bytes(bytes)) => asked.request_id = text(bytes)?,
                (18, Value::Bytes(bytes)) => asked.time_left = Some(duration(bytes)?),
                (19, Value::Bytes(bytes)) => asked.last_known_state = text(bytes)?,
                (20, Value::Bytes(bytes)) => asked.user_data = Some(bytes),
                (21, Value::Bytes(bytes)) => asked.volume_specs.push(text(bytes)?),
                (22, Value::Number(number)) => asked.secret_revision = number as i32,
                (23, Value::Bytes(bytes)) => asked.traceparent = text(bytes)?,
                (24, Value::Bytes(bytes)) => asked.tracestate = text(bytes)?,
                (25, Value::Bytes(bytes)) => asked.recall_within = Some(duration(bytes)?),
                _ => {}
            }
        }
        Ok(asked)
    }
}

/// What it says of the machine may be secret.
impl fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("machine_name", &self.machine_name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::v1::{ClassRef, MachineClassMeta, OperationParams};

    fn a_duration() -> impl Strategy<Value = Option<Duration>> {
        let some = (any::<i64>(), any::<i32>());
        proptest::option::of(some.prop_map(|(seconds, nanos)| Duration { seconds, nanos }))
    }

    proptest! {
        #[test]
        fn what_is_read_by_hand_is_what_was_written(
            texts in proptest::collection::vec(".{0,300}", 8),
            volume_specs in proptest::collection::vec(".{0,40}", 0..3),
            (revision, secret_revision) in (any::<i32>(), any::<i32>()),
            user_data in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50)),
            (time_left, recall_within) in (a_duration(), a_duration()),
        ) {
            let text = |at: usize| texts[at].clone();
            let class = ClassRef { name: text(0), ..Default::default() };
            let machine_class =
                MachineClassMeta { name: text(1), revision, ..Default::default() };
            let written = OperationParams {
                machine_class: Some(machine_class.clone()),
                credentials: "none".to_owned(),
                machine_id: text(2),
                machine_name: text(3),
                class: Some(class.clone()),
                request_id: text(4),
                time_left,
                last_known_state: text(5),
                user_data: user_data.clone().map(Into::into),
                volume_specs: volume_specs.clone(),
                secret_revision,
                traceparent: text(6),
                tracestate: text(7),
                recall_within,
            }
            .encode_to_vec();
            let (class, machine_class) = (class.encode_to_vec(), machine_class.encode_to_vec());
            prop_assert_eq!(Asked::read(&written), Ok(Asked {
                machine_class: &machine_class,
                machine_id: &texts[2],
                machine_name: &texts[3],
                class: &class,
                request_id: &texts[4],
                time_left,
                last_known_state: &texts[5],
                user_data: user_data.as_deref(),
                volume_specs: volume_specs.iter().map(String::as_str).collect(),
                secret_revision,
                traceparent: &texts[6],
                tracestate: &texts[7],
                recall_within,
            }));
        }

        #[test]
        fn whatever_comes_nothing_panics_and_what_prost_reads_too_is_the_same(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            if let (Ok(asked), Ok(params)) = (Asked::read(&bytes), OperationParams::decode(&*bytes)) {
                prop_assert_eq!(asked.machine_name, params.machine_name);
                prop_assert_eq!(asked.secret_revision, params.secret_revision);
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_no_text_is_unreadable() {
        let name = |bytes: &[u8]| [&[4 << 3 | 2, 3][..], bytes].concat();
        assert_eq!(Asked::read(&name(b"abc")).map(|asked| asked.machine_name), Ok("abc"));
        assert_eq!(Asked::read(&name(b"ab")), Err(Unreadable));
        assert_eq!(Asked::read(&name(b"\xff\xff\xff")), Err(Unreadable));
        assert_eq!(Asked::read(&[0x80; 11]), Err(Unreadable));
    }

    #[test]
    fn fields_of_tomorrow_are_skipped() {
        let ahead = [
            // 30: a number, 31: eight bytes, 30: a text, 31: four bytes; then the name.
            &[0xf0, 1, 7, 0xf9, 1, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[0xf2, 1, 1, b'x', 0xfd, 1, 0, 0, 0, 0],
            &[4 << 3 | 2, 1, b'm'],
        ];
        assert_eq!(Asked::read(&ahead.concat()).map(|asked| asked.machine_name), Ok("m"));
    }
}
