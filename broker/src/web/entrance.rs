//! What every request of the admin port passes that is no probe and no plain file: who is it, and may
//! they look?
//!
//! Who it is, a bearer token says, or else the cookie of somebody who logged in, or else a client
//! certificate. As everywhere, a credential that is wrong is never taken for none.

use std::fmt::Write as _;

use axum::{
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use broker_secret::Sensitive;
use cookie::{Cookie, SameSite};

use super::{
    Web, login, origin,
    sessions::{Key, Sessions},
};
use crate::{
    audit::{Audit, Event, Outcome, Record},
    auth::{Auth, Caller, Denied, Need},
    bounds::Refusals,
    grpc::Peer,
    metrics::Metrics,
};

/// Longer than any cookie of ours.
const COOKIE: usize = 256;

/// Lets in who [`Auth`] lets in, and tells the routes who it is.
#[derive(Clone, Debug)]
pub(super) struct Entrance {
    pub(super) auth: Auth,
    pub(super) audit: Audit,
    pub(super) metrics: Metrics,
    pub(super) refusals: Refusals,
    pub(super) sessions: Sessions,
}

/// Somebody who was let in.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    pub(super) caller: Caller,
    /// `None` for who came without logging in.
    pub(super) session: Option<Key>,
}

/// Somebody who was not, and why.
pub(super) struct Stranger {
    caller: Box<Caller>,
    why: Denied,
}

pub(super) async fn let_in(State(web): State<Web>, request: Request, next: Next) -> Response {
    let (mut asked, body) = request.into_parts();
    let Some(peer) = peer(&asked) else { return no_peer() };
    match web.entrance.recognise(peer, &asked.headers).await {
        Ok(visitor) => {
            // No route needs it, and what is not there cannot be shown.
            asked.headers.remove(header::AUTHORIZATION);
            asked.extensions.insert(visitor);
            next.run(Request::from_parts(asked, body)).await
        }
        Err(stranger) => web.entrance.turn_away(&asked, &stranger),
    }
}

/// Who is at the other end of the connection.
pub(super) fn peer(asked: &Parts) -> Option<Peer> {
    asked.extensions.get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.clone())
}

pub(super) fn no_peer() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, "the connection has no number\n").into_response()
}

impl Stranger {
    pub(super) fn new(caller: Caller, why: Denied) -> Self {
        Self { caller: Box::new(caller), why }
    }
}

impl Entrance {
    async fn recognise(&self, peer: Peer, headers: &HeaderMap) -> Result<Visitor, Stranger> {
        let shown = peer.shown.clone();
        let at = connected(peer)?;
        if !self.auth.has_policy() {
            return match origin::is_addressed(headers) {
                Ok(()) => Ok(Visitor { caller: at, session: None }),
                Err(why) => Err(Stranger::new(at, Denied::CrossSite(why))),
            };
        }
        let session = self.session(headers);
        let authorization = headers.get(header::AUTHORIZATION);
        let visitor = match (authorization, session) {
            (Some(authorization), _) => {
                let caller =
                    self.auth.with_token(at.clone(), authorization.as_bytes(), &shown).await;
                let caller = caller.map_err(|denied| Stranger::new(at, denied))?;
                Visitor { caller, session: None }
            }
            (None, Some(key)) => match self.sessions.find(key) {
                // Logged in from elsewhere, perhaps, but asking from here.
                Some(caller) => {
                    Visitor { caller: caller.moved(at.connection, at.address), session }
                }
                None => return Err(Stranger::new(at, Denied::LoggedOut)),
            },
            (None, None) => Visitor { caller: at, session: None },
        };
        let caller = &visitor.caller;
        let holds = self.auth.recheck(caller).await;
        if let (Err(_), Some(key)) = (&holds, session) {
            self.sessions.end(key);
        }
        match holds.and_then(|()| self.auth.admits(caller, Need::Read)) {
            Ok(()) => Ok(visitor),
            Err(denied) => Err(Stranger::new(visitor.caller, denied)),
        }
    }

