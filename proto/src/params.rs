//! What a driver is told of an operation, written straight from where the broker has it: there is one
//! for every operation, and as a message it would be a dozen texts that are copied only to be encoded.

use std::{fmt, time::Duration};

use prost::{
    bytes::{BufMut as _, BytesMut},
    encoding::{WireType, encoded_len_varint, key_len},
};

/// An operation on its way to a driver: a [`BrokerSide`](crate::v1::BrokerSide) with these parameters.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    id: i32,
    verb: &'a str,
    params: Parts<'a>,
    /// How long they are.
    length: usize,
}

/// Its [`OperationParams`](crate::v1::OperationParams). What is empty is left out.
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

impl<'a> Order<'a> {
    pub fn new(id: i32, verb: &'a str, params: Parts<'a>) -> Self {
        let mut length = Length(0);
        params.put(&mut length);
        Self { id, verb, params, length: length.0 }
    }

    pub fn encoded_len(&self) -> usize {
        let mut length = Length(0);
        self.put_head(&mut length);
        length.0 + self.length
    }

    /// Adds it to what is there.
    pub fn encode(&self, bytes: &mut BytesMut) {
        let start = bytes.len();
        bytes.resize(start + self.encoded_len(), 0);
        let mut room = &mut bytes[start..];
        self.put_head(&mut room);
        self.params.put(&mut room);
        debug_assert!(room.is_empty(), "what is counted is what is written");
    }

    /// All up to the parameters themselves.
    #[inline]
    fn put_head(&self, to: &mut impl Put) {
        number::<1>(self.id, to);
        text::<2>(self.verb, to);
        head::<3>(self.length, to);
    }
}

impl Parts<'_> {
    #[inline]
    fn put(&self, to: &mut impl Put) {
        blob::<1>(self.machine_class, to);
        text::<3>(self.machine_id, to);
        text::<4>(self.machine_name, to);
        if let Some(native) = &self.native {
            native.put(to);
        }
    }
}

impl Native<'_> {
    #[inline]
    fn put(&self, to: &mut impl Put) {
        let mut provider = Length(0);
        text::<5>(self.provider, &mut provider);
        head::<16>(self.class.len() + provider.0, to);
        to.put(self.class);
        text::<5>(self.provider, to);
        text::<17>(self.request_id, to);
        duration::<18>(self.time_left, to);
        text::<19>(self.last_known_state, to);
        if let Some(user_data) = self.user_data {
            blob::<20>(user_data, to);
        }
        for spec in self.volume_specs {
            blob::<21>(spec.as_bytes(), to);
        }
        number::<22>(self.secret_revision, to);
        text::<23>(self.traceparent, to);
        text::<24>(self.tracestate, to);
        duration::<25>(self.recall_within, to);
    }
}

/// Where fields are put: into a frame, or where it is only counted how long they are. So what is counted
/// is what is written.
trait Put {
    fn put(&mut self, bytes: &[u8]);
    fn put_varint(&mut self, value: u64);
}

struct Length(usize);

impl Put for Length {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    #[inline]
    fn put_varint(&mut self, value: u64) {
        self.0 += encoded_len_varint(value);
    }
}

/// Room for what was counted.
impl Put for &mut [u8] {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }

    #[inline]
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }
}

#[inline]
fn text<const TAG: u32>(text: &str, to: &mut impl Put) {
    if !text.is_empty() {
        blob::<TAG>(text.as_bytes(), to);
    }
}

#[inline]
fn blob<const TAG: u32>(blob: &[u8], to: &mut impl Put) {
    head::<TAG>(blob.len(), to);
    to.put(blob);
}

/// What comes before so many bytes: mostly a key and a length that are known to have one byte, or two.
#[inline]
fn head<const TAG: u32>(length: usize, to: &mut impl Put) {
    let [low, high] = key::<TAG>(WireType::LengthDelimited);
    match length {
        0..0x80 if key_len(TAG) == 1 => to.put(&[low, length as u8]),
        0..0x80 => to.put(&[low, high, length as u8]),
        _ => {
            to.put(&[low, high][..key_len(TAG)]);
            to.put_varint(length as u64);
        }
    }
}

#[inline]
fn number<const TAG: u32>(number: i32, to: &mut impl Put) {
    if number != 0 {
        to.put(&key::<TAG>(WireType::Varint)[..key_len(TAG)]);
        to.put_varint(number as u64);
    }
}

#[inline]
fn duration<const TAG: u32>(time: Option<Duration>, to: &mut impl Put) {
    // One that is too long for the wire is as good as none.
    if let Some(time) = time
        && let Ok(seconds) = i64::try_from(time.as_secs())
    {
        let mut length = Length(0);
        numbers([seconds.cast_unsigned(), time.subsec_nanos().into()], &mut length);
        head::<TAG>(length.0, to);
        numbers([seconds.cast_unsigned(), time.subsec_nanos().into()], to);
    }
}

/// The fields 1 and 2.
#[inline]
fn numbers(numbers: [u64; 2], to: &mut impl Put) {
    for (key, number) in
        [key::<1>(WireType::Varint)[0], key::<2>(WireType::Varint)[0]].iter().zip(numbers)
    {
        if number != 0 {
            to.put(&[*key]);
            to.put_varint(number);
        }
    }
}

/// A field's key, of which the second byte counts only where it has two.
const fn key<const TAG: u32>(wire_type: WireType) -> [u8; 2] {
    let key = TAG << 3 | wire_type as u32;
    assert!(key < 1 << 14, "a field's number has no more than two bytes");
    match key {
        0..0x80 => [key as u8, 0],
        _ => [key as u8 | 0x80, (key >> 7) as u8],
    }
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
    use crate::v1::{BrokerSide, ClassRef, MachineClassMeta, OperationParams};

    fn wire(time: Option<u64>) -> Option<prost_types::Duration> {
        time.map(|millis| Duration::from_millis(millis).try_into().expect("short"))
    }

    proptest! {
        #[test]
        fn what_is_written_by_hand_is_read_as_the_message_that_it_is(
            texts in proptest::collection::vec(".{0,300}", 11),
            specs in proptest::collection::vec(".{0,40}", 0..3),
            (id, revision, secret_revision) in (any::<i32>(), any::<i32>(), any::<i32>()),
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
            let frame = |params: Parts<'_>| {
                let (order, mut bytes) = (Order::new(id, "create", params), BytesMut::new());
                order.encode(&mut bytes);
                BrokerSide::decode(bytes.freeze()).expect("it is one")
            };
            let read = BrokerSide {
                operation_id: id,
                operation_type: "create".to_owned(),
                params: Some(expected.clone()),
                control: None,
            };
            prop_assert_eq!(frame(parts), read);
            let historic = frame(Parts { native: None, ..parts }).params;
            prop_assert_eq!(historic, Some(OperationParams {
                machine_class: expected.machine_class,
                machine_id: expected.machine_id,
                machine_name: expected.machine_name,
                ..Default::default()
            }));
        }
    }
}
