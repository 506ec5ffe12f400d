//! Where a request comes from, as far as a browser tells. Pure.
//!
//! Cookies and client certificates go along with whatever a browser is made to ask for. So what changes
//! something is only taken from a page of ours, and where no credentials are needed at all, only
//! what was asked under an address of ours.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, header, uri::Authority};

/// Only a script of ours can send it: from another origin a browser would ask for leave first, which
/// nobody gets.
pub(super) const STEERING: HeaderName = HeaderName::from_static("x-machine-broker");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a page of ours sent this; if not, what gives it away.
///
/// Browsers say `Sec-Fetch-Site` where that can be trusted (HTTPS and loopback), and with everything but
/// GET an `Origin`. What is said must be right, and something must be said.
pub(super) fn is_ours(headers: &HeaderMap, secure: bool) -> Result<(), &'static str> {
    let site = headers.get(FETCH_SITE);
    if site.is_some_and(|site| site != "same-origin") {
        return Err("the header Sec-Fetch-Site is not same-origin");
    }
    match headers.get(header::ORIGIN) {
        Some(origin) if is_host(origin.as_bytes(), headers, secure) => Ok(()),
        Some(_) => Err("the header Origin is not this address"),
        None if site.is_some() => Ok(()),
        None => Err("there is neither Sec-Fetch-Site nor Origin in the headers"),
    }
}

/// Whether something is asked that no form and no link can ask.
pub(super) fn is_scripted(headers: &HeaderMap) -> Result<(), &'static str> {
    let content = headers.get(header::CONTENT_TYPE).map(|content| content.as_bytes());
    // Without parameters, if any: there is nothing that they could say.
    let content = content.and_then(|content| content.split(|byte| *byte == b';').next());
    if content.is_none_or(|content| content.trim_ascii() != b"application/json") {
        return Err("the content type is not application/json");
    }
    if !headers.contains_key(STEERING) {
        return Err("the header X-Machine-Broker is missing");
    }
    Ok(())
}

/// Whether this was asked under an address, or as `localhost`.
///
/// Any other name may be that of a foreign site which had it lead to us, to have its own page read what
/// we say (DNS rebinding). No name leads from one address to another.
pub(super) fn is_addressed(headers: &HeaderMap) -> Result<(), &'static str> {
    let host = host(headers).ok_or("there is not one Host in the headers")?;
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    if name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    Err("the header Host is neither localhost nor an IP address, and without a policy (--policy) \
         no other name is answered to")
}

/// The port that we were asked under, if it was said.
pub(super) fn port(headers: &HeaderMap) -> Option<u16> {
    host(headers)?.port_u16()
}

fn is_host(origin: &[u8], headers: &HeaderMap, secure: bool) -> bool {
    let Ok(origin) = str::from_utf8(origin) else { return false };
    let authority = match origin.split_once("://") {
        Some(("https", authority)) => authority,
        // Somebody in front of us may have spoken TLS, but not the other way round.
        Some(("http", authority)) if !secure => authority,
        _ => return false,
    };
    host(headers).is_some_and(|host| host.as_str().eq_ignore_ascii_case(authority))
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?;
    if hosts.next().is_some() {
        return None;
    }
    let host: Authority = host.to_str().ok()?.parse().ok()?;
    (!host.as_str().contains('@')).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().expect("a value"))
        };
        of.iter().map(pair).collect()
    }

    #[test]
    fn a_page_of_ours_is_known_by_what_the_browser_says() {
        let host = ("host", "broker:8080");
        let (ours, theirs) = (("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site"));
        let origin = |origin| ("origin", origin);
        for (right, said) in [
            (true, vec![host, ours]),
            (true, vec![host, ours, origin("http://broker:8080")]),
            (true, vec![host, origin("http://broker:8080")]),
            (true, vec![host, origin("https://Broker:8080")]),
            (false, vec![host]),
            (false, vec![host, theirs]),
            (false, vec![host, theirs, origin("http://broker:8080")]),
            (false, vec![host, ("sec-fetch-site", "same-site")]),
            (false, vec![host, ("sec-fetch-site", "none")]),
            (false, vec![host, ours, origin("http://evil.example")]),
            (false, vec![host, origin("http://evil.example")]),
            (false, vec![host, origin("http://broker:8081")]),
            (false, vec![host, origin("http://broker")]),
            (false, vec![host, origin("http://broker:8080.evil.example")]),
            (false, vec![host, origin("http://x@broker:8080")]),
            (false, vec![host, origin("broker:8080")]),
            (false, vec![host, origin("null")]),
            (false, vec![origin("http://broker:8080")]),
        ] {
            assert_eq!(is_ours(&headers(&said), false).is_ok(), right, "{said:?}");
        }
        let plain = headers(&[host, origin("http://broker:8080")]);
        assert!(
            is_ours(&plain, true).is_err(),
            "a page without TLS is not ours where there is TLS"
        );
        assert!(is_ours(&headers(&[host, origin("https://broker:8080")]), true).is_ok());
    }

    #[test]
    fn what_a_form_can_send_is_not_taken_for_a_script() {
        let header = ("x-machine-broker", "page");
        for (right, said) in [
            (true, vec![header, ("content-type", "application/json")]),
            (true, vec![header, ("content-type", "application/json; charset=utf-8")]),
            (false, vec![("content-type", "application/json")]),
            (false, vec![header]),
            (false, vec![header, ("content-type", "text/plain")]),
            (false, vec![header, ("content-type", "text/plain; application/json")]),
            (false, vec![header, ("content-type", "application/x-www-form-urlencoded")]),
            (false, vec![header, ("content-type", "multipart/form-data")]),
        ] {
            assert_eq!(is_scripted(&headers(&said)).is_ok(), right, "{said:?}");
        }
    }

    #[test]
    fn without_a_policy_only_addresses_and_localhost_are_answered_to() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "10.0.0.7"] {
            assert!(is_addressed(&headers(&[("host", host)])).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "x@127.0.0.1",
            "",
        ] {
            assert!(is_addressed(&headers(&[("host", host)])).is_err(), "{host}");
        }
        assert!(is_addressed(&HeaderMap::new()).is_err());
        let mut two = headers(&[("host", "localhost")]);
        two.append("host", "evil.example".parse().unwrap());
        assert!(is_addressed(&two).is_err());
    }
}
