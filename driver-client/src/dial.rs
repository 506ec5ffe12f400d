//! How a connection to a broker is made, and what we show there.
//!
//! [`Dial`] is the seam for other transports, such as a test's pipe in memory.

use std::{collections::BTreeSet, fs, net::IpAddr, path::PathBuf, time::Duration};

use broker_proto::driving::drivers_client::DriversClient;
use broker_tls::Tls;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use crate::{config::Token, together::Together};

/// Makes one connection. Every session gets one of its own, so that a broken one is never reused; where
/// many drivers run in one process, see [`Pool`](crate::Pool).
#[async_trait::async_trait]
pub trait Dial: Send + Sync {
    /// `tls` is what the configuration says of it, for a transport that knows what to do with it.
    async fn dial(&self, address: &str, tls: &Tls) -> Result<Channel, tonic::transport::Error>;

    /// The hosts and ports that an address is a name for; `None` where that cannot be told. If they are
    /// several, each is dialled by itself: a name that leads to any of several brokers would not do.
    async fn look_up(&self, _address: &str) -> Option<Vec<String>> {
        None
    }

    /// Whether nobody can listen in on the way to `address`: a token goes nowhere else. For a
    /// transport over a network that is so with TLS, and on this very host.
    fn is_private(&self, address: &str, tls: &Tls) -> bool {
        let (url, secure) = resolve(address, tls);
        let here = |host: &str| broker_tls::client::is_loopback(host);
        secure || endpoint(&url).is_ok_and(|endpoint| endpoint.uri().host().is_some_and(here))
    }
}

/// TCP, with TLS to an address that begins with `https://`, and to one without a scheme if there is
/// anything in the settings of TLS.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

#[async_trait::async_trait]
impl Dial for Tcp {
    async fn dial(&self, address: &str, tls: &Tls) -> Result<Channel, tonic::transport::Error> {
        let (url, secure) = resolve(address, tls);
        broker_tls::client::connect(endpoint(&url)?, secure.then(|| tls.clone())).await
    }

    async fn look_up(&self, address: &str) -> Option<Vec<String>> {
        let (url, _) = resolve(address, &Tls::default());
        let endpoint = endpoint(&url).ok()?;
        let host = endpoint.uri().host()?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        // This host has several addresses, and the broker may listen on one of them.
        if broker_tls::client::is_loopback(host) || bare.parse::<IpAddr>().is_ok() {
            return None;
        }
        let port = endpoint.uri().port_u16().unwrap_or(80);
        let found = tokio::net::lookup_host((host, port)).await.ok()?;
        let places: BTreeSet<String> = found.map(|place| place.to_string()).collect();
        Some(places.into_iter().collect())
    }
}

/// The URL for tonic, and whether TLS is to carry it.
pub(crate) fn resolve(address: &str, tls: &Tls) -> (String, bool) {
    match address.split_once("://") {
        Some(("https", rest)) => (format!("http://{rest}"), true),
        Some(_) => (address.to_owned(), false),
        None => (format!("http://{address}"), tls.is_wanted()),
    }
}

/// The settings that every connection to a broker should have, whatever carries it.
///
/// `connect`, never `connect_lazy`: tonic would dial again behind our back.
pub fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(address.to_owned())?
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true)
        .executor(Together::default()))
}

pub(crate) type Client = DriversClient<InterceptedService<Channel, Bearer>>;

/// Where our token comes from.
#[derive(Clone, Debug)]
pub(crate) enum Credentials {
    None,
    Token(Token),
    /// Read for every session: it may be replaced at any time.
    File(PathBuf),
}

impl Credentials {
    pub(crate) fn bearer(&self) -> Result<Bearer, String> {
        match self {
            Self::None => Ok(Bearer(None)),
            Self::Token(token) => Bearer::new(token),
            Self::File(file) => {
                let place = file.display();
                // A line that lies in memory, mostly: to have another thread read it would cost more,
                // and thousands of drivers of a process may return at once.
                let text = fs::read_to_string(file);
                let text =
                    text.map_err(|error| format!("cannot read the token in {place}: {error}"))?;
                Bearer::new(&Token::new(text.trim())).map_err(|why| format!("{why} (in {place})"))
            }
        }
    }
}

/// Says who we are on every call.
#[derive(Clone)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    fn new(token: &Token) -> Result<Self, String> {
        if token.expose().is_empty() {
            return Err("the token is empty".to_owned());
        }
        let mut value: MetadataValue<Ascii> = format!("Bearer {}", token.expose())
            .parse()
            .map_err(|_| "the token holds characters that no header can carry".to_owned())?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }

    pub(crate) fn client(&self, channel: Channel) -> Client {
        DriversClient::with_interceptor(channel, self.clone())
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_a_file_is_read_whenever_it_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let credentials = Credentials::File(file.clone());
        let bearer = || credentials.bearer().map(|bearer| bearer.0.unwrap());
        assert!(bearer().unwrap_err().starts_with("cannot read the token in "));
        for (content, header) in [("one\n", "Bearer one"), ("two", "Bearer two")] {
            std::fs::write(&file, content).unwrap();
            assert_eq!(bearer().unwrap(), header);
        }
        std::fs::write(&file, "\n").unwrap();
        assert!(bearer().unwrap_err().starts_with("the token is empty (in "));
    }

    #[test]
    fn only_tls_and_this_host_are_private() {
        let (none, some) = (Tls::default(), Tls { ca: Some("ca".into()), ..Tls::default() });
        for (address, tls, private) in [
            ("127.0.0.1:1", &none, true),
            ("http://[::1]:1", &none, true),
            ("localhost:1", &none, true),
            ("one:1", &some, true),
            ("https://one:1", &none, true),
            ("one:1", &none, false),
            ("http://one:1", &some, false),
            ("10.0.0.1:1", &none, false),
            ("0.0.0.0:1", &none, false),
            ("localhost.example:1", &none, false),
            ("localhost@one:1", &none, false),
            ("127.0.0.1.example:1", &none, false),
        ] {
            assert_eq!(Tcp.is_private(address, tls), private, "{address}");
        }
    }

    #[test]
    fn the_scheme_decides_on_tls_and_without_one_the_settings_do() {
        let (none, some) = (Tls::default(), Tls { ca: Some("ca".into()), ..Tls::default() });
        for (address, tls, url, secure) in [
            ("one:1", &none, "http://one:1", false),
            ("one:1", &some, "http://one:1", true),
            ("http://one:1", &some, "http://one:1", false),
            ("https://one:1", &none, "http://one:1", true),
        ] {
            assert_eq!(resolve(address, tls), (url.to_owned(), secure), "{address}");
        }
    }
}
