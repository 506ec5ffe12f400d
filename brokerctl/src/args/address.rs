//! Where a broker listens.

use std::{fmt, net::IpAddr, str::FromStr};

use tonic::codegen::http::uri::Authority;

const DEFAULT_PORT: u16 = 5000;

/// Where a broker listens: always a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(Authority);

impl Address {
    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.0)
    }

    /// Whether it is this very host, where nobody listens in on the way.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.0.host().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Default for Address {
    /// Where `machine-broker dev` listens.
    fn default() -> Self {
        Self(Authority::from_static("127.0.0.1:5000"))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = match text.split_once("://") {
            None => text,
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err("this brokerctl does not speak TLS yet".into()),
            Some((scheme, _)) => return Err(format!("scheme {scheme:?} is not known, use http")),
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
                Ok(Self(full.parse().map_err(|_| expected())?))
            }
            _ if authority.port_u16().is_some_and(|port| port > 0) => Ok(Self(authority)),
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
        for text in wrong.into_iter().chain(["me@host:5000", "ftp://host", "https://host"]) {
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
