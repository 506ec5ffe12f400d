//! A message that was encoded before the frame that it is a part of, by who had its parts at hand.

use std::fmt;

use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut, Bytes},
    encoding::{DecodeContext, WireType, skip_field},
};

/// Of which message only who uses it can tell.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Encoded(Bytes);

impl From<Bytes> for Encoded {
    fn from(encoded: Bytes) -> Self {
        Self(encoded)
    }
}

/// It may hold what nobody may see.
impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// For the frame that it is a part of. Nobody sends one to who encodes it, so one that comes is skipped.
impl Message for Encoded {
    fn encode_raw(&self, bytes: &mut impl BufMut) {
        bytes.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, bytes, context)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
