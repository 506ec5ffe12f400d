//! Where a broker listens.

use std::{fmt, net::IpAddr, str::FromStr};

use tonic::codegen::http::uri::Authority;

const DEFAULT_PORT: u16 = 5000;

/// Where a broker listens: always a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    authority: Authority,
    scheme: Option<Scheme>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl Address {
    /// For tonic, which need not know of TLS.
    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// Whether it says of itself that TLS is spoken there, or that it is not.
    pub(crate) fn says_tls(&self) -> Option<bool> {
        self.scheme.map(|scheme| scheme == Scheme::Https)
    }

    /// Whether it is this very host, where nobody listens in on the way.
    pub(crate) fn is_loopback(&self) -> bool {
        broker_tls::client::is_loopback(self.authority.host())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Some(Scheme::Https) => write!(f, "https://{}", self.authority),
            Some(Scheme::Http) | None => self.authority.fmt(f),
        }
    }
}

impl Default for Address {
    /// Where `machine-broker dev` listens.
    fn default() -> Self {
        Self { authority: Authority::from_static("127.0.0.1:5000"), scheme: None }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = match text.split_once("://") {
            None => (None, text),
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some((scheme, _)) => {
                return Err(format!("scheme {scheme:?} is not known, use https or http"));
            }
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // What people type for "here", and addresses of version 6 in their bare form.
        let full = match rest.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ if rest.starts_with(':') => format!("127.0.0.1{rest}"),
            _ => rest.to_owned(),
        };
        let expected = || "expected HOST or HOST:PORT".to_owned();
        let authority: Authority = full.parse().map_err(|_| expected())?;
        let after_host = authority.as_str().strip_prefix(authority.host());
        match (authority.host(), after_host) {
            ("", _) | (_, None) => Err(expected()),
            (host, Some("")) => {
                let full = format!("{host}:{DEFAULT_PORT}");
                Ok(Self { authority: full.parse().map_err(|_| expected())?, scheme })
            }
            _ if authority.port_u16().is_some_and(|port| port > 0) => {
                Ok(Self { authority, scheme })
            }
            _ => Err("the port is not a number from 1 to 65535".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<String, String> {
        text.parse::<Address>().map(|address| address.to_string())
    }

    #[test]
    fn an_address_needs_neither_scheme_nor_port() {
        for (text, expected) in [
            ("127.0.0.1:5000", "127.0.0.1:5000"),
            ("broker.example", "broker.example:5000"),
            ("http://broker.example:7000/", "broker.example:7000"),
            ("https://broker.example", "https://broker.example:5000"),
            (":7000", "127.0.0.1:7000"),
            ("::1", "[::1]:5000"),
            ("[::1]", "[::1]:5000"),
            ("[::1]:7000", "[::1]:7000"),
        ] {
            assert_eq!(address(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_dialled_is_refused() {
        let wrong = ["", "http://", "a b", "host:", "host:0", "host:x", "host:70000", "host/path"];
        for text in wrong.into_iter().chain(["me@host:5000", "ftp://host", "https://"]) {
            assert!(address(text).is_err(), "{text:?} gave {:?}", address(text));
        }
    }

    #[test]
    fn this_host_is_known_by_its_names() {
        for (text, here) in
            [("127.0.0.9", true), ("[::1]:7000", true), ("localhost", true), ("10.0.0.1", false)]
        {
            assert_eq!(text.parse::<Address>().expect("good").is_loopback(), here, "{text}");
        }
    }
}
