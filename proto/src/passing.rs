//! The messages of every operation, for who passes them on.
//!
//! On the wire they are those of [`v1`](crate::v1). Texts that the broker does not look into are bytes
//! here, which lie where they arrived, and so is the name of a class, which is the same from one
//! request to the next. What is not here is in `v1`.

#![allow(unreachable_pub, missing_docs, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/passing/machinebroker.v1.rs"));
include!(concat!(env!("OUT_DIR"), "/passing_debug.rs"));

pub use crate::params::{Native, Params, Parts};

impl MachineResponse {
    /// Whether all texts are texts: what a driver sent is not passed on before this was asked, since who
    /// reads it would give up the whole stream.
    pub fn is_sound(&self) -> bool {
        // Nearly all are ASCII, and that is told sooner.
        let is_text =
            |bytes: &prost::bytes::Bytes| bytes.is_ascii() || std::str::from_utf8(bytes).is_ok();
        is_text(&self.provider_id)
            && is_text(&self.node_name)
            && is_text(&self.last_known_state)
            && self.addresses.iter().all(|one| is_text(&one.r#type) && is_text(&one.address))
    }

    /// A copy of its own, which does not keep alive all that arrived together with it.
    pub fn detached(&self) -> Self {
        use prost::Message as _;
        Self::decode(prost::bytes::Bytes::from(self.encode_to_vec())).expect("just encoded")
    }
}
