//! Where the collector is.

use std::{fmt, str::FromStr};

/// As `http://HOST:PORT`. TLS is the business of a collector nearby, which knows where spans go next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no collector: write http://HOST:PORT (OTLP over gRPC, without TLS)")]
pub struct NotAnEndpoint(String);

impl Endpoint {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        let wrong = || NotAnEndpoint(text.to_owned());
        let endpoint =
            tonic::transport::Endpoint::from_shared(text.to_owned()).map_err(|_| wrong())?;
        let uri = endpoint.uri();
        // A password in it would be passed on and printed.
        let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        if uri.scheme_str() == Some("http") && plain {
            Ok(Self(text.to_owned()))
        } else {
            Err(wrong())
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_without_tls() {
        for right in ["http://127.0.0.1:4317", "http://collector.monitoring:4317/"] {
            assert_eq!(right.parse::<Endpoint>().unwrap().as_str(), right);
        }
        let wrong =
            ["", "127.0.0.1:4317", "https://collector:4317", "http://me:secret@host:1", "http:"];
        for wrong in wrong {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
