//! What a driver may answer when it cannot do what it was asked: the machine codes.

use std::{fmt, str::FromStr, time::Duration};

use crate::machine::Machine;

/// Why an operation failed: gRPC's codes by their numbers, and one of our own.
///
/// There is no `Ok` here: success is `Result::Ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Code {
    /// The operation was cancelled and stopped.
    Cancelled = 1,
    Unknown = 2,
    /// The class or the request is wrong: a retry without a change is pointless.
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    /// The provider has no such machine. Only for that: callers take the machine for gone.
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    /// The provider's quota, or the driver itself, is full. Say when to retry.
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    /// Another operation of the same machine is in the way, or this one was broken off.
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    /// The driver's own fault.
    Internal = 13,
    /// The provider cannot be reached now.
    Unavailable = 14,
    DataLoss = 15,
    /// The provider does not accept the credentials.
    Unauthenticated = 16,
    /// The machine exists and `initialize` is due.
    Uninitialized = 17,
}

/// Every code with its name on the wire and in configuration.
const NAMES: [(Code, &str); 17] = [
    (Code::Cancelled, "CANCELLED"),
    (Code::Unknown, "UNKNOWN"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::AlreadyExists, "ALREADY_EXISTS"),
    (Code::PermissionDenied, "PERMISSION_DENIED"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::FailedPrecondition, "FAILED_PRECONDITION"),
    (Code::Aborted, "ABORTED"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
    (Code::Internal, "INTERNAL"),
    (Code::Unavailable, "UNAVAILABLE"),
    (Code::DataLoss, "DATA_LOSS"),
    (Code::Unauthenticated, "UNAUTHENTICATED"),
    (Code::Uninitialized, "UNINITIALIZED"),
];

impl Code {
    /// The name as gRPC writes it, e.g. `NOT_FOUND`.
    pub fn as_str(self) -> &'static str {
        NAMES[self as usize - 1].1
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Code {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name));
        found.map(|(code, _)| *code).ok_or_else(|| format!("there is no error code {name:?}"))
    }
}

/// A driver's failed answer: a code, words for people, and what is known nevertheless.
///
/// Never put credentials or user data into the message: callers log it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
    retry_after: Option<Duration>,
    // Boxed, so that the `Result` of every verb stays small.
    machine: Option<Box<Machine>>,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, machine: None }
    }

    /// Says that the provider has no such machine.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// Says that the class or the request can never work as it is.
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// Says that something is full for now.
    pub fn resource_exhausted(message: impl Into<String>) -> Self {
        Self::new(Code::ResourceExhausted, message)
    }

    /// Says that the provider cannot be reached for now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// Says that the driver itself is at fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Says that the operation stopped because nobody wants it any more.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(Code::Cancelled, message)
    }

    /// Says that `machine` exists, and that `initialize` has to complete it.
    pub fn uninitialized(message: impl Into<String>, machine: Machine) -> Self {
        Self::new(Code::Uninitialized, message).with_machine(machine)
    }

    /// Tells the caller when a retry makes sense.
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Adds what is known of the machine in spite of the failure, such as its provider id.
    pub fn with_machine(mut self, machine: Machine) -> Self {
        self.machine = Some(Box::new(machine));
        self
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    pub fn machine(&self) -> Option<&Machine> {
        self.machine.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_grpc() {
        for (index, (code, name)) in NAMES.into_iter().enumerate() {
            assert_eq!(code as usize, index + 1);
            assert_eq!(name.parse(), Ok(code));
        }
        assert_eq!(Code::NotFound as i32, tonic::Code::NotFound as i32);
        assert_eq!(Code::Unauthenticated as i32, tonic::Code::Unauthenticated as i32);
        assert_eq!(Code::Uninitialized as i32, 17);
        assert!("OK".parse::<Code>().is_err());
    }
}
