//! What came on a connection, some at a time.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many bytes are read before what they ask for is handed on: some two dozen unary calls.
const PORTION: usize = 8 * 1024;

/// A connection that pretends to be empty after each portion, so that what was read goes on its way
/// before more is read ([`turns`](crate::turns)): `h2` reads all that there is before it gives anything away.
pub(super) struct Portions<IO> {
    io: IO,
    /// Of this portion.
    read: usize,
}

impl<IO> Portions<IO> {
    pub(super) fn new(io: IO) -> Self {
        Self { io, read: 0 }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Portions<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= PORTION {
            self.read = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = to.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(context, to));
        self.read += to.filled().len() - before;
        Poll::Ready(read)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Portions<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn after_a_portion_others_have_their_turn_and_nothing_is_lost() {
        let (mut ours, theirs) = duplex(4 * PORTION);
        let mut portions = Portions::new(theirs);
        let sent: Vec<u8> = (0..2 * PORTION + 1).map(|number| number as u8).collect();
        ours.write_all(&sent).await.unwrap();
        drop(ours);
        let mut read = vec![0; PORTION];
        portions.read_exact(&mut read).await.unwrap();
        assert_eq!(portions.read(&mut [0]).now_or_never().map(Result::unwrap), None);
        portions.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, sent);
    }
}
