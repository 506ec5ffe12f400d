//! The messages of a call, as they lie on the wire: each behind a prefix.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use hyper::body::{Body, Incoming};
use prost::Message;
use tonic::{Code, Status};

/// So many bytes of messages are sent together at most, or a little more.
pub(super) const SEND_AT: usize = 32 * 1024;
/// Before each message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;

/// The messages of a request, one after the other, each where it arrived: nothing is copied but what came
/// in several pieces.
#[derive(Debug)]
pub(super) struct Messages<B = Incoming> {
    body: B,
    /// What came last, and is not read yet. It begins with a message.
    piece: Bytes,
    /// A message that came in several pieces, and what came with its last one. Then `piece` is empty.
    gathered: BytesMut,
    /// The most bytes that a message may have.
    most: usize,
}

impl<B> Messages<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    pub(super) fn new(body: B, most: usize) -> Self {
        Self { body, piece: Bytes::new(), gathered: BytesMut::new(), most }
    }

    /// The next one, without its prefix; `None` once the caller has said all. Not to be asked again after
    /// an error.
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            match self.take() {
                Ok(None) => {}
                Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    // Nothing comes behind what is no data.
                    let Ok(data) = frame.into_data() else { continue };
                    if data.is_empty() && self.body.is_end_stream() {
                        // Many say so that they are done: nobody needs to be asked what else there is.
                        return Poll::Ready(self.cut_off().map(Err));
                    }
                    if self.piece.is_empty() && self.gathered.is_empty() {
                        self.piece = data;
                    } else {
                        self.gathered.extend_from_slice(&mem::take(&mut self.piece));
                        self.gathered.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(Status::from_error(error.into()))));
                }
                None => return Poll::Ready(self.cut_off().map(Err)),
            }
        }
    }

    /// What is wrong if nothing more comes.
    fn cut_off(&self) -> Option<Status> {
        let is_all_read = self.piece.is_empty() && self.gathered.is_empty();
        (!is_all_read).then(|| Status::internal("the last message was cut off"))
    }

    /// The same for a stream: who lets go of it has said all. Of a single request that would not do, as it
    /// was taken back.
    pub(super) fn poll_next_of_stream(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        let next = ready!(self.poll_next(context));
        let has_left = |status: &Status| status.code() == Code::Cancelled;
        Poll::Ready(next.filter(|next| !next.as_ref().is_err_and(has_left)))
    }

    /// A message, if all of it is there.
    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        if let Some(length) = self.whole(&self.gathered)? {
            let message = self.gathered.split_to(PREFIX + length).freeze().slice(PREFIX..);
            // What came with its end is one piece again.
            self.piece = mem::take(&mut self.gathered).freeze();
            return Ok(Some(message));
        }
        let Some(length) = self.whole(&self.piece)? else { return Ok(None) };
        self.piece.advance(PREFIX);
        Ok(Some(self.piece.split_to(length)))
    }

    /// How long the message is with which this begins, if it is whole.
    fn whole(&self, bytes: &[u8]) -> Result<Option<usize>, Status> {
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            return Err(Status::unimplemented("compressed messages are not read"));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.most {
            let most = self.most;
            return Err(Status::out_of_range(format!("a message has at most {most} bytes")));
        }
        Ok((rest.len() >= length).then_some(length))
    }
}

/// Adds a message of so many bytes, which `write` adds, with its prefix.
pub(super) fn put(length: usize, to: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    to.reserve(PREFIX + length);
    to.put_u8(0);
    // What is longer than four gigabytes is bounded elsewhere.
    to.put_u32(length as u32);
    write(to);
}

/// Adds a message with its prefix.
pub(super) fn put_message(message: &impl Message, to: &mut BytesMut) {
    put(message.encoded_len(), to, |to| message.encode_raw(to));
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use futures::{FutureExt as _, future::poll_fn};
    use hyper::body::Frame;
    use proptest::prelude::*;

    struct Pieces(VecDeque<Result<Bytes, Status>>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|piece| piece.map(Frame::data)))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }
    }

    fn read(pieces: impl IntoIterator<Item = Vec<u8>>, most: usize) -> Result<Vec<Bytes>, Code> {
        let pieces = pieces.into_iter().map(|piece| Ok(piece.into())).collect();
        let mut messages = Messages::new(Pieces(pieces), most);
        let mut read = Vec::new();
        let mut next = || poll_fn(|context| messages.poll_next(context)).now_or_never();
        while let Some(message) = next().expect("all pieces are there") {
            read.push(message.map_err(|status| status.code())?);
        }
        Ok(read)
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        put(message.len(), &mut bytes, |bytes| bytes.extend_from_slice(message));
        bytes.to_vec()
    }

    proptest! {
        #[test]
        fn however_they_are_cut_messages_arrive_as_they_were_sent(
            sent in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
        ) {
            let all: Vec<u8> = sent.iter().flat_map(|message| framed(message)).collect();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(all.len() + 1)).collect();
            at.extend([0, all.len()]);
            at.sort_unstable();
            let pieces = at.windows(2).map(|ends| all[ends[0]..ends[1]].to_vec());
            let read = read(pieces.collect::<Vec<_>>(), 40);
            let sent: Vec<Bytes> = sent.into_iter().map(Bytes::from).collect();
            prop_assert_eq!(read, Ok(sent));
        }
    }

    #[test]
    fn what_is_cut_off_too_long_or_compressed_is_an_error() {
        assert_eq!(read([framed(b"abc")[..7].to_vec()], 40), Err(Code::Internal));
        assert_eq!(read([b"\0\0\0".to_vec()], 40), Err(Code::Internal));
        assert_eq!(read([b"\0\0\0".to_vec(), Vec::new()], 40), Err(Code::Internal));
        assert_eq!(read([framed(b"abc")], 2), Err(Code::OutOfRange));
        assert_eq!(read([b"\0\xff\xff\xff\xff".to_vec()], 40), Err(Code::OutOfRange));
        assert_eq!(read([b"\x01\0\0\0\x01a".to_vec()], 40), Err(Code::Unimplemented));
    }

    #[test]
    fn what_was_taken_back_is_no_whole_request_but_the_end_of_a_stream() {
        let left = || {
            let cancelled = Err(Status::cancelled("left"));
            // A piece without anything is not yet the end.
            let pieces = [Ok(framed(b"abc").into()), Ok(Bytes::new()), cancelled];
            Messages::new(Pieces(pieces.into()), 40)
        };
        let code = |next: Option<Result<Bytes, Status>>| next.map(|next| next.unwrap_err().code());
        let (mut request, mut stream) = (left(), left());
        let mut of_request = || poll_fn(|context| request.poll_next(context)).now_or_never();
        assert!(of_request().flatten().is_some_and(|first| first.is_ok()));
        assert_eq!(of_request().map(code), Some(Some(Code::Cancelled)));
        let mut of_stream =
            || poll_fn(|context| stream.poll_next_of_stream(context)).now_or_never();
        assert!(of_stream().flatten().is_some_and(|first| first.is_ok()));
        assert_eq!(of_stream().map(code), Some(None));
    }
}
