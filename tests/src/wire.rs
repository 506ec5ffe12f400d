//! A connection that can go dead without either end hearing of it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// The broker's end of a connection in memory.
pub(crate) struct Wire {
    io: DuplexStream,
    line: Line,
}

/// The hand that cuts a [`Wire`]: what is sent after that is lost in silence, as by a firewall.
#[derive(Clone, Default)]
pub struct Line {
    to_broker: Arc<AtomicBool>,
    from_broker: Arc<AtomicBool>,
    unread: Arc<AtomicBool>,
}

impl Line {
    pub fn cut(&self) {
        self.cut_to_broker();
        self.cut_from_broker();
    }

    /// Nothing of what the broker says is read any more; what it says waits.
    pub fn stop_reading(&self) {
        self.unread.store(true, Ordering::Release);
    }

    pub fn cut_to_broker(&self) {
        self.to_broker.store(true, Ordering::Release);
    }

    pub fn cut_from_broker(&self) {
        self.from_broker.store(true, Ordering::Release);
    }
}

impl Wire {
    pub(crate) fn new(io: DuplexStream) -> (Self, Line) {
        let line = Line::default();
        (Self { io, line: line.clone() }, line)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.line.to_broker.load(Ordering::Acquire) {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        // Whatever comes is taken and lost, the end of the connection too.
        let mut lost = [0; 4096];
        loop {
            let mut lost = ReadBuf::new(&mut lost);
            match Pin::new(&mut self.io).poll_read(cx, &mut lost) {
                Poll::Ready(Ok(())) if !lost.filled().is_empty() => {}
                _ => return Poll::Pending,
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.line.from_broker.load(Ordering::Acquire) {
            return Poll::Ready(Ok(buf.len()));
        }
        if self.line.unread.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
