//! The messages of every operation, for who passes them on.
//!
//! On the wire they are those of [`v1`](crate::v1). What is passed on is bytes here, which lie where they
//! arrived, and so is the name of a class, which is the same from one request to the next. Requests are
//! read field by field. What is not here is in `v1`.

#![allow(unreachable_pub, missing_docs, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/passing/machinebroker.v1.rs"));
include!(concat!(env!("OUT_DIR"), "/passing_debug.rs"));

pub use crate::{
    fields::Unreadable,
    machine::EncodedMachine,
    params::{Native, Order, Parts},
    submission::{MachineAsked, Submission, Submitted},
};

impl std::fmt::Debug for OperationResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperationResult")
            .field("code", &self.code)
            .field("message", &self.message)
            .field("retry_after", &self.retry_after)
            .field("payload", &self.payload)
            .finish()
    }
}

/// A machine is passed on unseen, and not shown.
impl std::fmt::Debug for operation_result::Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Machine(_) => f.write_str("Machine([hidden])"),
            Self::List(list) => f.debug_tuple("List").field(list).finish(),
            Self::VolumeIds(ids) => f.debug_tuple("VolumeIds").field(ids).finish(),
        }
    }
}
