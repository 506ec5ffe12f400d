//! What a driver answered: code, message and payload together.

use std::{fmt, time::Duration};

use broker_proto::{passing::EncodedMachine, v1};

/// The machine codes: gRPC's 0 to 16, and 17 for a machine that exists but is not initialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(i32);

impl Code {
    pub const OK: Code = Code(0);
    pub const CANCELLED: Code = Code(1);
    pub const UNKNOWN: Code = Code(2);
    pub const NOT_FOUND: Code = Code(5);
    pub const RESOURCE_EXHAUSTED: Code = Code(8);
    pub const UNIMPLEMENTED: Code = Code(12);
    pub const INTERNAL: Code = Code(13);
    pub const UNAVAILABLE: Code = Code(14);
    pub const DATA_LOSS: Code = Code(15);
    pub const UNINITIALIZED: Code = Code(17);

    /// Any number the wire brings; what is not a code counts as `UNKNOWN`.
    pub fn from_wire(code: i32) -> Code {
        if (0..=17).contains(&code) { Code(code) } else { Code::UNKNOWN }
    }

    pub fn is_ok(self) -> bool {
        self == Code::OK
    }

    pub fn number(self) -> i32 {
        self.0
    }

    /// Whether the failure says that the driver itself is unwell, rather than the request.
    pub fn blames_driver(self) -> bool {
        matches!(self, Code::UNKNOWN | Code::UNIMPLEMENTED | Code::INTERNAL | Code::DATA_LOSS)
    }

    pub fn name(self) -> &'static str {
        const NAMES: [&str; 18] = [
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
            "UNINITIALIZED",
        ];
        usize::try_from(self.0).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or("UNKNOWN")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub code: Code,
    pub message: String,
    pub retry_after: Option<Duration>,
    pub payload: Payload,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    None,
    /// As the driver said it.
    Machine(EncodedMachine),
    List(Vec<v1::Machine>),
    VolumeIds(Vec<String>),
}

impl Answer {
    pub fn ok(payload: Payload) -> Self {
        Self { code: Code::OK, message: String::new(), retry_after: None, payload }
    }

    /// A copy to be kept for long: it does not keep alive what arrived together with it.
    pub fn detached(&self) -> Self {
        let payload = match &self.payload {
            Payload::Machine(machine) => Payload::Machine(machine.detached()),
            other => other.clone(),
        };
        Self { message: self.message.clone(), payload, ..*self }
    }

    /// Messages come from drivers; they end up in logs and on screens.
    pub const MAX_MESSAGE: usize = 16 * 1024;

    pub fn failed(code: Code, message: String) -> Self {
        let message = shortened(message, Self::MAX_MESSAGE);
        Self { code, message, retry_after: None, payload: Payload::None }
    }
}

/// A time from the wire; `None` for one that makes no sense. The library's own conversion overflows
/// at the extremes.
pub fn duration(from_wire: prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(from_wire.seconds).ok()?;
    let nanos = u32::try_from(from_wire.nanos).ok()?;
    Some(Duration::new(seconds, nanos))
}

/// At most about `most` bytes of a text, with a sign where something is missing.
pub fn shortened(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}
