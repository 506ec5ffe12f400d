//! Answers on their way to the wire: bounded, and lists cut into pages.

mod written;

use std::time::Duration;

use broker_proto::{
    driving::Encoded,
    v1::{self as wire, operation_result},
};
use bytes::BytesMut;

pub(crate) use self::written::Written;
use crate::{
    error::Error,
    machine::{Address, ListedMachine, Machine},
};

/// How an operation ended.
pub(crate) type Outcome = Result<Payload, Error>;

/// What a successful answer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Machine(Written),
    List(Vec<ListedMachine>),
    VolumeIds(Vec<String>),
}

/// Longer messages are cut: they are for people.
const MESSAGE_BYTES: usize = 16 * 1024;
/// Larger answers than this are refused; lists are paged instead.
const ANSWER_BYTES: usize = 1024 * 1024;
const PAGE_MACHINES: usize = 1000;
/// Well below [`ANSWER_BYTES`], so that control frames never wait long behind a page.
const PAGE_BYTES: usize = 256 * 1024;

/// Refuses an answer that no broker would take, before anything relies on it.
pub(crate) fn bounded(outcome: Outcome) -> Outcome {
    let bytes = match &outcome {
        Ok(Payload::List(_)) => return outcome,
        Ok(Payload::Machine(_) | Payload::VolumeIds(_)) => bytes_of(&outcome),
        // Its message is cut, not refused.
        Err(error) => error.machine().map_or(0, Machine::text_bytes),
    };
    if bytes > ANSWER_BYTES { Err(too_large(bytes)) } else { outcome }
}

/// About how many bytes an answer has on the wire.
pub(crate) fn bytes_of(outcome: &Outcome) -> usize {
    match outcome {
        Ok(Payload::Machine(machine)) => machine.len(),
        Ok(Payload::List(machines)) => {
            machines.iter().map(|one| one.provider_id.len() + one.machine_name.len()).sum()
        }
        Ok(Payload::VolumeIds(ids)) => ids.iter().map(String::len).sum(),
        Err(error) => error.message().len() + error.machine().map_or(0, Machine::text_bytes),
    }
}

fn too_large(bytes: usize) -> Error {
    Error::internal(format!("the driver's answer has {bytes} bytes, more than {ANSWER_BYTES}"))
}

/// An outcome as one or, for a list, several frames' worth of results.
///
/// Lazy: a long list is never held twice.
#[derive(Debug)]
pub(crate) struct Pages {
    /// How many machines of a list were handed out; `None` at the end.
    position: Option<usize>,
}

impl Pages {
    pub(crate) fn new() -> Self {
        Self { position: Some(0) }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.position.is_none()
    }

    /// The next one of this outcome, encoded: a short one in memory that it has in common with others.
    pub(crate) fn next_encoded(
        &mut self,
        outcome: &Outcome,
        shared: &mut BytesMut,
    ) -> Option<Encoded> {
        if let Ok(Payload::Machine(machine)) = outcome {
            self.position.take()?;
            return Some(machine.success(shared));
        }
        self.next(outcome).map(|result| written::any(&result))
    }

    /// The next one of this outcome.
    pub(crate) fn next(&mut self, outcome: &Outcome) -> Option<wire::OperationResult> {
        let start = self.position.take()?;
        let payload = match outcome {
            Err(error) => return Some(error_to_wire(error)),
            Ok(Payload::Machine(machine)) => operation_result::Payload::Machine(machine.read()),
            Ok(Payload::VolumeIds(ids)) => {
                let volume_ids = ids.clone();
                operation_result::Payload::VolumeIds(wire::GetVolumeIDsResponse { volume_ids })
            }
            Ok(Payload::List(machines)) => {
                let rest = machines.get(start..).unwrap_or_default();
                let count = page_length(rest);
                let more = count < rest.len();
                self.position = more.then_some(start + count);
                let machines = rest.iter().take(count).map(listed_to_wire).collect();
                operation_result::Payload::List(wire::ListPage { machines, more })
            }
        };
        Some(wire::OperationResult { payload: Some(payload), ..Default::default() })
    }
}

/// How many of these machines fit into one page: at least one, or a list would never end.
fn page_length(machines: &[ListedMachine]) -> usize {
    let mut bytes = 0;
    let fitting = machines
        .iter()
        .take(PAGE_MACHINES)
        .take_while(|machine| {
            // Sixteen for the tags and lengths around the two names.
            bytes += machine.provider_id.len() + machine.machine_name.len() + 16;
            bytes <= PAGE_BYTES
        })
        .count();
    fitting.max(1)
}

fn error_to_wire(error: &Error) -> wire::OperationResult {
    wire::OperationResult {
        code: error.code() as i32,
        message: truncated(error.message()).to_owned(),
        retry_after: error.retry_after().and_then(duration_to_wire),
        payload: error
            .machine()
            .cloned()
            .map(machine_to_wire)
            .map(operation_result::Payload::Machine),
    }
}

