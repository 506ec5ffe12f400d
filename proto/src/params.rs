//! What a driver is told of an operation, written straight from where the broker has it: there is one
//! for every operation, and as a message it would be a dozen texts that are copied only to be encoded.

use std::{fmt, time::Duration};

use prost::{
    bytes::{BufMut as _, Bytes},
    encoding::{WireType, encoded_len_varint},
};
use zeroize::Zeroizing;

use crate::encoded::Encoded;

/// An [`OperationParams`](crate::v1::OperationParams).
pub type Params = Encoded;

/// What goes into [`Params`]. What is empty is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// A `MachineClassMeta`, encoded.
    pub machine_class: &'a [u8],
    pub machine_id: &'a str,
    pub machine_name: &'a str,
    /// What a driver of 2018 does not know.
    pub native: Option<Native<'a>>,
}

/// The rest, for native drivers.
#[derive(Clone, Copy, Default)]
pub struct Native<'a> {
    /// A `ClassRef`, encoded, up to the provider.
    pub class: &'a [u8],
    pub provider: &'a str,
    pub request_id: &'a str,
    pub time_left: Option<Duration>,
    pub last_known_state: &'a str,
    pub user_data: Option<&'a [u8]>,
    pub volume_specs: &'a [String],
    pub secret_revision: i32,
    pub traceparent: &'a str,
    pub tracestate: &'a str,
    pub recall_within: Option<Duration>,
}

impl Parts<'_> {
    /// How many bytes are enough: the texts, and for each field its number and length.
    fn room(&self) -> usize {
        const FIELDS: usize = 16 * 12;
        let native = self.native.as_ref().map_or(0, Native::room);
        self.machine_class.len() + self.machine_id.len() + self.machine_name.len() + native + FIELDS
    }

    pub fn encode(&self) -> Params {
        // Enough for all: what holds user data must not be left behind by a buffer that grew.
        let mut bytes = Vec::with_capacity(self.room());
        blob(1, self.machine_class, &mut bytes);
        text(3, self.machine_id, &mut bytes);
        text(4, self.machine_name, &mut bytes);
        if let Some(native) = &self.native {
            native.encode(&mut bytes);
        }
        let hidden = self.native.is_some_and(|native| native.user_data.is_some());
        // Wiped once it is sent, where it holds what nobody may see.
        let params = if hidden { Bytes::from_owner(Zeroizing::new(bytes)) } else { bytes.into() };
        Encoded::from(params)
    }
}

impl Native<'_> {
    fn room(&self) -> usize {
        let texts = [
            self.provider,
            self.request_id,
            self.last_known_state,
            self.traceparent,
            self.tracestate,
        ];
        let specs = self.volume_specs.iter().map(|spec| spec.len() + 12);
        self.class.len()
            + self.user_data.map_or(0, <[u8]>::len)
            + texts.iter().map(|text| text.len()).sum::<usize>()
            + specs.sum::<usize>()
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        key(16, WireType::LengthDelimited, bytes);
        varint((self.class.len() + text_len(self.provider)) as u64, bytes);
        bytes.put_slice(self.class);
        text(5, self.provider, bytes);
        text(17, self.request_id, bytes);
        duration(18, self.time_left, bytes);
        text(19, self.last_known_state, bytes);
        if let Some(user_data) = self.user_data {
            blob(20, user_data, bytes);
        }
        for spec in self.volume_specs {
            blob(21, spec.as_bytes(), bytes);
        }
        number(22, self.secret_revision, bytes);
        text(23, self.traceparent, bytes);
        text(24, self.tracestate, bytes);
        duration(25, self.recall_within, bytes);
    }
}

#[inline]
fn text(tag: u32, text: &str, bytes: &mut Vec<u8>) {
    if !text.is_empty() {
        blob(tag, text.as_bytes(), bytes);
    }
}

#[inline]
fn blob(tag: u32, blob: &[u8], bytes: &mut Vec<u8>) {
    key(tag, WireType::LengthDelimited, bytes);
    varint(blob.len() as u64, bytes);
    bytes.extend_from_slice(blob);
}

#[inline]
fn number(tag: u32, number: i32, bytes: &mut Vec<u8>) {
    if number != 0 {
        key(tag, WireType::Varint, bytes);
        varint(number as u64, bytes);
    }
}

