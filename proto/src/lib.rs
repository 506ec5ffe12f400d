//! The wire of Machine Broker: the code generated from `proto/`, and nothing else.

/// Package `machinebroker.v1`: drivers dial in, controllers submit, operators look.
pub mod v1 {
    #![allow(unreachable_pub, missing_docs, clippy::all)]
    tonic::include_proto!("machinebroker.v1");
}

/// The encoded descriptors of every service, for gRPC server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
