//! The messages of every operation, for who drives machines.
//!
//! On the wire they are those of [`v1`](crate::v1). The class of a machine is bytes here: it is the same
//! from one operation to the next, and is read once. What is not here is in `v1`.

#![allow(unreachable_pub, missing_docs, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/driving/machinebroker.v1.rs"));
include!(concat!(env!("OUT_DIR"), "/driving_debug.rs"));
