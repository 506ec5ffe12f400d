//! A connection that explains its errors.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context as Cx, Poll, ready},
    time::{Duration, SystemTime},
};

use rustls::{AlertDescription as Alert, CertificateError, Error, pki_types::UnixTime};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;
use tokio_util::{either::Either, sync::DropGuard};

use super::{Failure, Tls};
use crate::Problem;

/// A record of TLS that says that something is wrong: how a server that wants TLS answers one who
/// does not speak it. No frame of HTTP/2 begins so.
const ALERT: [u8; 2] = [0x15, 0x03];

/// A connection to a broker.
#[derive(Debug)]
pub struct Stream {
    // With TLS there is a buffer, for what came while we waited for the first word.
    io: Either<TcpStream, BufReader<TlsStream<TcpStream>>>,
    /// Nothing was read so far.
    fresh: bool,
    context: Context,
    /// Tells who wants to know that it is gone.
    _guard: Option<DropGuard>,
}

/// What a failure is to be explained with.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) broker: String,
    pub(super) tls: Tls,
}

impl Stream {
    pub(super) fn plain(io: TcpStream, context: Context) -> Self {
        Self { io: Either::Left(io), fresh: true, context, _guard: None }
    }

    pub(super) fn secured(io: BufReader<TlsStream<TcpStream>>, context: Context) -> Self {
        Self { io: Either::Right(io), fresh: false, context, _guard: None }
    }

    /// The same, which takes the guard along.
    pub(super) fn with(self, guard: DropGuard) -> Self {
        Self { _guard: Some(guard), ..self }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(cx, buf));
        if let Err(error) = read {
            let is_tls = error.get_ref().is_some_and(|inner| inner.is::<Error>());
            return Poll::Ready(Err(match is_tls {
                true => io::Error::other(self.context.explain(&error, false)),
                false => error,
            }));
        }
        if std::mem::take(&mut self.fresh) && buf.filled()[before..].starts_with(&ALERT) {
            let wanted = Failure::TlsWanted(self.context.broker.clone());
            return Poll::Ready(Err(io::Error::other(wanted)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Context {
    /// `early`: before the broker said anything inside of TLS.
    pub(super) fn explain(&self, error: &io::Error, early: bool) -> Failure {
        let broker = || self.broker.clone();
        match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
            Some(Error::InvalidMessage(_)) if early => Failure::NoTls(broker()),
            Some(Error::InvalidCertificate(error)) => self.distrust(error),
            Some(Error::AlertReceived(alert)) => self.refused(*alert),
            Some(Error::PeerIncompatible(_)) => Failure::OldTls(broker()),
            Some(error) => Failure::Other { broker: broker(), why: error.to_string() },
            None if early => Failure::Closed(broker()),
            None => Failure::Other { broker: broker(), why: error.to_string() },
        }
    }

    /// What we found of the broker's certificate.
    fn distrust(&self, error: &CertificateError) -> Failure {
        use CertificateError as Bad;
        match error {
            Bad::ExpiredContext { not_after, .. } => Failure::BrokerExpired(time(*not_after)),
            Bad::NotValidYetContext { not_before, .. } => {
                Failure::BrokerNotYetValid(time(*not_before))
            }
            // A bad signature is that of another CA with the same name.
            Bad::UnknownIssuer | Bad::BadSignature => {
                Failure::BrokerUnknown(self.tls.ca.clone().unwrap_or_default())
            }
            Bad::NotValidForNameContext { expected, presented } => {
                let names: Vec<String> = presented.iter().filter_map(|name| host(name)).collect();
                let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
                Failure::BrokerName { names, expected: expected.to_str().into_owned() }
            }
            Bad::Other(other) => match other.0.downcast_ref::<Problem>() {
                Some(Problem::Expired(at)) => Failure::BrokerExpired(*at),
                Some(Problem::NotYetValid(at)) => Failure::BrokerNotYetValid(*at),
                _ => Failure::BrokerUnacceptable(error.to_string()),
            },
            other => Failure::BrokerUnacceptable(other.to_string()),
        }
    }

    /// What the broker says of ours.
    fn refused(&self, alert: Alert) -> Failure {
        let file = self.tls.cert.clone();
        match (alert, file) {
            (Alert::NoApplicationProtocol, _) => Failure::NoGrpc(self.broker.clone()),
            (Alert::ProtocolVersion | Alert::HandshakeFailure, None) => {
                Failure::OldTls(self.broker.clone())
            }
            (Alert::CertificateRequired, _) => Failure::CertificateWanted,
            (Alert::CertificateExpired, Some(file)) => Failure::OursExpired(file),
            // The latter for another CA with the same name.
            (Alert::UnknownCA | Alert::DecryptError, Some(file)) => Failure::OursUnknown(file),
            (alert, Some(file)) => Failure::OursRefused { file, why: format!("{alert:?}") },
            (alert, None) => {
                Failure::Other { broker: self.broker.clone(), why: format!("{alert:?}") }
            }
        }
    }
}

/// A name that can be dialled. rustls writes them as `DnsName("a")` and `IpAddress(0::1)`.
fn host(name: &str) -> Option<String> {
    let (sort, name) = name.split_once('(')?;
    let name = name.strip_suffix(')')?.trim_matches('"');
    match sort {
        "DnsName" => Some(name.to_owned()),
        "IpAddress" => Some(name.parse().map_or(name.to_owned(), |ip: IpAddr| ip.to_string())),
        _ => None,
    }
}

fn time(time: UnixTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs())
}
