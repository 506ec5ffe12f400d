//! Many small frames in one system call.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection on which `h2` gathers frames of up to 1,024 bytes, instead of 256, before it writes.
///
/// `h2` asks once, when it begins, whether several pieces can be written at once, and if so takes only the
/// smallest frames together. An operation on its way to a driver has about 300 bytes: with many drivers on
/// one connection each was written by itself, which cost as much as all else that is done for it. So
/// this says no until the first write. Larger frames still go out in one piece, since that is asked anew
/// for each of them.
pub(super) struct Gathering<IO> {
    io: IO,
    has_begun: bool,
}

impl<IO> Gathering<IO> {
    pub(super) fn new(io: IO) -> Self {
        Self { io, has_begun: false }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Gathering<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Gathering<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_begun = true;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.has_begun && self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use axum::body::Body;
    use futures::future::join_all;
    use hyper::{Request, Response, client, server, service::service_fn};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::{
        io::{DuplexStream, duplex},
        task::JoinSet,
    };

    use super::*;

    /// Counts the writes, each of which would be a system call.
    struct Counted {
        io: DuplexStream,
        writes: Arc<AtomicUsize>,
    }

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.io).poll_write(cx, buf)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn what_goes_out_at_the_same_time_on_many_streams_is_few_writes() {
        const STREAMS: usize = 50;
        let (ours, theirs) = duplex(1024 * 1024);
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Counted { io: theirs, writes: Arc::clone(&writes) };
        let answer =
            service_fn(async |_| Ok::<_, Infallible>(Response::new(Body::from(vec![0; 300]))));
        let http = server::conn::http2::Builder::new(TokioExecutor::new());
        let serving = http.serve_connection(TokioIo::new(Gathering::new(counted)), answer);
        let mut tasks = JoinSet::new();
        tasks.spawn(serving);
        let (client, connection) =
            client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(ours)).await.unwrap();
        tasks.spawn(connection);
        let ask = |_| client.clone().send_request(Request::new(Body::empty()));
        let answers = (0..STREAMS).map(ask);
        for answer in join_all(answers).await {
            answer.unwrap();
        }
        let writes = writes.load(Ordering::Relaxed);
        assert!(writes < STREAMS / 2, "{writes} writes for {STREAMS} answers");
    }
}
