//! The wire of Machine Broker: the code generated from `proto/`, and how it is put into bytes.
//!
//! What a field marked `[debug_redact = true]` holds is never printed: the `Debug` of its message says
//! `[hidden]` in its place.

mod answered;
mod asked;
pub mod codec;
pub mod driving;
mod encoded;
mod fields;
mod machine;
mod params;
pub mod passing;
mod submission;

/// Package `machinebroker.v1`: drivers dial in, controllers submit, operators look.
pub mod v1 {
    #![allow(unreachable_pub, missing_docs, clippy::all)]
    tonic::include_proto!("machinebroker.v1");
    include!(concat!(env!("OUT_DIR"), "/debug.rs"));

    /// Credentials do not stay in memory that was given back. Who sends a message drops it as soon as it
    /// is encoded.
    impl Drop for Secret {
        fn drop(&mut self) {
            zeroize::Zeroize::zeroize(&mut self.data);
        }
    }
}

/// The encoded descriptors of every service, for gRPC server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod tests;
