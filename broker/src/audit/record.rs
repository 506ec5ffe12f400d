//! What one line says. Pure.

use std::{
    fmt::Display,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Serialize, Serializer};

use crate::{
    auth::{Caller, Identity},
    driver::{ClassId, OperationId, SessionId, Verb},
    operation::{Delivery, Operation},
    session,
};

/// How many bytes of any one text are written.
const MAX_TEXT: usize = 256;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A caller's request came to its end.
    Operation,
    /// An operation ended in the driver when no caller waited for it any more.
    OperationUnheard,
    DriverRegistered,
    DriverRejected,
    /// A driver's session ended, for whatever reason.
    DriverLeft,
    /// An operator asked.
    DriverDrained,
    /// An operator asked.
    DriverEvicted,
    /// Somebody showed a token to the operators' page.
    LoggedIn,
    /// An operator asked for another log.
    LogFilterSet,
    ClassDenied,
    SecretDenied,
    SecretRead,
    /// Somebody was not let in.
    CallerDenied,
    /// There were more refusals than get a line each.
    RefusalsUntold,
    /// Lines before this one are missing.
    LinesLost,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    /// The driver answered that it could not.
    Failed,
    /// The broker said no, or never got to send it: no driver saw it.
    Refused,
    /// Whoever asked may not.
    Denied,
    /// A driver has it or had it, and no answer came.
    Unknown,
    /// The caller left before the end.
    Abandoned,
}

/// A class as it was asked for, or as it was found.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Class {
    #[serde(serialize_with = "plain")]
    pub api_version: Arc<str>,
    #[serde(serialize_with = "plain")]
    pub kind: Arc<str>,
    #[serde(serialize_with = "plain")]
    pub namespace: Arc<str>,
    #[serde(serialize_with = "plain")]
    pub name: Arc<str>,
}

/// One line. What does not apply is not written.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    #[serde(serialize_with = "rfc3339")]
    pub time: SystemTime,
    pub event: Event,
    /// Who asked, and from where. A caller in the same process is neither.
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub caller: Option<Arc<str>>,
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub verb: Option<Verb>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub machine: Option<Arc<str>>,
    /// The name of it.
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// The instance.
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub driver: Option<Arc<str>>,
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    pub outcome: Outcome,
    /// A machine code, or the reason of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    #[serde(serialize_with = "delivery", skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    #[serde(rename = "durationMs", serialize_with = "millis")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The driver's, the operator's or our own words.
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How many are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
}

impl Record {
    /// Of this moment.
    pub fn new(event: Event, outcome: Outcome) -> Self {
        Self {
            time: SystemTime::now(),
            event,
            identity: None,
            caller: None,
            verb: None,
            class: None,
            machine: None,
            secret: None,
            kinds: Vec::new(),
            driver: None,
            session: None,
            operation: None,
            outcome,
            code: None,
            delivery: None,
            duration: None,
            attempts: None,
            message: None,
            lines: None,
        }
    }

    pub fn by(self, caller: &Caller) -> Self {
        let identity = Some(caller.identity.clone());
        Self { identity, caller: Some(caller.address.clone()), ..self }
    }

    /// Which driver it is about.
    pub fn about(self, driver: &session::Info) -> Self {
        Self { driver: Some(driver.instance.id.clone()), session: Some(driver.id), ..self }
    }

    /// All that the operation itself knows.
    pub fn on(self, operation: &Operation) -> Self {
        let record = Self {
            verb: Some(operation.request.verb),
            class: Some(Class::from(&operation.request.class.id)),
            machine: Some(operation.request.machine.clone()).filter(|name| !name.is_empty()),
            operation: Some(operation.id),
            delivery: Some(operation.delivery()),
            ..self
        };
        match operation.session() {
            Some(session) => record.about(session.info()),
            None => record,
        }
    }

    pub fn saying(self, message: &str) -> Self {
        Self { message: (!message.is_empty()).then(|| bounded(message).to_owned()), ..self }
    }

    /// Appends the line to `lines`.
    pub(super) fn write_to(&self, lines: &mut Vec<u8>) {
        // Neither the text nor a map key can fail, and memory does not refuse.
        if serde_json::to_writer(&mut *lines, self).is_ok() {
            lines.push(b'\n');
        }
    }
}

impl From<&ClassId> for Class {
    fn from(id: &ClassId) -> Self {
        Self {
            api_version: id.api_version.clone(),
            kind: id.kind.clone(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        }
    }
}

/// What is written of a text: callers and drivers may send long ones.
pub fn bounded(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn plain<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(bounded(text))
}

fn shown<T: Display, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.serialize_str(bounded(&value.to_string())),
        None => to.serialize_none(),
    }
}

fn rfc3339<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_rfc3339_millis(*time))
}

fn delivery<S: Serializer>(value: &Option<Delivery>, to: S) -> Result<S::Ok, S::Error> {
    value.map(Delivery::as_str).serialize(to)
}

fn millis<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_micros() as f64 / 1000.0).serialize(to)
}

#[cfg(test)]
mod tests;
