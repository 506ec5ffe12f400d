//! The messages of every operation, for who drives machines.
//!
//! On the wire they are those of [`v1`](crate::v1). What an operation is about is bytes here, to be read
//! where they arrived, and so is its result. What is not here is in `v1`.

#![allow(unreachable_pub, missing_docs, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/driving/machinebroker.v1.rs"));
include!(concat!(env!("OUT_DIR"), "/driving_debug.rs"));

pub use crate::{asked::Asked, encoded::Encoded, fields::Unreadable};
