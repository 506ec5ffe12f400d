//! What one line says. Pure.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::line::{Clock, Line, field, name};
use crate::{
    auth::{Caller, Identity},
    driver::{ClassId, OperationId, SessionId, Verb},
    operation::{Delivery, Operation},
    session,
};

/// How many bytes of any one text are written.
const MAX_TEXT: usize = 256;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Event {
    fn field(self) -> &'static str {
        match self {
            Self::Operation => field!("event", "operation"),
            Self::OperationUnheard => field!("event", "operation_unheard"),
            Self::DriverRegistered => field!("event", "driver_registered"),
            Self::DriverRejected => field!("event", "driver_rejected"),
            Self::DriverLeft => field!("event", "driver_left"),
            Self::DriverDrained => field!("event", "driver_drained"),
            Self::DriverEvicted => field!("event", "driver_evicted"),
            Self::LoggedIn => field!("event", "logged_in"),
            Self::LogFilterSet => field!("event", "log_filter_set"),
            Self::ClassDenied => field!("event", "class_denied"),
            Self::SecretDenied => field!("event", "secret_denied"),
            Self::SecretRead => field!("event", "secret_read"),
            Self::CallerDenied => field!("event", "caller_denied"),
            Self::RefusalsUntold => field!("event", "refusals_untold"),
            Self::LinesLost => field!("event", "lines_lost"),
        }
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Outcome {
    fn field(self) -> &'static str {
        match self {
            Self::Ok => field!("outcome", "ok"),
            Self::Failed => field!("outcome", "failed"),
            Self::Refused => field!("outcome", "refused"),
            Self::Denied => field!("outcome", "denied"),
            Self::Unknown => field!("outcome", "unknown"),
            Self::Abandoned => field!("outcome", "abandoned"),
        }
    }
}

/// A class as it was asked for, or as it was found: an object of JSON, as it is written.
#[derive(Clone, Debug)]
pub struct Class(Arc<str>);

impl Class {
    /// Anybody's words.
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let mut bytes = Vec::with_capacity(128);
        let mut line = Line::begin(&mut bytes);
        line.text(name!("apiVersion"), api_version);
        line.text(name!("kind"), kind);
        line.text(name!("namespace"), namespace);
        line.text(name!("name"), name);
        line.end();
        Self(String::from_utf8(bytes).expect("made of texts").into())
    }
}

/// One line, of words that others have. What does not apply is not written.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    pub time: SystemTime,
    pub event: Event,
    /// Who asked, and from where. A caller in the same process is neither.
    pub identity: Option<&'a Identity>,
    pub caller: Option<&'a str>,
    pub verb: Option<Verb>,
    pub class: Option<Cow<'a, Class>>,
    pub machine: Option<&'a str>,
    /// The name of it.
    pub secret: Option<String>,
    pub kinds: Vec<String>,
    /// The instance.
    pub driver: Option<&'a str>,
    pub session: Option<SessionId>,
    pub operation: Option<OperationId>,
    pub outcome: Outcome,
    /// A machine code, or the reason of a refusal.
    pub code: Option<&'static str>,
    pub delivery: Option<Delivery>,
    pub duration: Option<Duration>,
    pub attempts: Option<u32>,
    /// How old the class and the secrets may have been, when where they come from was away.
    pub catalog_age: Option<Duration>,
    /// It went on with what was kept of a class that was deleted.
    pub class_deleted: bool,
    /// The driver's, the operator's or our own words.
    pub message: Option<Cow<'a, str>>,
    /// How many are missing.
    pub lines: Option<u64>,
}

impl<'a> Record<'a> {
    /// Of this moment.
    #[inline]
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
            catalog_age: None,
            class_deleted: false,
            message: None,
            lines: None,
        }
    }

    #[inline]
    pub fn by(mut self, caller: &'a Caller) -> Self {
        self.identity = Some(&caller.identity);
        self.caller = Some(&caller.address);
        self
    }

    /// Which driver it is about.
    #[inline]
    pub fn about(mut self, driver: &'a session::Info) -> Self {
        self.driver = Some(&driver.instance.id);
        self.session = Some(driver.id);
        self
    }

    /// Adds all that the operation itself knows. In place: there is one of these for each operation, and a
    /// record is not small.
    pub fn on(&mut self, operation: &'a Operation) {
        let request = &operation.request;
        self.verb = Some(request.verb);
        self.class = Some(Cow::Borrowed(&request.class.in_audit));
        self.machine = Some(&*request.machine.name).filter(|name| !name.is_empty());
        self.operation = Some(operation.id);
        self.delivery = Some(operation.delivery());
        self.catalog_age = request.catalog_age;
        self.class_deleted = request.class.deleted.is_some();
        if let Some(session) = operation.session() {
            self.driver = Some(&session.info().instance.id);
            self.session = Some(session.info().id);
        }
    }

    #[inline]
    pub fn saying(mut self, message: impl Into<Cow<'a, str>>) -> Self {
        self.message = Some(message.into()).filter(|message| !message.is_empty());
        self
    }

    /// Appends the line to `lines`.
    pub(super) fn write_to(&self, lines: &mut Vec<u8>, clock: &mut Clock) {
        let mut line = Line::at(self.time, clock, lines);
        line.field(self.event.field());
        if let Some(identity) = self.identity {
            line.text(name!("identity"), identity.as_str());
        }
        if let Some(caller) = self.caller {
            line.text(name!("caller"), caller);
        }
        if let Some(verb) = self.verb {
            line.word(name!("verb"), verb.as_str());
        }
        if let Some(class) = &self.class {
            line.made(name!("class"), &class.0);
        }
        if let Some(machine) = self.machine {
            line.text(name!("machine"), machine);
        }
        if let Some(secret) = &self.secret {
            line.text(name!("secret"), secret);
        }
        if !self.kinds.is_empty() {
            line.texts(name!("kinds"), &self.kinds);
        }
        if let Some(driver) = self.driver {
            line.text(name!("driver"), driver);
        }
        if let Some(session) = self.session {
            line.hex(name!("session"), "", session.number());
        }
        if let Some(operation) = self.operation {
            line.hex(name!("operation"), OperationId::PREFIX, operation.0);
        }
        line.field(self.outcome.field());
        if let Some(code) = self.code {
            line.word(name!("code"), code);
        }
        if let Some(delivery) = self.delivery {
            line.word(name!("delivery"), delivery.as_str());
        }
        if let Some(duration) = self.duration {
            line.millis(name!("durationMs"), duration);
        }
        if let Some(attempts) = self.attempts {
            line.number(name!("attempts"), attempts);
        }
        if let Some(age) = self.catalog_age {
            line.millis(name!("catalogAgeMs"), age);
        }
        if self.class_deleted {
            line.yes(name!("classDeleted"));
        }
        if let Some(message) = &self.message {
            line.text(name!("message"), message);
        }
        if let Some(missing) = self.lines {
            line.number(name!("lines"), missing);
        }
        line.end();
        lines.push(b'\n');
    }
}

impl From<&ClassId> for Class {
    fn from(id: &ClassId) -> Self {
        Self::new(&id.api_version, &id.kind, &id.namespace, &id.name)
    }
}

/// What is written of a text: callers and drivers may send long ones.
#[inline]
pub fn bounded(text: &str) -> &str {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests;
