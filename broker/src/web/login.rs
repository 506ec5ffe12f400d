//! Logging in with a token, for browsers: they cannot send one with every request by themselves.

use std::{
    collections::HashMap,
    fmt::Display,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Form,
    extract::{FromRequest as _, Request, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use super::{
    BODY_WITHIN, Web,
    entrance::{Stranger, connected, no_peer, peer},
    origin,
    sessions::Full,
};
use crate::{
    audit::{Event, Outcome, Record},
    auth::{Caller, Denied, LastShown, Need},
};

/// How many attempts from one address may fail within a second before it is told to wait.
const FAILURES: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);
/// Of how many addresses that is known.
const ADDRESSES: usize = 10_000;

/// Attempts that failed of late, by the address that they came from. Cheap to clone: every clone is the
/// same.
///
/// Whoever has a token gets in whatever others do from the same address: it is too long to be guessed,
/// so nothing need be held up but those who are wrong again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Arc<Mutex<HashMap<Option<IpAddr>, Failed>>>);

#[derive(Clone, Copy, Debug)]
struct Failed {
    since: Instant,
    times: u32,
}

/// Wiped when it was looked at.
#[derive(Deserialize)]
struct Shown {
    token: Zeroizing<String>,
}

impl Failures {
    /// One more, by somebody at this address. Returns whether these are too many.
    fn count(&self, address: &str) -> bool {
        let now = Instant::now();
        let recent = |failed: &Failed| now.duration_since(failed.since) < SECOND;
        let ip = address.parse().map(|address: SocketAddr| address.ip().to_canonical()).ok();
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= ADDRESSES && !addresses.contains_key(&ip) {
            addresses.retain(|_, failed| recent(failed));
            if addresses.len() >= ADDRESSES {
                return true;
            }
        }
        let failed = addresses.entry(ip).or_insert(Failed { since: now, times: 0 });
        if !recent(failed) {
            *failed = Failed { since: now, times: 0 };
        }
        failed.times = failed.times.saturating_add(1);
        failed.times > FAILURES
    }
}

pub(super) async fn form(State(web): State<Web>) -> Response {
    if !web.entrance.auth.has_policy() {
        return Redirect::to("/").into_response();
    }
    page(StatusCode::OK, "")
}

pub(super) async fn log_in(State(web): State<Web>, request: Request) -> Response {
    let entrance = &web.entrance;
    if !entrance.auth.has_policy() {
        return Redirect::to("/").into_response();
    }
    let (asked, body) = request.into_parts();
    let Some(peer) = peer(&asked) else { return no_peer() };
    let at = match connected(peer) {
        Ok(caller) => caller,
        Err(stranger) => return entrance.turn_away(&asked, &stranger),
    };
    if let Err(why) = origin::is_ours(&asked.headers, entrance.has_tls()) {
        return entrance.turn_away(&asked, &Stranger::new(at, Denied::CrossSite(why)));
    }
    let request = Request::from_parts(asked.clone(), body);
    let token = match timeout(BODY_WITHIN, Form::<Shown>::from_request(request, &())).await {
        Ok(Ok(Form(shown))) => shown.token,
        Ok(Err(wrong)) => return page(wrong.status(), wrong.body_text()),
        Err(_) => return page(StatusCode::REQUEST_TIMEOUT, "that took too long"),
    };
    let address = Arc::clone(&at.address);
    let caller = match recognise(&web, at, token.trim()).await {
        Ok(caller) => caller,
        Err(stranger) => {
            let denied = entrance.turn_away(&asked, &stranger);
            return if web.failures.count(&address) { wait() } else { denied };
        }
    };
    drop(token);
    if let Some(before) = entrance.session(&asked.headers) {
        entrance.sessions.end(before);
    }
    let secret = match entrance.sessions.begin(caller.clone()) {
        Ok(secret) => secret,
        Err(Full) => {
            let why = "too many are logged in; try again later";
            return page(StatusCode::SERVICE_UNAVAILABLE, why);
        }
    };
    tracing::info!(?caller, "logged in");
    entrance.audit.write(|| Record::new(Event::LoggedIn, Outcome::Ok).by(&caller));
    let cookie = entrance.set_cookie(&asked.headers, Some(&secret));
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

pub(super) async fn log_out(State(web): State<Web>, request: Request) -> Response {
    let entrance = &web.entrance;
    let (asked, _) = request.into_parts();
    if let Err(why) = origin::is_ours(&asked.headers, entrance.has_tls()) {
        let Some(peer) = peer(&asked) else { return no_peer() };
        let nobody = Caller::anonymous(peer.connection, peer.address);
        return entrance.turn_away(&asked, &Stranger::new(nobody, Denied::CrossSite(why)));
    }
    if let Some(key) = entrance.session(&asked.headers) {
        entrance.sessions.end(key);
    }
    let forget = entrance.set_cookie(&asked.headers, None);
    ([(header::SET_COOKIE, forget)], Redirect::to("/")).into_response()
}

async fn recognise(web: &Web, at: Caller, token: &str) -> Result<Caller, Stranger> {
    let auth = &web.entrance.auth;
    let authorization = Zeroizing::new(["Bearer ", token].concat());
    let caller = auth.with_token(at.clone(), authorization.as_bytes(), &LastShown::default()).await;
    let caller = caller.map_err(|denied| Stranger::new(at, denied))?;
    match auth.admits(&caller, Need::Read) {
        Ok(()) => Ok(caller),
        Err(denied) => Err(Stranger::new(caller, denied)),
    }
}

fn wait() -> Response {
    let why = "too many attempts to log in failed; wait a second and try again";
    let page = page(StatusCode::TOO_MANY_REQUESTS, why);
    ([(header::RETRY_AFTER, "1")], page).into_response()
}

/// Where to log in, and why that is needed, if there is more to say than that it is.
pub(super) fn page(status: StatusCode, why: impl Display) -> Response {
    let why = as_text(&why.to_string());
    (status, Html(include_str!("login.html").replace("{why}", &why))).into_response()
}

/// Without anything that a browser would take for markup: an identity may hold it.
fn as_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_that_fails_too_often_has_to_wait_and_no_other_does() {
        let failures = Failures::default();
        for port in 0..FAILURES {
            assert!(!failures.count(&format!("192.0.2.1:{port}")));
        }
        assert!(failures.count("192.0.2.1:99"));
        assert!(failures.count("[::ffff:192.0.2.1]:99"));
        assert!(!failures.count("192.0.2.2:99"));
        assert!(!failures.count("[2001:db8::1]:99"));
        assert!(!failures.count("in memory"));
        tokio::time::advance(SECOND).await;
        assert!(!failures.count("192.0.2.1:99"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_addresses_are_known_and_old_ones_are_forgotten() {
        let failures = Failures::default();
        let known = || failures.0.lock().unwrap().len();
        for number in 0..ADDRESSES as u32 {
            assert!(!failures.count(&format!("{}:1", std::net::Ipv4Addr::from(number))));
        }
        assert!(failures.count("192.0.2.1:1"));
        assert!(!failures.count("0.0.0.7:1"), "it is known");
        assert_eq!(known(), ADDRESSES);
        tokio::time::advance(SECOND).await;
        assert!(!failures.count("192.0.2.1:1"));
        assert_eq!(known(), 1);
    }

    #[test]
    fn what_an_identity_holds_is_no_markup() {
        assert_eq!(as_text("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
    }
}
