//! A place to dial. Pure.

use std::net::IpAddr;

use broker_tls::Tls;

use crate::dial::resolve;

/// An address, and whose name the certificate there has to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: String,
    /// Where it is not the name that is dialled.
    server_name: Option<String>,
}

impl Target {
    /// One that we were told to dial.
    pub(super) fn configured(address: &str) -> Self {
        Self { address: address.to_owned(), server_name: None }
    }

    /// Where `place`, a host and a port, leads to if we came to know it through this one: with TLS if
    /// this one has it. An IP address is in no certificate that was made before its pod was; whoever is
    /// there has to be the one that this one's certificate is about.
    pub(super) fn beside(&self, place: &str) -> Self {
        let (scheme, rest) = match self.address.split_once("://") {
            Some((scheme, rest)) => (format!("{scheme}://"), rest),
            None => (String::new(), self.address.as_str()),
        };
        let own = || Some(host(rest)).filter(|host| !is_ip(host)).map(str::to_owned);
        let inherits = is_ip(host(place));
        let server_name = inherits.then(|| self.server_name.clone().or_else(own)).flatten();
        Self { address: format!("{scheme}{place}"), server_name }
    }

    /// The settings of TLS for this place.
    pub(crate) fn tls(&self, tls: &Tls) -> Tls {
        let mut tls = tls.clone();
        // Whatever is set means that TLS is wanted, so nothing must be where it is not.
        if resolve(&self.address, &tls).1 {
            tls.server_name = tls.server_name.or_else(|| self.server_name.clone());
        }
        tls
    }
}

/// The host of an address, without its port.
fn host(address: &str) -> &str {
    let authority = address.split('/').next().unwrap_or_default();
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn is_ip(host: &str) -> bool {
    host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_inherits_the_scheme_and_an_ip_address_the_name() {
        for (origin, place, address, name) in [
            ("broker:5000", "10.0.0.1:5000", "10.0.0.1:5000", Some("broker")),
            ("https://b.ns.svc:5000", "10.0.0.1:1", "https://10.0.0.1:1", Some("b.ns.svc")),
            ("https://b:5000", "[fd00::1]:1", "https://[fd00::1]:1", Some("b")),
            ("https://b:5000", "other:1", "https://other:1", None),
            ("http://127.0.0.1:5000", "127.0.0.1:5001", "http://127.0.0.1:5001", None),
            ("https://10.0.0.9:5000", "10.0.0.1:1", "https://10.0.0.1:1", None),
        ] {
            let target = Target::configured(origin).beside(place);
            assert_eq!(target.address, address, "{place} beside {origin}");
            assert_eq!(target.server_name.as_deref(), name, "{place} beside {origin}");
        }
        let first = Target::configured("https://b:1").beside("10.0.0.1:1");
        assert_eq!(first.beside("10.0.0.2:1").server_name.as_deref(), Some("b"), "and so on");
    }

    #[test]
    fn a_name_is_asked_for_where_there_is_tls_and_what_is_configured_goes_before() {
        let ca = Tls { ca: Some("ca".into()), ..Tls::default() };
        let peer = Target::configured("https://b:1").beside("10.0.0.1:1");
        assert_eq!(peer.tls(&ca).server_name.as_deref(), Some("b"));
        let named = Tls { server_name: Some("mine".into()), ..ca };
        assert_eq!(peer.tls(&named).server_name.as_deref(), Some("mine"));
        let plain = Target::configured("b:1").beside("10.0.0.1:1");
        assert!(!plain.tls(&Tls::default()).is_wanted());
        let plain = Target::configured("http://b:1").beside("10.0.0.1:1");
        assert!(!plain.tls(&Tls::default()).is_wanted());
    }
}
