//! The ports: from an accepted socket to a connection that can be served.
//!
//! Handshakes run beside the loop that accepts. How many connections there may be, and how long one may
//! take until somebody was let in on it, the port's [`Crowd`] knows.

mod guest;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::Context as _;
use axum::{
    extract::{ConnectInfo, Request, connect_info::Connected},
    middleware::Next,
    response::Response,
    serve,
};
use broker_tls::server::{Protocol, Secured, TlsStream};
use futures::Stream;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::sleep,
};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tokio_util::{either::Either, sync::CancellationToken};

use self::guest::Guest;
use crate::{
    bounds::{Crowd, Refusals, WhyOut},
    grpc::{Connection, Peer},
    metrics::Metrics,
};

/// Connections that the system holds until we accept them; it may allow fewer (`net.core.somaxconn`). After
/// a restart all drivers come at once, and who finds no room tries again after a second at the earliest.
const BACKLOG: u32 = 16_384;
/// Connections that nobody has begun to serve.
const WAITING: usize = 64;
/// After the system could not accept, for instance because it is out of descriptors.
const PAUSE: Duration = Duration::from_millis(200);
/// Until connections that were told to go have gone.
const MOMENT: Duration = Duration::from_millis(5);

/// With TLS or without.
pub(super) type Io = Either<Guest<TcpStream>, Box<TlsStream<Guest<TcpStream>>>>;

pub(super) struct Listeners {
    pub(super) drivers: TcpListener,
    pub(super) admin: TcpListener,
}

impl Listeners {
    pub(super) fn open(drivers: SocketAddr, admin: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { drivers: bind("--listen", drivers)?, admin: bind("--admin", admin)? })
    }
}

fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen(address).with_context(|| {
        format!("cannot listen on {address}; another address can be given with {flag}")
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A broker that was restarted does not wait for the connections of the one before it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections on one port and makes them ready to be served.
pub(super) struct Port {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<broker_tls::Server>,
    /// Inside of TLS.
    pub(super) protocol: Protocol,
    pub(super) crowd: Crowd,
    pub(super) refusals: Refusals,
    pub(super) metrics: Metrics,
}

type Ready = (Io, Peer);

impl Port {
    /// The connections, and the task that brings them.
    pub(super) fn open(
        self,
        stopped: CancellationToken,
    ) -> (impl Future<Output = ()>, mpsc::Receiver<Ready>) {
        let (ready, connections) = mpsc::channel(WAITING);
        let task = async move {
            stopped.run_until_cancelled(self.accept(ready)).await;
        };
        (task, connections)
    }

    async fn accept(self, ready: mpsc::Sender<Ready>) {
        let mut handshakes = JoinSet::new();
        loop {
            while self.crowd.is_overfull() {
                sleep(MOMENT).await;
            }
            let connection = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((tcp, address)) => self.welcome(tcp, address, &mut handshakes),
                    // It left before we looked.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => None,
                    Err(error) => {
                        self.metrics.connection_refused("full");
                        if self.refusals.tell_of_stranger() {
                            tracing::warn!(%error, "cannot accept connections");
                        }
                        // It may be that the system has no room for more.
                        self.crowd.make_room();
                        sleep(PAUSE).await;
                        None
                    }
                },
                Some(done) = handshakes.join_next() => done.unwrap_or(None),
            };
            if let Some(connection) = connection
                && ready.send(connection).await.is_err()
            {
                return;
            }
        }
    }

    fn welcome(
        &self,
        tcp: TcpStream,
        address: SocketAddr,
        handshakes: &mut JoinSet<Option<Ready>>,
    ) -> Option<Ready> {
        let Ok(standing) = self.crowd.join() else {
            if self.refusals.tell_of_stranger() {
                tracing::warn!(peer = %address, "connection refused: there are too many");
            }
            return None;
        };
        // Without it every answer may wait 40 ms for more to send. One that is closed already is
        // found out when it is served.
        tcp.set_nodelay(true).ok();
        let peer = Peer { standing: standing.clone(), ..Peer::new(address.to_string()) };
        let io = Guest::new(tcp, standing.clone());
        let Some(tls) = self.tls.clone() else { return Some((Either::Left(io), peer)) };
        let (protocol, metrics) = (self.protocol, self.metrics.clone());
        let refusals = self.refusals.clone();
        handshakes.spawn(async move {
            match tls.accept(io, protocol).await {
                Ok(Secured { io, certificate, cas }) => {
                    let verified = Arc::new(AtomicU64::new(cas));
                    Some((Either::Right(Box::new(io)), Peer { certificate, verified, ..peer }))
                }
                Err(refusal) => {
                    let peer = peer.address;
                    metrics.tls_refused(match standing.why_out() {
                        Some(WhyOut::Crowded) => "crowded_out",
                        Some(WhyOut::Idle) => "timeout",
                        None => refusal.reason,
                    });
                    if refusals.tell_of_stranger() {
                        tracing::info!(%peer, why = %refusal, "no TLS connection");
                    }
                    None
                }
            }
        });
        None
    }
}

/// For tonic.
pub(super) fn connections(
    ready: mpsc::Receiver<Ready>,
) -> impl Stream<Item = io::Result<Connection<Io>>> {
    ReceiverStream::new(ready).map(|(io, peer)| Ok(Connection::of(io, peer)))
}

/// For axum, whose handlers get the [`Peer`] as `ConnectInfo`.
pub(super) struct Admin {
    pub(super) ready: mpsc::Receiver<Ready>,
    pub(super) address: SocketAddr,
}

impl serve::Listener for Admin {
    type Io = Io;
    type Addr = Peer;

    async fn accept(&mut self) -> Ready {
        match self.ready.recv().await {
            Some(ready) => ready,
            // The broker stops.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer::new(self.address.to_string()))
    }
}

/// Whoever gets an answer from the admin port that is not a refusal has come to stay.
pub(super) async fn settle(
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    if !response.status().is_client_error() {
        // It has no names, so none can have too many.
        peer.standing.settle(None).ok();
    }
    response
}

impl Connected<serve::IncomingStream<'_, Admin>> for Peer {
    fn connect_info(stream: serve::IncomingStream<'_, Admin>) -> Self {
        stream.remote_addr().clone()
    }
}

/// How a program on this machine reaches a server that may listen on all addresses.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests;
