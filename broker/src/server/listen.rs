//! The ports.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use anyhow::Context as _;
use futures::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::{StreamExt as _, wrappers::TcpListenerStream};

use crate::grpc::Connection;

pub(super) struct Listeners {
    pub(super) drivers: TcpListener,
    pub(super) admin: TcpListener,
}

impl Listeners {
    pub(super) async fn open(drivers: SocketAddr, admin: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { drivers: bind("--listen", drivers).await?, admin: bind("--admin", admin).await? })
    }
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; another address can be given with {flag}")
    })
}

pub(super) fn connections(
    listener: TcpListener,
) -> impl Stream<Item = io::Result<Connection<TcpStream>>> {
    TcpListenerStream::new(listener).map(|accepted| {
        let stream = accepted?;
        // Without it every answer may wait 40 ms for more to send.
        stream.set_nodelay(true)?;
        let address = stream.peer_addr()?.to_string();
        Ok(Connection::new(stream, address))
    })
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
