//! A connection that knows its own number, so that a question can be traced to the sessions of the
//! same peer: a driver of 2018 tells nothing else of itself.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use broker_tls::PeerCertificate;

use crate::{
    auth::{Auth, Caller, Denied, LastShown},
    bounds::Standing,
    driver::ConnectionId,
};

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    pub connection: ConnectionId,
    pub address: Arc<str>,
    /// Its proof of who it is, good at the time of the handshake; if it had one.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// By which CAs that was last found good; see [`Auth::looks_good`].
    pub verified: Arc<AtomicU64>,
    /// The token that was last shown on it.
    pub shown: Arc<LastShown>,
    /// Whether somebody was let in on it.
    pub standing: Standing,
}

impl Peer {
    /// A new connection from this address, by someone unknown.
    pub fn new(address: impl Into<Arc<str>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let connection = ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self {
            connection,
            address: address.into(),
            certificate: None,
            verified: Arc::new(AtomicU64::new(u64::MAX)),
            shown: Arc::default(),
            standing: Standing::default(),
        }
    }

    /// Who that is, as far as the connection proves it.
    pub(super) fn proves(&self) -> Result<Caller, Denied> {
        Auth::without_token(self.connection, self.address.clone(), self.certificate.clone())
    }

    /// The same, if it proves nothing.
    pub(super) fn nobody(&self) -> Caller {
        Caller::anonymous(self.connection, self.address.clone())
    }
}

#[derive(Debug)]
pub struct Connection<IO> {
    io: IO,
    peer: Peer,
}

impl<IO> Connection<IO> {
    pub fn new(io: IO, address: impl Into<Arc<str>>) -> Self {
        Self::of(io, Peer::new(address))
    }

    pub fn of(io: IO, peer: Peer) -> Self {
        Self { io, peer }
    }

    pub fn into_parts(self) -> (IO, Peer) {
        (self.io, self.peer)
    }
}
