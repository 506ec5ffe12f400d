//! Calls whose requests are bytes already, and whose answers are checked where they lie.

use std::fmt;

use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// What is set aside for a message at first: enough for those of the benchmark.
const AT_FIRST: usize = 512;
/// What is set aside when that was not enough.
const MORE: usize = 8 * 1024;
/// As tonic has it.
const SEND_AT: usize = 32 * 1024;

/// How an answer is checked, and what is told of it.
pub(super) type Check<A> = fn(&[u8]) -> anyhow::Result<A>;

/// The codec: it sends what it is given, and gives what the check said.
#[derive(Clone, Copy)]
pub(super) struct Ready<A>(pub(super) Check<A>);

impl<A> fmt::Debug for Ready<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ready")
    }
}

impl<A: Send + Sync + 'static> Codec for Ready<A> {
    type Encode = Bytes;
    type Decode = anyhow::Result<A>;
    type Encoder = AsItIs;
    type Decoder = Self;

    fn encoder(&mut self) -> AsItIs {
        AsItIs
    }

    fn decoder(&mut self) -> Self {
        Self(self.0)
    }
}

impl<A: Send + Sync + 'static> Decoder for Ready<A> {
    type Item = anyhow::Result<A>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        // tonic keeps a message in one piece.
        let checked = (self.0)(buffer.chunk());
        buffer.advance(buffer.remaining());
        Ok(Some(checked))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(AT_FIRST, SEND_AT)
    }
}

#[derive(Debug)]
pub(super) struct AsItIs;

impl Encoder for AsItIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        if buffer.chunk_mut().len() < message.len() {
            // Of a stream: more come, most likely.
            buffer.reserve(message.len().max(MORE));
        }
        buffer.put(message);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(AT_FIRST, SEND_AT)
    }
}
