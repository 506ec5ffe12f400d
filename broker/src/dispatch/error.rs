//! Why an operation has no answer.

use std::sync::Arc;

use crate::{
    auth,
    driver::{ClassId, DriverKey, Instance, OperationId, Verb},
    operation::{Conflict, Delivery, Hold, Operation},
    replicas::Replicas,
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was sent, and the request must change.
    #[error("{field}: {problem}")]
    Invalid { field: &'static str, problem: String },

    /// Nothing was sent, nor looked at.
    #[error(transparent)]
    Denied(auth::Denied),

    /// Nothing was sent.
    #[error("there is no class {0}: check its name and namespace, or add it to the catalog")]
    NoClass(ClassId),

    /// Nothing was sent: safe to retry.
    #[error("whether there is a class {class} is not known: {why}")]
    Unread { class: ClassId, why: String },

    /// Nothing was sent. What is kept of it is for getting rid of machines, not for making them.
    #[error(
        "{what} was deleted; it is kept so that its machines can be deleted, not to {verb} them"
    )]
    Deleted { what: String, verb: Verb },

    /// Nothing was sent: safe to retry.
    #[error(
        "no driver is connected for {wanted}; {}{}",
        connected_text(.connected),
        elsewhere_text(.elsewhere)
    )]
    NoDriver {
        wanted: DriverKey,
        connected: Vec<DriverKey>,
        /// Whether the kind exists at all, as far as the catalog says.
        is_known: bool,
        /// The replicas that have one.
        elsewhere: Vec<String>,
    },

    /// Nothing was sent: safe to retry.
    #[error("no driver for {key} takes new work: the one that is connected {why}")]
    NoneReady { key: DriverKey, why: &'static str },

    /// Nothing was sent, and no retry will help until the driver changes.
    #[error("the driver for {key} does not implement {verb}")]
    Unsupported { key: DriverKey, verb: Verb },

    /// Nothing was sent.
    #[error(
        "the driver speaks the protocol of 2018 and deletes by provider id alone: \
         give the provider id of {machine:?} (a list shows it)"
    )]
    ProviderIdRequired { machine: Arc<str> },

    /// Nothing was sent: retry when the running one is over.
    #[error("{} of this machine is running ({}, class {})", .0.verb, .0.running, .0.class)]
    Conflict(Conflict),

    /// Nothing was sent: retry later.
    #[error("the driver has all it can take ({1} at once, and its queue is full)")]
    Busy(Sighting, usize),

    /// Nothing was sent: retry with another replica, or later.
    #[error("the broker is stopping")]
    Stopping,

    /// Nothing was sent: retry a little later.
    #[error("the broker has just started and waits for its drivers to return")]
    Settling,

    /// Nothing was sent.
    #[error("its time was over before it could be sent")]
    TooLate,

    /// This request was not sent. An earlier one may still run where it was: if that was the same, its
    /// outcome is what the caller has to learn.
    #[error(
        "an earlier {} of this machine may still be running in driver instance {:?}, \
         which is away or does not answer", .hold.verb, .hold.instance.id
    )]
    Away { hold: Box<Hold>, verb: Verb },

    /// How far it got says what may be assumed. The same request again finds out.
    #[error("the driver went away before it answered ({})", .0.delivery_text())]
    Lost(Sighting),

    /// How far it got says what may be assumed. The same request again finds out.
    #[error("no answer within the time given ({})", .0.delivery_text())]
    Deadline(Sighting),
}

/// Where an operation was last seen.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub operation: OperationId,
    pub delivery: Delivery,
    pub instance: Option<Instance>,
}

impl From<&Arc<Operation>> for Sighting {
    fn from(operation: &Arc<Operation>) -> Self {
        Self {
            operation: operation.id,
            delivery: operation.delivery(),
            instance: operation.session().map(|session| session.info().instance.clone()),
        }
    }
}

impl Sighting {
    fn delivery_text(&self) -> &'static str {
        match self.delivery {
            Delivery::NotSent => "it was never sent",
            Delivery::Sent => "it was sent, its outcome is unknown",
            Delivery::Accepted => "the driver had started, the outcome is unknown",
            Delivery::Answered => "the answer came too late",
        }
    }
}

impl Error {
    pub(crate) fn invalid(field: &'static str, problem: impl ToString) -> Self {
        Error::Invalid { field, problem: problem.to_string() }
    }

    /// Its name for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Invalid { .. } => "INVALID",
            Error::Denied(_) => "DENIED",
            Error::NoClass(_) => "CLASS_NOT_FOUND",
            Error::Unread { .. } => "CLASS_NOT_READ",
            Error::Deleted { .. } => "CLASS_DELETED",
            Error::NoDriver { .. } => "NO_DRIVER",
            Error::NoneReady { .. } => "DRIVER_NOT_READY",
            Error::Unsupported { .. } => "VERB_NOT_IMPLEMENTED",
            Error::ProviderIdRequired { .. } => "PROVIDER_ID_REQUIRED",
            Error::Conflict(_) => "MACHINE_BUSY",
            Error::Busy(..) => "DRIVER_BUSY",
            Error::Stopping => "BROKER_STOPPING",
            Error::Settling => "BROKER_SETTLING",
            Error::Away { .. } => "DRIVER_AWAY",
            Error::Lost(_) => "DRIVER_LOST",
            Error::TooLate | Error::Deadline(_) => "DEADLINE",
        }
    }

    /// How far this request got.
    pub fn delivery(&self) -> Delivery {
        match self {
            Error::Busy(seen, _) | Error::Lost(seen) | Error::Deadline(seen) => seen.delivery,
            _ => Delivery::NotSent,
        }
    }

    /// Whether the kind that was asked for exists, and is not just a caller's word.
    pub fn knows_kind(&self) -> bool {
        match self {
            Error::Invalid { .. } | Error::Denied(_) | Error::NoClass(_) | Error::Stopping => false,
            Error::NoDriver { is_known, .. } => *is_known,
            _ => true,
        }
    }

    /// Says which other replica has the driver that is missing here.
    pub(super) fn among(mut self, replicas: &Replicas) -> Self {
        if let Error::NoDriver { wanted, elsewhere, .. } = &mut self {
            *elsewhere = replicas.serving(wanted);
        }
        self
    }

    /// Whether a driver that comes, or comes back, would change it.
    pub(super) fn passes_with_a_driver(&self) -> bool {
        matches!(self, Error::NoDriver { .. } | Error::NoneReady { .. } | Error::Away { .. })
    }
}

fn elsewhere_text(replicas: &[String]) -> String {
    if replicas.is_empty() {
        return String::new();
    }
    format!("; these replicas have one: {}", replicas.join(", "))
}

fn connected_text(keys: &[DriverKey]) -> String {
    if keys.is_empty() {
        return "no driver is connected at all".to_owned();
    }
    const MOST: usize = 10;
    let names: Vec<String> = keys.iter().take(MOST).map(ToString::to_string).collect();
    let more = if keys.len() > MOST { ", …" } else { "" };
    format!("connected are drivers for {}{more}", names.join(", "))
}
