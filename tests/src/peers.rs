//! Drivers of other times than ours, as small as they can be kept.
//!
//! Those of 2018 are `Driver::historic`. What brokers of other times say to our driver library is in
//! `driver-client/src/tests/peers.rs`.

use broker_proto::v1::{BrokerSide, DriverSide, driver_side::Response};
use prost::{
    Message as _,
    bytes::{BufMut as _, Bytes},
    encoding::{WireType, encode_key, encode_varint},
};
use tonic::{
    Status,
    codec::{Codec, EncodeBuf, Encoder},
};
use tonic_prost::ProstCodec;

use crate::{Hello, hello};

/// The first native one: it speaks our protocol, and can nothing of what is optional.
pub fn early(instance: &str) -> Hello {
    Hello {
        verbs: Vec::new(),
        cancel: false,
        resume: false,
        drain: false,
        paging: false,
        capacity: 0,
        ..hello(instance)
    }
}

/// The next one, which still speaks our protocol and knows more than we do.
pub fn next(instance: &str) -> Hello {
    let mut hello = hello(instance);
    hello.verbs.extend(["hibernate", "resize"].map(str::to_owned));
    Hello { protocol_max: 2, ..hello }
}

/// The one after that, which has forgotten ours.
pub fn after_next(instance: &str) -> Hello {
    Hello { protocol_min: 2, protocol_max: 3, ..hello(instance) }
}

/// The words of a later protocol: ours, with fields in every frame and every hello that we know
/// nothing of.
#[derive(Clone, Copy, Debug)]
pub struct Newer;

/// Numbers that nobody uses so far.
const UNKNOWN_FIELD: u32 = 2_000;
const UNKNOWN_NUMBER: u32 = 2_001;
/// Of `Registration` in a frame, and of `Hello` in a registration.
const REGISTRATION: u32 = 3;
const HELLO: u32 = 16;

impl Codec for Newer {
    type Encode = DriverSide;
    type Decode = BrokerSide;
    type Encoder = Self;
    type Decoder = <ProstCodec<DriverSide, BrokerSide> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        *self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<DriverSide, BrokerSide>::default().decoder()
    }
}

impl Encoder for Newer {
    type Item = DriverSide;
    type Error = Status;

    fn encode(&mut self, frame: DriverSide, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(newer(&frame));
        Ok(())
    }
}

/// A frame of ours in the words of a later protocol.
pub fn newer(frame: &DriverSide) -> Bytes {
    let mut bytes = frame.encode_to_vec();
    unknown(&mut bytes);
    if let Some(Response::Registration(_)) = frame.response {
        // A message that comes twice is merged, so this adds to the hello that is there.
        let mut hello = Vec::new();
        unknown(&mut hello);
        let hello = nested(HELLO, &hello);
        bytes.extend(nested(REGISTRATION, &hello));
    }
    bytes.into()
}

fn unknown(bytes: &mut Vec<u8>) {
    bytes.extend(nested(UNKNOWN_FIELD, b"of the future"));
    encode_key(UNKNOWN_NUMBER, WireType::Varint, bytes);
    encode_varint(7, bytes);
}

fn nested(field: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(field, WireType::LengthDelimited, &mut bytes);
    encode_varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

#[cfg(test)]
mod tests {
    use broker_proto::v1::Registration;

    use super::*;

    #[test]
    fn newer_words_are_longer_and_mean_the_same_to_us() {
        let registration = Registration { hello: Some(hello("a")), ..Default::default() };
        let response = Some(Response::Registration(registration));
        let frame = DriverSide { operation_id: 1, operation_type: "register".into(), response };
        let newer = newer(&frame);
        assert!(newer.len() > frame.encoded_len() + 40);
        assert_eq!(DriverSide::decode(newer).unwrap(), frame);
    }
}
