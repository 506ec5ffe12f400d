//! How messages become bytes: as tonic does it, with less memory set aside.

use std::{fmt, marker::PhantomData};

use prost::{Message, bytes::Buf as _};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstCodec, ProstEncoder};

/// What a stream sets aside each way before anything was said on it. It grows with what is: tonic's own
/// 8 KiB are a quarter of what was allocated for an idle driver.
const AT_FIRST: usize = 64;
/// As tonic has it: so much is encoded before it is sent, so that a busy stream's messages share a frame.
const SEND_AT: usize = 32 * 1024;

/// The codec of all our services.
pub struct FrugalCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for FrugalCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> fmt::Debug for FrugalCodec<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrugalCodec")
    }
}

impl<T, U> Codec for FrugalCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = WholeDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(AT_FIRST, SEND_AT))
    }

    fn decoder(&mut self) -> Self::Decoder {
        WholeDecoder(PhantomData)
    }
}

/// Decodes a message from where it lies in one piece, in a third of the instructions that tonic's own
/// decoder needs. Fields that are bytes stay there, too.
pub struct WholeDecoder<U>(PhantomData<U>);

impl<U> fmt::Debug for WholeDecoder<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WholeDecoder")
    }
}

impl<U: Message + Default> Decoder for WholeDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let message = buffer.copy_to_bytes(buffer.remaining());
        // As tonic says it: whoever sent this does not speak our language.
        U::decode(message).map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(AT_FIRST, SEND_AT)
    }
}