    /// Whether browsers come by TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.auth.tls().is_some()
    }

    /// Whether an operator may steer from here. Without a policy nobody may.
    pub(super) fn may_steer(&self, caller: &Caller) -> Result<(), Denied> {
        if !self.auth.has_policy() {
            return Err(Denied::NoCredentials);
        }
        self.auth.admits(caller, Need::Steer)
    }

    /// Returns once somebody may no longer look.
    pub(super) async fn revoked(self, visitor: Visitor) {
        if !self.auth.has_policy() {
            return std::future::pending().await;
        }
        let caller = &visitor.caller;
        let why = self.auth.revoked(caller, |auth| auth.admits(caller, Need::Read)).await;
        tracing::info!(?caller, %why, "events ended: their reader may no longer have them");
    }

    /// Whether somebody who logged in still is. Says that they are there.
    pub(super) fn is_logged_in(&self, visitor: &Visitor) -> bool {
        visitor.session.is_none_or(|key| self.sessions.find(key).is_some())
    }

    /// The session that a browser shows, be it one or not.
    pub(super) fn session(&self, headers: &HeaderMap) -> Option<Key> {
        let name = self.cookie_name(headers);
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
        let mut cookies = cookies.flat_map(Cookie::split_parse).filter_map(Result::ok);
        let ours = cookies.find(|cookie| cookie.name() == name)?;
        Some(Key::of(ours.value()))
    }

    /// Has the browser keep this; with nothing, forget what it kept.
    pub(super) fn set_cookie(
        &self,
        headers: &HeaderMap,
        secret: Option<&Sensitive>,
    ) -> HeaderValue {
        let value = secret.and_then(Sensitive::as_str).unwrap_or_default();
        // Without a date: it goes with the browser, if not before.
        let mut cookie = Cookie::build((self.cookie_name(headers), value))
            .path("/")
            .http_only(true)
            .same_site(SameSite::Strict)
            .secure(self.has_tls())
            .build();
        if secret.is_none() {
            cookie.make_removal();
        }
        // All at once: a text that grows leaves copies behind.
        let mut text = String::with_capacity(COOKIE);
        write!(text, "{cookie}").expect("text grows");
        let text = Sensitive::new(text);
        let set = HeaderValue::from_maybe_shared(text.to_wire());
        let mut set = set.expect("our own words are a header");
        set.set_sensitive(true);
        set
    }

    /// Cookies do not know ports, so the name does: two brokers behind forwarded ports do not log each
    /// other's operators out.
    fn cookie_name(&self, headers: &HeaderMap) -> String {
        // Under that name a browser takes none that another host or a page without TLS would set.
        let prefix = if self.has_tls() { "__Host-" } else { "" };
        let port = origin::port(headers).map(|port| format!("-{port}")).unwrap_or_default();
        format!("{prefix}machine-broker{port}")
    }

    /// Says no, in the log and the audit log as well, as far as refusals may fill these. A person gets to
    /// see where to log in.
    pub(super) fn turn_away(&self, asked: &Parts, stranger: &Stranger) -> Response {
        let Stranger { caller, why } = stranger;
        self.metrics.caller_denied(why);
        let (method, path) = (&asked.method, asked.uri.path());
        if self.refusals.tell(caller) {
            tracing::info!(?caller, %method, path, %why, "caller denied");
            self.audit.write(|| {
                Record::new(Event::CallerDenied, Outcome::Denied)
                    .by(caller)
                    .saying(format!("{method} {path}: {why}"))
            });
        }
        let status = status(why, self.auth.has_policy());
        let mut response = if self.auth.has_policy() && wants_html(&asked.headers) {
            // Who just comes to the page need not hear that they showed nothing.
            match why {
                Denied::NoCredentials => login::page(status, ""),
                why => login::page(status, why),
            }
        } else if status == StatusCode::UNAUTHORIZED {
            (status, format!("{why}\n{WHAT_TO_DO}")).into_response()
        } else {
            (status, format!("{why}\n")).into_response()
        };
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"machine-broker\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        if matches!(why, Denied::LoggedOut) {
            let forget = self.set_cookie(&asked.headers, None);
            response.headers_mut().insert(header::SET_COOKIE, forget);
        }
        response
    }
}

const WHAT_TO_DO: &str = "send a header `Authorization: Bearer TOKEN`, show a client certificate, \
                          or open this address in a browser and log in\n";

pub(super) fn connected(peer: Peer) -> Result<Caller, Stranger> {
    let Peer { connection, address, certificate, .. } = peer;
    Auth::without_token(connection, address.clone(), certificate)
        .map_err(|denied| Stranger::new(Caller::anonymous(connection, address), denied))
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|accepts| accepts.to_str().ok());
    accepts.is_some_and(|accepts| accepts.contains("text/html"))
}

fn status(why: &Denied, has_policy: bool) -> StatusCode {
    match why {
        Denied::NotBearer | Denied::UnknownToken | Denied::NoCredentials | Denied::LoggedOut => {
            StatusCode::UNAUTHORIZED
        }
        Denied::NamelessCertificate | Denied::BadCertificate(_) => StatusCode::UNAUTHORIZED,
        Denied::CannotTell { .. } => StatusCode::SERVICE_UNAVAILABLE,
        Denied::Refused(_) | Denied::Moved => StatusCode::FORBIDDEN,
        Denied::CrossSite(_) if has_policy => StatusCode::FORBIDDEN,
        // It was meant for another host, as far as we can tell.
        Denied::CrossSite(_) => StatusCode::MISDIRECTED_REQUEST,
        Denied::NoSuchMethod => StatusCode::NOT_FOUND,
    }
}
