//! A socket that closes by itself when its connection has to go. It lies below TLS, so that one rule is
//! good from the first byte of a handshake to the first call that is let in.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::bounds::{Standing, WhyOut};

pub(crate) struct Guest<IO> {
    io: IO,
    standing: Standing,
    /// `None` once it may stay as long as it likes.
    deadline: Option<Pin<Box<Sleep>>>,
    /// `None` once it may stay whatever comes.
    told_to_go: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<IO> Guest<IO> {
    pub(super) fn new(io: IO, standing: Standing) -> Self {
        let deadline = standing.time().map(|time| Box::pin(sleep(time)));
        let told_to_go = standing.told_to_go().map(Box::pin);
        Self { io, standing, deadline, told_to_go }
    }

    /// Fails once the connection has to go. Nothing but a look at two fields for one that may stay.
    fn stays(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.deadline.is_some() && self.standing.is_settled() {
            self.deadline = None;
        }
        if self.told_to_go.is_some() && self.standing.is_safe() {
            self.told_to_go = None;
        }
        // Either may be asked again after its end.
        let crowded =
            self.told_to_go.as_mut().is_some_and(|told| told.as_mut().poll(cx).is_ready());
        let late = self.deadline.as_mut().is_some_and(|late| late.as_mut().poll(cx).is_ready());
        let why = match (crowded, late) {
            (false, false) => return Ok(()),
            (true, _) => WhyOut::Crowded,
            (false, true) => WhyOut::Idle,
        };
        self.standing.goes(why);
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "this connection has to go"))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Guest<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stays(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Guest<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stays(cx)?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stays(cx)?;
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stays(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = ready!(Pin::new(&mut self.io).poll_shutdown(cx));
        Poll::Ready(self.stays(cx).and(closed))
    }
}
