//! HTTP/2 on every connection, by hyper.

mod gather;
mod portions;

use std::{io, pin::pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{gather::Gathering, portions::Portions};
use crate::{
    bounds::Limits,
    grpc::{Connection, Front, Usher},
};

/// Proves a connection alive where the protocol cannot: a historic driver at work answers nothing
/// else, but its transport does.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_WITHIN: Duration = Duration::from_secs(10);
/// Calls that we had to reset, on one connection: those that were answered before their request had
/// come as a whole, such as by a denial.
const RESETS_OF_OURS: usize = 1024;
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;
/// The smallest that HTTP/2 knows.
const HTTP2_FRAME: u32 = 16 * 1024;

type Protocol = http2::Builder<TokioExecutor>;

pub(super) fn protocol(limits: &Limits) -> Protocol {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_WITHIN)
        .max_concurrent_streams(limits.streams_per_connection)
        .max_pending_accept_reset_streams(limits.resets)
        .max_local_error_reset_streams(RESETS_OF_OURS)
        .max_header_list_size(limits.headers)
        .max_frame_size(HTTP2_FRAME)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // Nobody reads it, and each answer would have it.
        .auto_date_header(false);
    http
}

/// Serves these connections. Once `stopped`, takes on no more and lets them end what they have.
pub(super) async fn serve<IO>(
    http: Protocol,
    front: Arc<Front>,
    incoming: impl Stream<Item = io::Result<Connection<IO>>>,
    stopped: CancellationToken,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connections = TaskTracker::new();
    {
        // Given up with the end of this: nobody is let in to wait for nothing.
        let mut incoming = pin!(incoming);
        while let Some(Some(next)) = stopped.run_until_cancelled(incoming.next()).await {
            let Ok(connection) = next else { continue };
            let (io, peer) = connection.into_parts();
            let usher = Usher { front: Arc::clone(&front), peer };
            let io = TokioIo::new(Gathering::new(Portions::new(io)));
            let connection = http.serve_connection(io, usher);
            let stopped = stopped.clone();
            connections.spawn(async move {
                let mut connection = pin!(connection);
                let ended = tokio::select! {
                    ended = &mut connection => ended,
                    () = stopped.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
            });
        }
    }
    connections.close();
    connections.wait().await;
}