impl Payload {
    /// Of a success that made, changed or looked at this machine.
    pub(crate) fn machine(machine: Machine) -> Self {
        Self::Machine(machine.into())
    }
}

impl Machine {
    fn text_bytes(&self) -> usize {
        let addresses = self.addresses.iter().map(|one| one.kind.len() + one.address.len());
        self.provider_id.len()
            + self.node_name.len()
            + self.last_known_state.len()
            + addresses.sum::<usize>()
    }
}

fn machine_to_wire(machine: Machine) -> wire::MachineResponse {
    let Machine { provider_id, node_name, addresses, last_known_state } = machine;
    let address = |Address { kind, address }| wire::Address { r#type: kind, address };
    let addresses = addresses.into_iter().map(address).collect();
    wire::MachineResponse { provider_id, node_name, addresses, last_known_state }
}

fn listed_to_wire(machine: &ListedMachine) -> wire::Machine {
    wire::Machine {
        provider_id: machine.provider_id.clone(),
        machine_name: machine.machine_name.clone(),
    }
}

fn truncated(message: &str) -> &str {
    let end = (0..=MESSAGE_BYTES).rev().find(|&end| message.is_char_boundary(end));
    match end {
        Some(end) if message.len() > MESSAGE_BYTES => &message[..end],
        _ => message,
    }
}

fn duration_to_wire(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    fn machines(count: usize, name_bytes: usize) -> Vec<ListedMachine> {
        (0..count)
            .map(|n| ListedMachine {
                provider_id: format!("sim:///{n}"),
                machine_name: "m".repeat(name_bytes),
            })
            .collect()
    }

    fn pages(outcome: Outcome) -> Vec<wire::OperationResult> {
        let mut pages = Pages::new();
        std::iter::from_fn(|| pages.next(&outcome)).collect()
    }

    fn page(result: &wire::OperationResult) -> &wire::ListPage {
        match &result.payload {
            Some(operation_result::Payload::List(page)) => page,
            other => panic!("not a page: {other:?}"),
        }
    }

    #[test]
    fn an_empty_list_is_one_last_page() {
        let pages = pages(Ok(Payload::List(Vec::new())));
        assert_eq!(pages.len(), 1);
        assert!(!page(&pages[0]).more);
    }

    #[test]
    fn a_list_is_cut_at_a_thousand_and_only_the_last_page_says_so() {
        let pages = pages(Ok(Payload::List(machines(2500, 4))));
        let shape: Vec<_> = pages.iter().map(|p| (page(p).machines.len(), page(p).more)).collect();
        assert_eq!(shape, [(1000, true), (1000, true), (500, false)]);
    }

    #[test]
    fn pages_of_long_names_stay_small_and_lose_nothing() {
        let all = machines(900, 5000);
        let pages = pages(Ok(Payload::List(all.clone())));
        assert!(pages.iter().all(|page| page.encoded_len() <= PAGE_BYTES));
        let ids: Vec<_> =
            pages.iter().flat_map(|p| &page(p).machines).map(|m| m.provider_id.clone()).collect();
        assert_eq!(ids, all.into_iter().map(|m| m.provider_id).collect::<Vec<_>>());
    }

    #[test]
    fn a_name_larger_than_a_page_does_not_stop_the_list() {
        assert_eq!(pages(Ok(Payload::List(machines(3, PAGE_BYTES * 2)))).len(), 3);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let pages = pages(Err(Error::internal("ü".repeat(MESSAGE_BYTES))));
        assert_eq!(pages[0].message.len(), MESSAGE_BYTES);
        let odd = Error::internal(format!("x{}", "ü".repeat(MESSAGE_BYTES)));
        assert_eq!(error_to_wire(&odd).message.len(), MESSAGE_BYTES - 1);
    }

    #[test]
    fn an_error_keeps_its_machine_and_hint() {
        let machine = Machine { provider_id: "sim:///1".into(), ..Machine::default() };
        let error = Error::uninitialized("wait", machine).with_retry_after(Duration::from_secs(3));
        let result = error_to_wire(&error);
        assert_eq!((result.code, result.message.as_str()), (17, "wait"));
        assert_eq!(result.retry_after.map(|after| after.seconds), Some(3));
        assert!(matches!(
            result.payload,
            Some(operation_result::Payload::Machine(m)) if m.provider_id == "sim:///1"
        ));
    }

    #[test]
    fn an_enormous_state_is_an_error() {
        let machine =
            Machine { last_known_state: "x".repeat(ANSWER_BYTES + 1), ..Machine::default() };
        let error = bounded(Ok(Payload::machine(machine))).unwrap_err();
        assert_eq!(error.code(), crate::Code::Internal);
    }
}
