//! Whether an answer is one. What is expected is told by its first bytes; anything else is read in full.

use anyhow::{bail, ensure};
use broker_proto::v1::{MachineResponse, SubmitResponse, submit_response::Outcome};
use prost::{
    Message as _,
    encoding::{WireType, decode_varint},
};

use crate::workload::PROVIDER;

/// Fails if this is no [`MachineResponse`] of the benchmark's drivers.
pub(super) fn machine(answer: &[u8]) -> anyhow::Result<()> {
    if has_provider_id(answer) { Ok(()) } else { is_ours(&MachineResponse::decode(answer)?) }
}

/// The tag of a [`SubmitResponse`]. Fails if the operation has.
pub(super) fn submitted(answer: &[u8]) -> anyhow::Result<u64> {
    if let Some((tag, machine)) = machine_of(answer)
        && has_provider_id(machine)
    {
        return Ok(tag);
    }
    let SubmitResponse { tag, outcome } = SubmitResponse::decode(answer)?;
    match outcome {
        Some(Outcome::Machine(machine)) => is_ours(&machine)?,
        other => bail!("an operation failed: {other:?}"),
    }
    Ok(tag)
}

fn is_ours(machine: &MachineResponse) -> anyhow::Result<()> {
    ensure!(machine.provider_id.starts_with(PROVIDER), "an operation failed: {machine:?}");
    Ok(())
}

/// The provider id is the first field of its message.
fn has_provider_id(machine: &[u8]) -> bool {
    texts(1, machine).is_some_and(|(id, _)| id.starts_with(PROVIDER.as_bytes()))
}

/// The tag and the machine of an answer that has nothing else.
fn machine_of(answer: &[u8]) -> Option<(u64, &[u8])> {
    let (tag, rest) = match answer.strip_prefix(&[key(1, WireType::Varint)]) {
        Some(mut rest) => (decode_varint(&mut rest).ok()?, rest),
        // It is 0.
        None => (0, answer),
    };
    let (machine, rest) = texts(2, rest)?;
    rest.is_empty().then_some((tag, machine))
}

/// What a first field holds that has a length, and what comes after it.
fn texts(field: u8, message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = message.strip_prefix(&[key(field, WireType::LengthDelimited)])?;
    let length = decode_varint(&mut rest).ok()?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// What a field begins with.
const fn key(field: u8, wire_type: WireType) -> u8 {
    field << 3 | wire_type as u8
}

#[cfg(test)]
mod tests {
    use broker_proto::v1::ListMachinesResponse;

    use super::*;
    use crate::workload::answer;

    fn submit_answer(tag: u64, outcome: Option<Outcome>) -> Vec<u8> {
        SubmitResponse { tag, outcome }.encode_to_vec()
    }

    #[test]
    fn an_answer_is_told_without_reading_all_of_it() {
        let ours = answer("worker-1");
        let encoded = ours.encode_to_vec();
        assert!(has_provider_id(&encoded) && machine(&encoded).is_ok());
        for tag in [0, 1, 63, 127, 128, 99_999, u64::MAX] {
            let encoded = submit_answer(tag, Some(Outcome::Machine(ours.clone())));
            assert_eq!(machine_of(&encoded).map(|(tag, _)| tag), Some(tag));
            assert_eq!(submitted(&encoded).unwrap(), tag);
        }
    }

    #[test]
    fn fields_may_come_in_any_order() {
        let ours = answer("worker-1");
        let [id, name] = [
            MachineResponse { node_name: String::new(), ..ours.clone() },
            MachineResponse { provider_id: String::new(), ..ours.clone() },
        ];
        let machine_backwards = [name.encode_to_vec(), id.encode_to_vec()].concat();
        assert!(machine(&machine_backwards).is_ok());
        let outcome = submit_answer(0, Some(Outcome::Machine(ours)));
        assert_eq!(submitted(&[outcome, submit_answer(7, None)].concat()).unwrap(), 7);
    }

    #[test]
    fn what_is_no_answer_of_ours_fails() {
        let others = MachineResponse { provider_id: "aws:///i-1".to_owned(), ..answer("a") };
        for message in [MachineResponse::default(), others.clone()] {
            let failed = machine(&message.encode_to_vec()).unwrap_err().to_string();
            assert!(failed.starts_with("an operation failed: MachineResponse"), "{failed}");
        }
        for outcome in [
            None,
            Some(Outcome::Machine(others)),
            Some(Outcome::List(ListMachinesResponse::default())),
            Some(Outcome::Error(Default::default())),
        ] {
            let failed = submitted(&submit_answer(7, outcome)).unwrap_err().to_string();
            assert!(failed.starts_with("an operation failed: "), "{failed}");
        }
    }

    #[test]
    fn what_is_cut_short_or_is_no_message_fails() {
        let ours = answer("worker-1");
        let encoded = submit_answer(7, Some(Outcome::Machine(ours.clone())));
        assert!(submitted(&encoded[..encoded.len() - 1]).is_err());
        assert!(machine(&ours.encode_to_vec()[..20]).is_err());
        for noise in [&[0xff_u8; 12][..], &[0x0a, 0xff], b"{}"] {
            assert!(machine(noise).is_err() && submitted(noise).is_err(), "{noise:?}");
        }
    }
}
