//! What one line says. Pure.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use super::{
    line::{Clock, Line, field, name},
    piece::{Class, Driver, Who},
};
use crate::{
    auth::Caller,
    driver::{OperationId, Verb},
    operation::{Delivery, Operation},
    session,
};

/// How many bytes of any one text are written.
const MAX_TEXT: usize = 256;
/// How nearly all operations end.
const ENDED_WELL: &str =
    concat!(field!("outcome", "ok"), field!("code", "OK"), field!("delivery", "ANSWERED"));

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

/// The name of a machine.
#[derive(Clone, Copy, Debug)]
pub enum Machine<'a> {
    /// As somebody said it.
    Said(&'a str),
    /// Of an operation: that it is a name was checked before there was one.
    Named(&'a str),
}

/// One line, of words that others have. What does not apply is not written.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    pub time: SystemTime,
    pub event: Event,
    /// Who asked; `None` for a caller in the same process.
    pub caller: Option<&'a Caller>,
    pub verb: Option<Verb>,
    pub class: Option<Cow<'a, Class>>,
    pub machine: Option<Machine<'a>>,
    /// The name of it.
    pub secret: Option<String>,
    pub kinds: Vec<String>,
    pub driver: Option<Cow<'a, Driver>>,
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
        Self::at(SystemTime::now(), event, outcome)
    }

    #[inline]
    pub fn at(time: SystemTime, event: Event, outcome: Outcome) -> Self {
        Self {
            time,
            event,
            caller: None,
            verb: None,
            class: None,
            machine: None,
            secret: None,
            kinds: Vec::new(),
            driver: None,
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
        self.caller = Some(caller);
        self
    }

    /// Which driver it is about.
    #[inline]
    pub fn about(mut self, driver: &'a session::Info) -> Self {
        self.driver = Some(Cow::Borrowed(&driver.in_audit));
        self
    }

    /// Adds all that the operation itself knows. In place: there is one of these for each operation, and a
    /// record is not small.
    pub fn on(&mut self, operation: &'a Operation) {
        let request = &operation.request;
        self.verb = Some(request.verb);
        self.class = Some(Cow::Borrowed(&request.class.in_audit));
        let name = &*request.machine.name;
        self.machine = (!name.is_empty()).then_some(Machine::Named(name));
        self.operation = Some(operation.id);
        self.delivery = Some(operation.delivery());
        self.catalog_age = request.catalog_age;
        self.class_deleted = request.class.deleted.is_some();
        if let Some(session) = operation.session() {
            self.driver = Some(Cow::Borrowed(&session.info().in_audit));
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
        line.made(self.event.field());
        if let Some(caller) = self.caller {
            match caller.in_audit() {
                Some(who) => line.made(who.as_str()),
                None => Who::write(caller, &mut line),
            }
        }
        if let Some(verb) = self.verb {
            line.word(name!("verb"), verb.as_str());
        }
        if let Some(class) = &self.class {
            line.made(class.as_str());
        }
        match self.machine {
            Some(Machine::Named(name)) => line.word(name!("machine"), name),
            Some(Machine::Said(words)) => line.text(name!("machine"), words),
            None => {}
        }
        if let Some(secret) = &self.secret {
            line.text(name!("secret"), secret);
        }
        if !self.kinds.is_empty() {
            line.texts(name!("kinds"), &self.kinds);
        }
        if let Some(driver) = &self.driver {
            line.made(driver.as_str());
        }
        if let Some(operation) = self.operation {
            line.hex(name!("operation"), OperationId::PREFIX, operation.0);
        }
        match (self.outcome, self.code, self.delivery) {
            (Outcome::Ok, Some("OK"), Some(Delivery::Answered)) => line.made(ENDED_WELL),
            _ => self.write_end(&mut line),
        }
        if let Some(duration) = self.duration {
            line.millis(name!("durationMs"), duration);
        }
        match self.attempts {
            Some(1) => line.made("\"attempts\":1,"),
            Some(attempts) => line.number(name!("attempts"), attempts),
            None => {}
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
    }

    fn write_end(&self, line: &mut Line<'_>) {
        line.made(self.outcome.field());
        if let Some(code) = self.code {
            line.word(name!("code"), code);
        }
        if let Some(delivery) = self.delivery {
            line.word(name!("delivery"), delivery.as_str());
        }
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
