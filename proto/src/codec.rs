//! How messages become bytes: as tonic does it, with less memory set aside.

use std::{fmt, marker::PhantomData};

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// What a stream sets aside each way before anything was said on it. It grows with what is: tonic's own
/// 8 KiB are a quarter of what was allocated for an idle driver.
const AT_FIRST: usize = 512;
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
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(AT_FIRST, SEND_AT))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(AT_FIRST, SEND_AT))
    }
}
