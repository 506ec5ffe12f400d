//! The answers of both protocol generations, read as one.

use std::time::Duration;

use broker_proto::{
    passing::{EncodedMachine, OperationResult, driver_side::Response, operation_result},
    v1,
};

use crate::{
    driver::Verb,
    operation::{Answer, Code, Payload, duration},
};

/// How many machines a list may have, lest a driver that never ends one takes all memory.
const MOST_LISTED: usize = 1_000_000;

/// What a driver answered to one operation.
pub(super) struct Reply {
    code: Code,
    message: String,
    retry_after: Option<Duration>,
    content: Content,
}

enum Content {
    None,
    /// A historic create or delete, which answers only that verb.
    Historic(Verb, Payload),
    Machine(EncodedMachine),
    Page(v1::ListPage),
    VolumeIds(Vec<String>),
    /// A machine that nobody could read.
    Unsound,
}

impl Reply {
    /// `None` for a frame that is not an answer of this protocol generation.
    pub(super) fn read(response: Response, native: bool) -> Option<Reply> {
        match response {
            Response::Result(result) if native => Some(Reply::native(*result)),
            Response::Create(create) if !native => {
                let machine = v1::MachineResponse {
                    provider_id: create.provider_id,
                    node_name: create.node_name,
                    ..Default::default()
                };
                let payload = Payload::Machine(EncodedMachine::from(&machine));
                Some(Reply::historic(Verb::Create, create.error, payload))
            }
            Response::Delete(delete) if !native => {
                let payload = Payload::Machine(EncodedMachine::default());
                Some(Reply::historic(Verb::Delete, delete.error, payload))
            }
            Response::List(list) if !native => {
                let machines = list.machines.into_iter().map(|machine| v1::Machine {
                    provider_id: machine.machine_id,
                    machine_name: machine.machine_name,
                });
                let payload = Payload::List(machines.collect());
                Some(Reply::historic(Verb::List, list.error, payload))
            }
            _ => None,
        }
    }

    /// Historic errors are bare strings, so nothing is known of them but that they are errors.
    fn historic(verb: Verb, error: String, payload: Payload) -> Reply {
        let code = if error.is_empty() { Code::OK } else { Code::UNKNOWN };
        let content = Content::Historic(verb, payload);
        Reply { code, message: error, retry_after: None, content }
    }

    fn native(result: OperationResult) -> Reply {
        Reply {
            code: Code::from_wire(result.code),
            message: result.message,
            retry_after: result.retry_after.and_then(duration),
            content: match result.payload {
                None => Content::None,
                Some(operation_result::Payload::Machine(machine)) => {
                    EncodedMachine::check(machine).map_or(Content::Unsound, Content::Machine)
                }
                Some(operation_result::Payload::List(page)) => Content::Page(page),
                Some(operation_result::Payload::VolumeIds(ids)) => {
                    Content::VolumeIds(ids.volume_ids)
                }
            },
        }
    }

    /// Whether this can answer `verb` at all.
    pub(super) fn fits(&self, verb: Verb) -> bool {
        match &self.content {
            Content::None => true,
            Content::Historic(answers, _) => *answers == verb,
            Content::Machine(_) | Content::Unsound => {
                !matches!(verb, Verb::List | Verb::GetVolumeIds)
            }
            Content::Page(_) => verb == Verb::List,
            Content::VolumeIds(_) => verb == Verb::GetVolumeIds,
        }
    }

    /// The whole answer, or `None` while more pages are to come; those so far are in `pages`.
    pub(super) fn into_answer(self, pages: &mut Vec<v1::Machine>) -> Option<Answer> {
        let payload = match self.content {
            // The last page of a list may come without machines.
            Content::None if !pages.is_empty() => Payload::List(std::mem::take(pages)),
            Content::None => Payload::None,
            Content::Historic(_, payload) => payload,
            Content::Machine(machine) => Payload::Machine(machine),
            Content::VolumeIds(ids) => Payload::VolumeIds(ids),
            Content::Unsound => {
                let message =
                    "what the driver says of the machine cannot be read: it is cut off, or has a \
                               text that is none (not UTF-8)"
                        .to_owned();
                return Some(Answer::failed(Code::INTERNAL, message));
            }
            Content::Page(page) => {
                if pages.len() + page.machines.len() > MOST_LISTED {
                    pages.clear();
                    let message = format!("the list has more than {MOST_LISTED} machines");
                    return Some(Answer::failed(Code::RESOURCE_EXHAUSTED, message));
                }
                pages.extend(page.machines);
                if page.more && self.code.is_ok() {
                    return None;
                }
                Payload::List(std::mem::take(pages))
            }
        };
        if self.code.is_ok() {
            return Some(Answer::ok(payload));
        }
        let failed = Answer::failed(self.code, self.message);
        Some(Answer { retry_after: self.retry_after, payload, ..failed })
    }
}