#[inline]
fn duration(tag: u32, time: Option<Duration>, bytes: &mut Vec<u8>) {
    // One that is too long for the wire is as good as none.
    if let Some(time) = time
        && let Ok(seconds) = i64::try_from(time.as_secs())
    {
        key(tag, WireType::LengthDelimited, bytes);
        // Of two numbers: one byte is enough for it.
        let length = bytes.len();
        bytes.push(0);
        for (tag, part) in [(1, seconds.cast_unsigned()), (2, u64::from(time.subsec_nanos()))] {
            if part != 0 {
                key(tag, WireType::Varint, bytes);
                varint(part, bytes);
            }
        }
        bytes[length] = (bytes.len() - length - 1) as u8;
    }
}

/// As prost writes it, where it is used: there are dozens of them in an operation.
#[inline]
fn varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[inline]
fn key(tag: u32, wire_type: WireType, bytes: &mut Vec<u8>) {
    varint(u64::from(tag << 3 | wire_type as u32), bytes);
}

/// Of a field with a number below 16.
fn text_len(text: &str) -> usize {
    if text.is_empty() { 0 } else { 1 + encoded_len_varint(text.len() as u64) + text.len() }
}

impl fmt::Debug for Native<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").field("request_id", &self.request_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::v1::{ClassRef, MachineClassMeta, OperationParams};

    fn wire(time: Option<u64>) -> Option<prost_types::Duration> {
        time.map(|millis| Duration::from_millis(millis).try_into().expect("short"))
    }

    proptest! {
        #[test]
        fn what_is_written_by_hand_is_read_as_the_message_that_it_is(
            texts in proptest::collection::vec(".{0,300}", 11),
            specs in proptest::collection::vec(".{0,40}", 0..3),
            (revision, secret_revision) in (any::<i32>(), any::<i32>()),
            user_data in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50)),
            (left, within) in (proptest::option::of(any::<u32>()), proptest::option::of(any::<u32>())),
        ) {
            let text = |at: usize| texts[at].clone();
            let (left, within) = (left.map(u64::from), within.map(u64::from));
            let class = ClassRef {
                api_version: text(0), kind: text(1), namespace: text(2), name: text(3),
                provider: String::new(),
            };
            let expected = OperationParams {
                machine_class: Some(MachineClassMeta {
                    name: text(4), revision, ..Default::default()
                }),
                machine_id: text(5),
                machine_name: text(6),
                class: Some(ClassRef { provider: text(7), ..class.clone() }),
                request_id: text(8),
                time_left: wire(left),
                last_known_state: text(9),
                user_data: user_data.clone().map(Into::into),
                volume_specs: specs.clone(),
                secret_revision,
                traceparent: text(10),
                recall_within: wire(within),
                ..Default::default()
            };
            let meta = expected.machine_class.as_ref().expect("set above").encode_to_vec();
            let parts = Parts {
                machine_class: &meta,
                machine_id: &texts[5],
                machine_name: &texts[6],
                native: Some(Native {
                    class: &class.encode_to_vec(),
                    provider: &texts[7],
                    request_id: &texts[8],
                    time_left: left.map(Duration::from_millis),
                    last_known_state: &texts[9],
                    user_data: user_data.as_deref(),
                    volume_specs: &specs,
                    secret_revision,
                    traceparent: &texts[10],
                    tracestate: "",
                    recall_within: within.map(Duration::from_millis),
                }),
            };
            prop_assert!(parts.encode().encoded_len() <= parts.room(), "it never grows");
            let frame = crate::passing::BrokerSide {
                operation_id: 7, params: Some(parts.encode()), ..Default::default()
            };
            let read = crate::v1::BrokerSide::decode(&*frame.encode_to_vec()).unwrap();
            prop_assert_eq!(read.params.as_ref(), Some(&expected));
            let historic = Parts { native: None, ..parts }.encode().read::<OperationParams>();
            let historic = historic.unwrap();
            prop_assert_eq!(historic, OperationParams {
                machine_class: expected.machine_class,
                machine_id: expected.machine_id,
                machine_name: expected.machine_name,
                ..Default::default()
            });
        }
    }
}
