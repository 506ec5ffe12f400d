//! A machine's answer as it goes over the wire: written once when its operation ends, in one piece of memory,
//! which may lie around for a while. The driver's own texts are gone by then.

use std::fmt;

use broker_proto::{
    driving::Encoded,
    v1::{MachineResponse, OperationResult},
};
use bytes::{BufMut as _, Bytes, BytesMut};
use prost::{
    Message as _,
    encoding::{
        WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len,
    },
};

use super::machine_to_wire;
use crate::machine::Machine;

/// Where the machine is in the result.
const MACHINE: u32 = 4;
/// Where its provider's id is in the machine: first of all, if there is one.
const PROVIDER_ID: u32 = 1;

/// Results that are not longer are put one after the other into memory of this size, which is used
/// again as soon as they have been sent.
const SHARED: usize = 1024;

/// A machine, encoded.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Written(Box<[u8]>);

impl Written {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The provider's name for it, if the driver gave one.
    pub(crate) fn provider_id(&self) -> Option<&str> {
        let mut rest = &*self.0;
        let (PROVIDER_ID, _) = decode_key(&mut rest).ok()? else { return None };
        let length = decode_varint(&mut rest).ok()?;
        str::from_utf8(rest.get(..usize::try_from(length).ok()?)?).ok()
    }

    pub(super) fn read(&self) -> MachineResponse {
        MachineResponse::decode(&*self.0).expect("nobody but us has written it")
    }

    /// The result of an operation that made, changed or looked at this machine.
    pub(super) fn success(&self, shared: &mut BytesMut) -> Encoded {
        let length = self.len() as u64;
        let whole = key_len(MACHINE) + encoded_len_varint(length) + self.len();
        let mut long = BytesMut::new();
        let bytes = if whole > SHARED { &mut long } else { shared };
        if bytes.capacity() < whole {
            bytes.reserve(whole.max(SHARED));
        }
        encode_key(MACHINE, WireType::LengthDelimited, bytes);
        encode_varint(length, bytes);
        bytes.put_slice(&self.0);
        bytes.split().freeze().into()
    }
}

impl From<Machine> for Written {
    fn from(machine: Machine) -> Self {
        Self(machine_to_wire(machine).encode_to_vec().into())
    }
}

/// The last known state may be secret.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Written({} bytes)", self.len())
    }
}

/// Any other result.
pub(super) fn any(result: &OperationResult) -> Encoded {
    Bytes::from(result.encode_to_vec()).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        answer::{Pages, Payload},
        machine::Address,
    };

    proptest! {
        #[test]
        fn what_is_kept_as_it_was_written_is_the_message_that_it_is(
            (provider_id, node_name, last_known_state) in (".{0,200}", ".{0,200}", ".{0,600}"),
            addresses in proptest::collection::vec((".{0,20}", ".{0,200}"), 0..4),
        ) {
            let addresses = addresses.into_iter().map(|(kind, address)| Address { kind, address });
            let addresses = addresses.collect();
            let machine = Machine { provider_id, node_name, addresses, last_known_state };
            let written = Written::from(machine.clone());
            prop_assert_eq!(written.provider_id().unwrap_or_default(), &machine.provider_id);
            prop_assert_eq!(written.read(), machine_to_wire(machine));

            let outcome = Ok(Payload::Machine(written));
            let message = Pages::new().next(&outcome).unwrap();
            let mut pages = Pages::new();
            // What is there already is not of this one.
            let mut shared = BytesMut::from(&b"another"[..]);
            let before = shared.split();
            let encoded = pages.next_encoded(&outcome, &mut shared).unwrap();
            prop_assert_eq!(encoded.encode_to_vec(), message.encode_to_vec());
            prop_assert_eq!(&before[..], b"another");
            prop_assert!(pages.is_done() && pages.next_encoded(&outcome, &mut shared).is_none());
        }
    }

    #[test]
    fn a_machine_of_which_there_is_nothing_to_say_takes_no_memory() {
        let written = Written::from(Machine::default());
        assert_eq!((written.len(), written.provider_id()), (0, None));
    }
}
