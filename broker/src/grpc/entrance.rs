//! What every call passes, whatever the service: who is it, and may they call this method at all?

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use hyper::header::{AUTHORIZATION, HeaderValue};
use tonic::{Request, Status, codegen::http};

use super::{Peer, status};
use crate::{
    audit::{Audit, Event, Outcome, Record},
    auth::{Auth, Caller, Denied, Need, need},
    bounds::{Bounds, Standing, Taken},
    metrics::Metrics,
};

/// Lets in who [`Auth`] lets in, and tells the doors who it is.
#[derive(Clone, Debug)]
pub struct Entrance {
    pub auth: Auth,
    pub audit: Audit,
    pub metrics: Metrics,
    pub bounds: Bounds,
}

/// Who a call is from, or what the caller is told.
pub(super) type Passed = Result<Arc<Caller>, Status>;

/// What becomes of a call.
pub(super) enum Passage {
    Now(Passed),
    /// Somebody else is asked whose token it is.
    Later(BoxFuture<'static, Passed>),
}

/// Who is not let in, or not yet.
enum Stranger {
    /// For good, as far as this call goes.
    Denied(Denied),
    /// Somebody else may know whose token it is.
    Shows(HeaderValue),
}

impl Entrance {
    /// Takes the credentials off the request: no door needs them, and nobody behind this one can print
    /// them.
    pub(super) fn check<B>(&self, peer: &Peer, request: &mut http::Request<B>) -> Passage {
        let authorization = request.headers_mut().remove(AUTHORIZATION);
        let method = request.uri().path();
        match self.recognise(peer, authorization) {
            Ok(caller) => Passage::Now(self.pass(method, caller, &peer.standing)),
            Err(Stranger::Denied(denied)) => {
                Passage::Now(Err(self.turn_away(method, &peer.nobody(), &denied)))
            }
            Err(Stranger::Shows(token)) => {
                Passage::Later(self.clone().ask(peer.clone(), token, method.to_owned()).boxed())
            }
        }
    }

    fn recognise(
        &self,
        peer: &Peer,
        authorization: Option<HeaderValue>,
    ) -> Result<Arc<Caller>, Stranger> {
        if let Some(certificate) = &peer.certificate {
            self.auth.looks_good(certificate, &peer.verified)?;
        }
        let Some(mut token) = authorization else { return Ok(Arc::new(peer.proves()?)) };
        let known = self.auth.with_known_token(|| peer.proves(), token.as_bytes(), &peer.shown);
        token.set_sensitive(true);
        Ok(known.ok_or_else(|| Stranger::Shows(token))??)
    }

    async fn ask(self, peer: Peer, token: HeaderValue, method: String) -> Passed {
        let turn_away = |who: &Caller, denied| self.turn_away(&method, who, &denied);
        let at = peer.proves().map_err(|denied| turn_away(&peer.nobody(), denied))?;
        match self.auth.with_token(at.clone(), token.as_bytes(), &peer.shown).await {
            Ok(caller) => self.pass(&method, Arc::new(caller), &peer.standing),
            Err(denied) => Err(turn_away(&at, denied)),
        }
    }

    fn pass(&self, method: &str, caller: Arc<Caller>, standing: &Standing) -> Passed {
        let admitted = match need(method) {
            Some(need) => self.auth.admits(&caller, need).map(|()| need),
            None => Err(Denied::NoSuchMethod),
        };
        match admitted {
            Ok(need) => {
                // Who only asks how we are has not come to stay, unless all may do everything.
                if need != Need::Nothing || !self.auth.has_policy() {
                    let counts_as = self.auth.counts_as(&caller);
                    standing
                        .settle(counts_as)
                        .map_err(|taken| self.too_many_connections(&caller, &taken))?;
                }
                Ok(caller)
            }
            Err(denied) => Err(self.turn_away(method, &caller, &denied)),
        }
    }

    fn turn_away(&self, method: &str, caller: &Caller, why: &Denied) -> Status {
        self.metrics.caller_denied(why);
        if self.bounds.refusals.tell(caller) {
            tracing::info!(?caller, method, %why, "caller denied");
            self.audit.write(|| {
                Record::new(Event::CallerDenied, Outcome::Denied)
                    .by(caller)
                    .saying(format!("{method}: {why}"))
            });
        }
        status::of_denied_caller(why)
    }

    fn too_many_connections(&self, caller: &Caller, taken: &Taken) -> Status {
        if self.bounds.refusals.tell(caller) {
            tracing::warn!(?caller, why = %taken, "connection refused");
        }
        status::of_taken("connections", taken)
    }
}

impl From<Denied> for Stranger {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

/// Who sent this: every call that comes to a door has passed the entrance.
pub(super) fn caller<T>(request: &Request<T>) -> Result<Arc<Caller>, Status> {
    let caller = request.extensions().get().cloned();
    caller.ok_or_else(|| Status::internal("a call came in beside the entrance"))
}
