//! Requests that are encoded before the load begins: who makes the next one writes a few digits.

use std::ops::Range;

use broker_proto::v1::MachineRequest;

use super::{Operation, Workload};

/// What [`Workload::create`] gives, encoded. From one to the next nothing changes but numbers, whose texts
/// always have as many digits.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    workload: Workload,
    encoded: Vec<u8>,
    kind: Digits,
    machine: Digits,
    number: Digits,
}

/// Where the digits of a number are.
type Digits = Range<usize>;

impl Requests {
    /// In a message that has a request in it, or is one.
    pub(crate) fn new(
        workload: &Workload,
        encoded: impl FnOnce(MachineRequest) -> Vec<u8>,
    ) -> Self {
        let first = workload.create(Operation { asker: 0, number: 0 });
        let kind = workload.class(Operation { asker: 0, number: 0 }).kind;
        let (name, id) = (first.machine_name.clone(), first.request_id.clone());
        let encoded = encoded(first);
        let end_of = |text: &str| {
            let found = encoded.windows(text.len()).position(|bytes| bytes == text.as_bytes());
            found.expect("a message has the texts that were put into it") + text.len()
        };
        let before = |end: usize, digits: usize| end - digits..end;
        Self {
            kind: before(end_of(&kind), "00000".len()),
            machine: before(end_of(&name), "00000000".len()),
            number: before(end_of(&id), "0000000000000000000".len()),
            encoded,
            workload: workload.clone(),
        }
    }

    /// The request of this operation, which is there until the next.
    pub(crate) fn create(&mut self, operation: Operation) -> &[u8] {
        let (kind, machine) = (self.workload.kind(operation), self.workload.machine(operation));
        for (digits, number) in
            [(&self.kind, kind), (&self.machine, machine), (&self.number, operation.number)]
        {
            write(&mut self.encoded[digits.clone()], number);
        }
        &self.encoded
    }
}

/// Panics if the number has more digits.
fn write(digits: &mut [u8], mut number: u64) {
    let mut rest = digits;
    while number > 0 {
        let (last, before) = rest.split_last_mut().expect("loads have numbers of bounded length");
        *last = b'0' + (number % 10) as u8;
        number /= 10;
        rest = before;
    }
    rest.fill(b'0');
}

#[cfg(test)]
mod tests {
    use broker_proto::v1::{SubmitRequest, submit_request};
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::workload::{ASKERS, KINDS, MOST_MACHINES};

    /// A load, and operations that are in flight.
    fn a_load() -> impl Strategy<Value = (Workload, Vec<Operation>)> {
        let numbers = (0..KINDS, 0..KINDS, 1..=MOST_MACHINES, 1..=ASKERS, any::<u64>());
        numbers.prop_flat_map(|(one, other, machines, in_flight, run)| {
            let kinds = one.min(other)..one.max(other) + 1;
            let number = prop_oneof![0..1000_u64, 0..10_u64.pow(19)];
            let operation =
                (0..in_flight, number).prop_map(|(asker, number)| Operation { asker, number });
            let workload = Workload::new(kinds, machines, in_flight, run);
            (Just(workload), proptest::collection::vec(operation, 1..20))
        })
    }

    proptest! {
        #[test]
        fn ready_bytes_are_the_request_that_would_be_encoded(
            (workload, operations) in a_load(),
        ) {
            let mut requests = Requests::new(&workload, |create| create.encode_to_vec());
            for operation in operations {
                let ready = requests.create(operation);
                prop_assert_eq!(ready, workload.create(operation).encode_to_vec());
            }
        }

        #[test]
        fn so_are_those_within_another_message(
            (workload, operations) in a_load(),
        ) {
            let around = |create| SubmitRequest {
                tag: 7,
                operation: Some(submit_request::Operation::Create(create)),
                timeout: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
            };
            let mut requests = Requests::new(&workload, |create| around(create).encode_to_vec());
            for operation in operations {
                let ready = SubmitRequest::decode(requests.create(operation));
                prop_assert_eq!(ready, Ok(around(workload.create(operation))));
            }
        }
    }
}
