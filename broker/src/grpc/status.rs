//! The gRPC status of every error, on one page.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::{
    auth,
    bounds::{self, Taken},
    catalog::Denied,
    dispatch::{Error, Sighting},
    driver::{Instance, OperationId},
    inspect::Unknown,
    operation::{self, Answer, Delivery, Payload},
    steer,
};

const DOMAIN: &str = "machinebroker.dev";
/// When to come back where nothing better is known.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(5);
/// A status travels in headers, message and details, and many clients take no more than 8 KiB of
/// them: with more the caller would learn nothing at all.
const MAX_MESSAGE: usize = 1024;
const MAX_FACT: usize = 512;

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let (code, retry) = match &error {
            Error::Invalid { .. } => (Code::InvalidArgument, None),
            Error::Denied(denied) => (of_denial(denied), None),
            Error::NoClass(_) => (Code::NotFound, None),
            Error::Unread { .. } => (Code::Unavailable, Some(LATER)),
            Error::Deleted { .. } => (Code::FailedPrecondition, None),
            Error::NoDriver { .. } => (Code::Unavailable, Some(LATER)),
            Error::NoneReady { .. } => (Code::Unavailable, Some(LATER)),
            Error::Unsupported { .. } => (Code::Unimplemented, None),
            Error::ProviderIdRequired { .. } => (Code::FailedPrecondition, None),
            Error::Conflict(_) => (Code::Aborted, Some(LATER)),
            Error::Busy(..) => (Code::ResourceExhausted, Some(SOON)),
            Error::Stopping => (Code::Unavailable, Some(SOON)),
            Error::Settling => (Code::Unavailable, Some(SOON)),
            Error::Away { .. } => (Code::Unavailable, Some(LATER)),
            Error::Lost(seen) if seen.delivery == Delivery::NotSent => {
                (Code::Unavailable, Some(SOON))
            }
            Error::Lost(_) => (Code::Unknown, Some(SOON)),
            Error::TooLate | Error::Deadline(_) => (Code::DeadlineExceeded, Some(SOON)),
        };
        let mut facts = Facts::new(error.reason());
        match &error {
            Error::Busy(seen, _) | Error::Lost(seen) | Error::Deadline(seen) => facts.seen(seen),
            Error::Away { hold, verb } => {
                if hold.verb == *verb {
                    facts.delivery(hold.delivery);
                }
                facts.instance(&hold.instance);
                if let Some(operation) = hold.operation {
                    facts.operation(operation);
                }
            }
            Error::NoDriver { elsewhere, .. } => facts.fact("replicas", &elsewhere.join(", ")),
            Error::Conflict(conflict) => facts.operation(conflict.running),
            _ => {}
        }
        facts.status(code, error.to_string(), retry)
    }
}

impl From<Unknown> for Status {
    fn from(unknown: Unknown) -> Self {
        let code = match unknown {
            Unknown::Nobody(_) | Unknown::Rejected { .. } | Unknown::Gone { .. } => Code::NotFound,
            Unknown::Several { .. } => Code::FailedPrecondition,
        };
        Status::new(code, unknown.to_string())
    }
}

impl From<steer::Error> for Status {
    fn from(error: steer::Error) -> Self {
        match error {
            steer::Error::LongReason => Status::invalid_argument(error.to_string()),
            steer::Error::Driver(unknown) => unknown.into(),
        }
    }
}

/// What a driver answered, where that is not a success.
pub(super) fn of_answer(answer: &Answer, seen: Option<&Sighting>) -> Status {
    // Statuses end at 16. The reason and the payload say what 17 means.
    let code = match answer.code {
        operation::Code::UNINITIALIZED => Code::FailedPrecondition,
        code => Code::from_i32(code.number()),
    };
    let mut facts = Facts::new(answer.code.name());
    if let Some(seen) = seen {
        facts.seen(seen);
    }
    facts.delivery(Delivery::Answered);
    if let Payload::Machine(machine) = &answer.payload {
        let machine = machine.read().unwrap_or_default();
        for (name, text) in [
            ("provider_id", &machine.provider_id),
            ("node_name", &machine.node_name),
            ("last_known_state", &machine.last_known_state),
        ] {
            facts.fact(name, text);
        }
    }
    facts.status(code, answer.message.clone(), answer.retry_after)
}

