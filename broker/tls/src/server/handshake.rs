//! One handshake: who is there, or why not.

use std::{fmt, io, sync::Arc, time::Duration};

use rustls::{AlertDescription, CertificateError, Error};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::Server;
use crate::{Certificate, PeerCertificate, Problem};

/// From the first byte to the last.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long, and how much, a peer that is refused is listened to, so that it reads why: closing with
/// unread bytes would reset the connection.
const LAST_WORDS: Duration = Duration::from_millis(500);
const LAST_BYTES: u64 = 64 * 1024;

/// What is spoken inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http2,
    Http1,
}

impl Protocol {
    pub(crate) fn names(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http2 => vec![b"h2".to_vec()],
            Self::Http1 => vec![b"http/1.1".to_vec()],
        }
    }
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Secured<IO> {
    pub io: TlsStream<IO>,
    /// Of a peer that showed one.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// By which CAs it was found good, as [`Server::ca_changes`] counts them.
    pub cas: u64,
}

/// Why there is no connection.
#[derive(Debug)]
pub struct Refusal {
    /// One of [`REASONS`], for counting.
    pub reason: &'static str,
    message: String,
}

/// All that a [`Refusal`] may have as its reason, and one for those who had to go because there were
/// too many at once, for whoever counts these.
pub const REASONS: [&str; 9] = [
    "no_tls",
    "expired",
    "unknown_ca",
    "bad_certificate",
    "refused_by_peer",
    "protocol",
    "timeout",
    "closed",
    "crowded_out",
];

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Server {
    /// Takes a new connection through its handshake, in good time.
    pub async fn accept<IO>(&self, io: IO, protocol: Protocol) -> Result<Secured<IO>, Refusal>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let late = || Refusal::new("timeout", "the TLS handshake took too long");
        timeout(HANDSHAKE_WITHIN, self.shake_hands(io, protocol))
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn shake_hands<IO>(&self, io: IO, protocol: Protocol) -> Result<Secured<IO>, Refusal>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        // Looked at before what is in force: CAs that change in between are taken for older ones, and
        // the certificate is verified once more than it has to be.
        let cas = *self.0.cas.borrow();
        let in_force = self.in_force();
        let config = match protocol {
            Protocol::Http2 => &in_force.h2,
            Protocol::Http1 => &in_force.http1,
        };
        let accepted = TlsAcceptor::from(Arc::clone(config)).accept(io).into_fallible().await;
        let io = match accepted {
            Ok(io) => io,
            Err((error, io)) => {
                hear_out(io).await;
                return Err(self.explain(&error));
            }
        };
        let certificate = match io.get_ref().1.peer_certificates() {
            Some(chain) => {
                let chain = chain.iter().map(|certificate| certificate.clone().into_owned());
                let bad = |why| Refusal::new("bad_certificate", format!("its certificate: {why}"));
                Some(Arc::new(Certificate::read(chain.collect()).map_err(bad)?))
            }
            None => None,
        };
        Ok(Secured { io, certificate, cas })
    }

    fn explain(&self, error: &io::Error) -> Refusal {
        use AlertDescription as Alert;
        let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<Error>()) else {
            return Refusal::new("closed", "the peer left during the TLS handshake");
        };
        match error {
            Error::InvalidMessage(_) => {
                Refusal::new("no_tls", "the peer speaks no TLS (plain HTTP/2?)")
            }
            Error::InvalidCertificate(error) => self.distrust(error),
            Error::AlertReceived(alert) => {
                let advice = match alert {
                    Alert::UnknownCA | Alert::DecryptError => {
                        ": the CA that it trusts did not sign ours"
                    }
                    Alert::CertificateExpired => ": it finds ours expired",
                    Alert::BadCertificate => ": it may have dialled a name that ours does not have",
                    _ => "",
                };
                let message = format!("the peer refused our certificate ({alert:?}){advice}");
                Refusal::new("refused_by_peer", message)
            }
            Error::PeerIncompatible(_) => {
                Refusal::new("protocol", "the peer does not speak TLS 1.3")
            }
            Error::NoApplicationProtocol => Refusal::new(
                "protocol",
                "the peer does not speak this port's protocol inside of TLS",
            ),
            other => Refusal::new("protocol", other.to_string()),
        }
    }

    fn distrust(&self, error: &CertificateError) -> Refusal {
        let file = self.files().client_ca.as_deref().unwrap_or("the client CA".as_ref());
        let problem = Problem::of(error, file);
        let reason = match problem {
            Problem::Expired(_) => "expired",
            Problem::UnknownCa(_) => "unknown_ca",
            _ => "bad_certificate",
        };
        Refusal::new(reason, format!("the peer: {problem}"))
    }
}

impl Refusal {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Closes our side and waits a moment for the peer to close its own.
async fn hear_out<IO: AsyncRead + AsyncWrite + Unpin>(mut io: IO) {
    let heard = async {
        io.shutdown().await?;
        tokio::io::copy(&mut io.take(LAST_BYTES), &mut tokio::io::sink()).await
    };
    // It is refused either way.
    timeout(LAST_WORDS, heard).await.ok();
}
