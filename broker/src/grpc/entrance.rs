//! What every call passes, whatever the service: who is it, and may they call this method at all?

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
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

impl Entrance {
    /// Takes the credentials off the request: no door needs them, and nobody behind this one can print
    /// them.
    pub(super) fn check<B>(&self, peer: &Peer, request: &mut http::Request<B>) -> Passage {
        let authorization = request.headers_mut().remove(http::header::AUTHORIZATION);
        let method = request.uri().path();
        let good = peer.certificate.as_ref();
        let good = good.map_or(Ok(()), |cert| self.auth.looks_good(cert, &peer.verified));
        let at = good.and_then(|()| {
            Auth::without_token(peer.connection, peer.address.clone(), peer.certificate.clone())
        });
        let at = match at {
            Ok(caller) => caller,
            Err(denied) => {
                let nobody = Caller::anonymous(peer.connection, peer.address.clone());
                return Passage::Now(Err(self.turn_away(method, &nobody, &denied)));
            }
        };
        let Some(mut authorization) = authorization else {
            return Passage::Now(self.pass(method, Arc::new(at), &peer.standing));
        };
        authorization.set_sensitive(true);
        let known = self.auth.with_known_token(&at, authorization.as_bytes(), &peer.shown);
        if let Some(caller) = known {
            return Passage::Now(self.pass(method, caller, &peer.standing));
        }
        let (this, shown, standing) = (self.clone(), peer.shown.clone(), peer.standing.clone());
        let method = method.to_owned();
        let recognised = async move {
            match this.auth.with_token(at.clone(), authorization.as_bytes(), &shown).await {
                Ok(caller) => this.pass(&method, Arc::new(caller), &standing),
                Err(denied) => Err(this.turn_away(&method, &at, &denied)),
            }
        };
        Passage::Later(recognised.boxed())
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

/// Who sent this: every call that comes to a door has passed the entrance.
pub(super) fn caller<T>(request: &Request<T>) -> Result<Arc<Caller>, Status> {
    let caller = request.extensions().get().cloned();
    caller.ok_or_else(|| Status::internal("a call came in beside the entrance"))
}