/// A driver learns no more than that it cannot have it; the log knows why.
pub(super) fn of_denied(denied: &Denied) -> Status {
    let code = match denied {
        Denied::BadName(_) | Denied::Ambiguous(_) => Code::InvalidArgument,
        Denied::Missing(_) | Denied::Foreign(_) | Denied::Unreferenced(_) => Code::NotFound,
        Denied::Elsewhere { .. } => Code::PermissionDenied,
    };
    Status::new(code, denied.public_message())
}

/// Somebody is not let in, or no longer.
pub(super) fn of_denied_caller(denied: &auth::Denied) -> Status {
    let retry = match denied {
        auth::Denied::CannotTell { retry_after, .. } => Some(*retry_after),
        _ => None,
    };
    Facts::new("DENIED").status(of_denial(denied), denied.to_string(), retry)
}

/// Somebody wants one more of `what` than there may be.
pub(super) fn of_taken(what: &str, taken: &Taken) -> Status {
    let message = format!("too many {what}: {taken}");
    let retry = bounds::spread(Duration::ZERO);
    Facts::new("TOO_MANY").status(Code::ResourceExhausted, message, Some(retry))
}

/// A driver is not let in. One of 2018 hears no more of it than this.
pub(super) fn of_rejection(code: Code, message: &str, retry: Option<Duration>) -> Status {
    match retry {
        Some(_) => {
            let details = ErrorDetails::with_retry_info(retry);
            Status::with_error_details(code, message, details)
        }
        None => Status::new(code, message),
    }
}

fn of_denial(denied: &auth::Denied) -> Code {
    use auth::Denied as D;
    match denied {
        D::NotBearer | D::UnknownToken | D::NoCredentials => Code::Unauthenticated,
        D::CannotTell { .. } => Code::Unavailable,
        D::NamelessCertificate | D::BadCertificate(_) | D::LoggedOut => Code::Unauthenticated,
        D::NoSuchMethod => Code::Unimplemented,
        D::Refused(_) | D::CrossSite(_) => Code::PermissionDenied,
        // Registering again helps.
        D::Moved => Code::Aborted,
    }
}

/// A driver that did not answer a ping. It has a reason, so that nobody takes it for a broker that did
/// not answer.
pub(super) fn of_silent(waited: Duration) -> Status {
    let message = format!("the driver did not answer within {:.1} s", waited.as_secs_f64());
    Facts { reason: "DRIVER_SILENT", metadata: HashMap::new() }.status(
        Code::DeadlineExceeded,
        message,
        None,
    )
}

/// What a status says for programs to read.
struct Facts {
    reason: &'static str,
    metadata: HashMap<String, String>,
}

impl Facts {
    fn new(reason: &'static str) -> Self {
        let mut facts = Self { reason, metadata: HashMap::new() };
        facts.delivery(Delivery::NotSent);
        facts
    }

    /// Half a fact is worse than none.
    fn fact(&mut self, name: &str, value: &str) {
        if !value.is_empty() && value.len() <= MAX_FACT {
            self.metadata.insert(name.to_owned(), value.to_owned());
        }
    }

    fn delivery(&mut self, delivery: Delivery) {
        self.fact("delivery", delivery.as_str());
    }

    fn instance(&mut self, instance: &Instance) {
        self.fact("driver_instance", &instance.id);
    }

    fn operation(&mut self, operation: OperationId) {
        self.fact("operation_id", &operation.to_string());
    }

    fn seen(&mut self, seen: &Sighting) {
        self.delivery(seen.delivery);
        self.operation(seen.operation);
        if let Some(instance) = &seen.instance {
            self.instance(instance);
        }
    }

    fn status(self, code: Code, message: String, retry: Option<Duration>) -> Status {
        let mut details = ErrorDetails::with_error_info(self.reason, DOMAIN, self.metadata);
        if let Some(retry) = retry {
            details.set_retry_info(Some(retry));
        }
        Status::with_error_details(code, operation::shortened(message, MAX_MESSAGE), details)
    }
}
