//! A driver's answer about a machine, passed on as it came: who asked is told in the very same bytes.

use std::{fmt, str};

use prost::{
    DecodeError, Message as _,
    bytes::{BufMut as _, Bytes, BytesMut},
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len},
};

use crate::{
    fields::{Fields, Unreadable, Value},
    v1::MachineResponse,
};

/// A [`MachineResponse`], encoded and known to be one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EncodedMachine(Bytes);

/// The field of a [`SubmitResponse`](crate::v1::SubmitResponse) that holds it.
const SUBMITTED: u32 = 2;

impl EncodedMachine {
    /// Fails if whoever reads it would fail: what a driver sent is not passed on before this was asked,
    /// since that would cost its reader the whole stream.
    pub fn check(encoded: Bytes) -> Result<Self, Unreadable> {
        let mut fields = Fields(&encoded);
        while let Some(field) = fields.next()? {
            match field {
                (1 | 2 | 4, Value::Bytes(bytes)) => check_text(bytes)?,
                (3, Value::Bytes(address)) => check_address(address)?,
                // Another kind of field than it should be.
                (1..=4, _) => return Err(Unreadable),
                _ => {}
            }
        }
        Ok(Self(encoded))
    }

    pub fn read(&self) -> Result<MachineResponse, DecodeError> {
        MachineResponse::decode(self.0.clone())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A copy of its own, which does not keep alive all that arrived together with it.
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Adds the [`SubmitResponse`](crate::v1::SubmitResponse) to the operation with this tag.
    pub fn submitted(&self, tag: u64, message: &mut BytesMut) {
        if tag != 0 {
            encode_key(1, WireType::Varint, message);
            encode_varint(tag, message);
        }
        encode_key(SUBMITTED, WireType::LengthDelimited, message);
        encode_varint(self.0.len() as u64, message);
        message.put_slice(&self.0);
    }

    /// How long that is.
    pub fn submitted_len(&self, tag: u64) -> usize {
        let tag = if tag == 0 { 0 } else { key_len(1) + encoded_len_varint(tag) };
        let length = self.0.len();
        tag + key_len(SUBMITTED) + encoded_len_varint(length as u64) + length
    }
}

impl From<&MachineResponse> for EncodedMachine {
    fn from(machine: &MachineResponse) -> Self {
        Self(machine.encode_to_vec().into())
    }
}

/// The last known state may be secret.
impl fmt::Debug for EncodedMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EncodedMachine").field(&self.read()).finish()
    }
}

fn check_address(address: &[u8]) -> Result<(), Unreadable> {
    let mut fields = Fields(address);
    while let Some(field) = fields.next()? {
        match field {
            (1 | 2, Value::Bytes(bytes)) => check_text(bytes)?,
            (1 | 2, _) => return Err(Unreadable),
            _ => {}
        }
    }
    Ok(())
}

fn check_text(bytes: &[u8]) -> Result<(), Unreadable> {
    // Nearly all are ASCII, and that is told sooner.
    if bytes.is_ascii() || str::from_utf8(bytes).is_ok() { Ok(()) } else { Err(Unreadable) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v1::{Address, SubmitResponse, submit_response::Outcome};

    proptest! {
        #[test]
        fn a_machine_arrives_as_it_was_sent(
            texts in proptest::collection::vec(".{0,300}", 5),
            tag in any::<u64>(),
        ) {
            let text = |at: usize| texts[at].clone();
            let machine = MachineResponse {
                provider_id: text(0),
                node_name: text(1),
                addresses: vec![Address { r#type: text(2), address: text(3) }],
                last_known_state: text(4),
            };
            let encoded = EncodedMachine::check(machine.encode_to_vec().into()).unwrap();
            prop_assert_eq!(encoded.read(), Ok(machine.clone()));
            let mut submitted = BytesMut::new();
            encoded.submitted(tag, &mut submitted);
            prop_assert_eq!(submitted.len(), encoded.submitted_len(tag));
            let outcome = Some(Outcome::Machine(machine));
            prop_assert_eq!(SubmitResponse::decode(submitted), Ok(SubmitResponse { tag, outcome }));
        }

        #[test]
        fn whatever_is_passed_on_can_be_read(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Ok(machine) = EncodedMachine::check(bytes.into()) {
                prop_assert!(machine.read().is_ok());
            }
        }
    }

    #[test]
    fn what_is_no_text_is_not_passed_on() {
        let machine = |field: u8, bytes: &[u8]| {
            let encoded = [&[field << 3 | 2, bytes.len() as u8], bytes].concat();
            EncodedMachine::check(encoded.into())
        };
        assert!(machine(1, "aß".as_bytes()).is_ok());
        for field in [1, 2, 4] {
            assert_eq!(machine(field, b"\xff"), Err(Unreadable), "{field}");
        }
        assert_eq!(machine(3, b"\x0a\x01\xff"), Err(Unreadable), "the type of an address");
        assert!(machine(9, b"\xff").is_ok(), "of tomorrow");
    }

    #[test]
    fn what_a_driver_last_knew_is_not_printed() {
        let state = "marker".to_owned();
        let machine = MachineResponse { last_known_state: state, ..Default::default() };
        let printed = format!("{:?}", EncodedMachine::from(&machine));
        assert!(!printed.contains("marker"), "{printed}");
    }
}
