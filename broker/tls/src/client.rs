//! What drivers, controllers and operators dial with.
//!
//! [`connect`] is for all of them, with TLS and without. Files are read for every connection, so that
//! a certificate that was renewed is used without a restart. What goes wrong is said as a
//! [`Failure`], which is somewhere in the chain of tonic's error: see [`Failure::in_chain`].

mod dial;
mod failure;
mod stream;
mod trust;

use std::{net::IpAddr, path::PathBuf};

use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

pub use self::{
    failure::{Failure, WANTS_TLS},
    stream::Stream,
};
use crate::{Problem, server::Protocol};

/// What a client trusts and shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CAs that may have signed the broker's certificate, or that certificate itself.
    pub ca: Option<PathBuf>,
    /// Our own certificate, with those that lead to its CA.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// The name that the broker's certificate has to have, if it is not the one that is dialled.
    pub server_name: Option<String>,
}

impl Tls {
    /// Whether anything is set, and TLS therefore wanted.
    pub fn is_wanted(&self) -> bool {
        *self != Self::default()
    }

    /// What can be known to be wrong before anything is read.
    pub fn check(&self) -> Result<(), Problem> {
        match (&self.ca, &self.cert, &self.key) {
            (None, _, _) => Err(Problem::Settings(
                "TLS needs --ca FILE, the CA that signed the broker's certificate \
                 (that of the system may be /etc/ssl/certs/ca-certificates.crt)",
            )),
            (_, Some(_), None) => Err(Problem::Settings("--cert needs --key")),
            (_, None, Some(_)) => Err(Problem::Settings("--key needs --cert")),
            _ => Ok(()),
        }
    }
}

/// Makes one connection to where `endpoint` says, with TLS if there is any `tls`.
///
/// The endpoint's scheme has to be `http` in any case: what carries HTTP is decided here, and tonic
/// must not add a TLS of its own.
pub async fn connect(
    endpoint: Endpoint,
    tls: Option<Tls>,
) -> Result<Channel, tonic::transport::Error> {
    let endpoint = with_origin(endpoint, tls.as_ref());
    let dial = move |uri| {
        let tls = tls.clone();
        async move { dial::dial(uri, tls, Protocol::Http2).await.map(TokioIo::new) }
    };
    endpoint.connect_with_connector(service_fn(dial)).await
}

/// Makes one connection as [`connect`] does, which tonic does not make anew behind our back, and says
/// when it is gone, or found to take no more calls: the token is cancelled then.
pub async fn connect_once(
    endpoint: Endpoint,
    tls: Option<Tls>,
) -> Result<(Channel, CancellationToken), tonic::transport::Error> {
    let endpoint = with_origin(endpoint, tls.as_ref());
    let gone = CancellationToken::new();
    let mut once = Some((tls, gone.clone().drop_guard()));
    let no_use = gone.clone();
    let dial = move |uri: Uri| {
        let once = once.take();
        if once.is_none() {
            // It may live on for those who have a stream on it.
            no_use.cancel();
        }
        async move {
            let (tls, guard) = once.ok_or_else(|| Failure::Closed(uri.to_string()))?;
            let stream = dial::dial(uri, tls, Protocol::Http2).await?;
            Ok::<_, Failure>(TokioIo::new(stream.with(guard)))
        }
    };
    Ok((endpoint.connect_with_connector(service_fn(dial)).await?, gone))
}

/// The URL that calls are for, which tonic would take from the scheme that it dials.
fn with_origin(endpoint: Endpoint, tls: Option<&Tls>) -> Endpoint {
    let Some(_) = tls else { return endpoint };
    let authority = endpoint.uri().authority().map_or("", |authority| authority.as_str());
    match format!("https://{authority}").parse() {
        Ok(origin) => endpoint.origin(origin),
        Err(_) => endpoint,
    }
}

/// Whether this host of an address is the one we are on, where nobody listens in on the way. No name
/// but `localhost` is: what others resolve to is for others to say.
pub fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Makes one connection and leaves it to the caller what to say, in this protocol.
pub async fn open(address: &str, tls: Tls, protocol: Protocol) -> Result<Stream, Failure> {
    let uri = format!("http://{address}").parse();
    let uri = uri.map_err(|_| Problem::BadName(address.to_owned()))?;
    dial::dial(uri, Some(tls), protocol).await
}

#[cfg(all(test, feature = "issue"))]
mod tests;
