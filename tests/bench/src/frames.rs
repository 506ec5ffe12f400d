//! The least that a protocol over TCP can be: a length, a tag, and the message.

use anyhow::ensure;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

const HEAD: usize = 4 + 8;
const LARGEST: usize = 16 << 20;

/// Appends a frame.
pub(crate) fn put(buffer: &mut BytesMut, tag: u64, message: &impl prost::Message) {
    put_head(buffer, tag, message.encoded_len());
    message.encode(buffer).expect("a buffer that grows has room");
}

/// The same of a message that is encoded already.
pub(crate) fn put_encoded(buffer: &mut BytesMut, tag: u64, message: &[u8]) {
    put_head(buffer, tag, message.len());
    buffer.put_slice(message);
}

fn put_head(buffer: &mut BytesMut, tag: u64, length: usize) {
    buffer.put_u32(u32::try_from(length).expect("messages of the benchmark are small"));
    buffer.put_u64(tag);
}

/// Takes the first frame, if all of it is there.
pub(crate) fn take(buffer: &mut BytesMut) -> anyhow::Result<Option<(u64, Bytes)>> {
    let Some(mut head) = buffer.get(..HEAD) else { return Ok(None) };
    let length = head.get_u32() as usize;
    ensure!(length <= LARGEST, "a frame of {length} bytes");
    let tag = head.get_u64();
    if buffer.len() < HEAD + length {
        buffer.reserve(HEAD + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(HEAD);
    Ok(Some((tag, buffer.split_to(length).freeze())))
}

/// How many bytes of whole frames the buffer begins with.
pub(crate) fn whole(buffer: &[u8]) -> usize {
    let mut end = 0;
    while let Some(mut length) = buffer.get(end..end + 4) {
        let next = end + HEAD + length.get_u32() as usize;
        if next > buffer.len() {
            break;
        }
        end = next;
    }
    end
}

/// Reads what is there. `false` at the end.
pub(crate) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> anyhow::Result<bool> {
    buffer.reserve(64 << 10);
    Ok(stream.read_buf(buffer).await? > 0)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::workload::answer;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let mut sent = BytesMut::new();
        put(&mut sent, 7, &answer("one"));
        let first = sent.len();
        put_encoded(&mut sent, 8, &answer("another").encode_to_vec());
        let mut read = BytesMut::new();
        let mut taken = Vec::new();
        for byte in &sent {
            read.put_u8(*byte);
            while let Some((tag, message)) = take(&mut read).unwrap() {
                assert_eq!(message, answer(["one", "another"][taken.len()]).encode_to_vec());
                taken.push(tag);
            }
        }
        assert_eq!(taken, [7, 8]);
        assert_eq!(whole(&sent), sent.len());
        assert_eq!(whole(&sent[..sent.len() - 1]), first);
        assert_eq!(whole(&sent[..first - 1]), 0);
    }

    #[test]
    fn a_frame_that_claims_to_be_enormous_is_refused() {
        let mut buffer = BytesMut::from(&[0xff; HEAD][..]);
        assert!(take(&mut buffer).is_err());
    }
}
