//! A machine's answer, written from where the driver put it: as a message it would be copied text by text,
//! only to be encoded.

use broker_proto::{driving::Encoded, v1::OperationResult};
use bytes::{BufMut, Bytes, BytesMut};
use prost::{
    Message as _,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len, string},
};

use crate::machine::{Address, Machine};

/// Where the machine is in the result.
const MACHINE: u32 = 4;
/// Where the addresses are in the machine.
const ADDRESS: u32 = 3;

/// Results that are not longer are written one after the other into memory of this size, which is used
/// again as soon as they have been sent.
const SHARED: usize = 1024;

/// The result of an operation that made, changed or looked at this machine.
pub(super) fn success(machine: &Machine, shared: &mut BytesMut) -> Encoded {
    let length = machine_len(machine);
    let whole = nested_len(MACHINE, length);
    if whole > SHARED {
        let mut bytes = Vec::with_capacity(whole);
        write(machine, length, &mut bytes);
        return Bytes::from(bytes).into();
    }
    if shared.capacity() < whole {
        shared.reserve(SHARED);
    }
    write(machine, length, shared);
    shared.split().freeze().into()
}

/// `length` is that of the machine.
fn write(machine: &Machine, length: usize, bytes: &mut impl BufMut) {
    begin(MACHINE, length, bytes);
    text(1, &machine.provider_id, bytes);
    text(2, &machine.node_name, bytes);
    for address in &machine.addresses {
        begin(ADDRESS, address_len(address), bytes);
        text(1, &address.kind, bytes);
        text(2, &address.address, bytes);
    }
    text(4, &machine.last_known_state, bytes);
}

/// Any other.
pub(super) fn any(result: &OperationResult) -> Encoded {
    Bytes::from(result.encode_to_vec()).into()
}

fn machine_len(machine: &Machine) -> usize {
    let addresses = machine.addresses.iter().map(|one| nested_len(ADDRESS, address_len(one)));
    text_len(1, &machine.provider_id)
        + text_len(2, &machine.node_name)
        + addresses.sum::<usize>()
        + text_len(4, &machine.last_known_state)
}

fn address_len(address: &Address) -> usize {
    text_len(1, &address.kind) + text_len(2, &address.address)
}

/// The head of a message of this length.
fn begin(tag: u32, length: usize, bytes: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, bytes);
    encode_varint(length as u64, bytes);
}

fn nested_len(tag: u32, length: usize) -> usize {
    key_len(tag) + encoded_len_varint(length as u64) + length
}

fn text(tag: u32, text: &String, bytes: &mut impl BufMut) {
    if !text.is_empty() {
        string::encode(tag, text, bytes);
    }
}

fn text_len(tag: u32, text: &String) -> usize {
    if text.is_empty() { 0 } else { string::encoded_len(tag, text) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::answer::{Pages, Payload};

    proptest! {
        #[test]
        fn what_is_written_by_hand_is_the_message_that_it_is(
            (provider_id, node_name, last_known_state) in (".{0,200}", ".{0,200}", ".{0,600}"),
            addresses in proptest::collection::vec((".{0,20}", ".{0,200}"), 0..4),
        ) {
            let addresses = addresses.into_iter().map(|(kind, address)| Address { kind, address });
            let addresses = addresses.collect();
            let machine = Machine { provider_id, node_name, addresses, last_known_state };
            let outcome = Ok(Payload::Machine(machine));
            let message = Pages::new().next(&outcome).unwrap();
            let mut pages = Pages::new();
            // What is there already is not of this one.
            let mut shared = BytesMut::from(&b"another"[..]);
            let before = shared.split();
            let written = pages.next_encoded(&outcome, &mut shared).unwrap();
            prop_assert_eq!(written.encode_to_vec(), message.encode_to_vec());
            prop_assert_eq!(&before[..], b"another");
            prop_assert!(pages.is_done() && pages.next_encoded(&outcome, &mut shared).is_none());
        }
    }
}
