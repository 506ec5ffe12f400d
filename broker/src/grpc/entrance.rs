//! What every call passes, whatever the service: who is it, and may they call this method at all?

use std::future::{Ready, ready};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Either},
};
use tonic::{Request, Status, body::Body, codegen::http};
use tower::{BoxError, filter::AsyncPredicate};

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

type Passed = Result<http::Request<Body>, BoxError>;

impl AsyncPredicate<http::Request<Body>> for Entrance {
    /// Only a token may have to be asked for elsewhere.
    type Future = Either<Ready<Passed>, BoxFuture<'static, Passed>>;
    type Request = http::Request<Body>;

    fn check(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let Some(peer) = request.extensions().get::<Peer>().cloned() else {
            let status = Status::internal("the connection has no number");
            return Either::Left(ready(Err(status.into())));
        };
        let Peer { connection, address, certificate, verified, shown, standing } = peer;
        let good = certificate
            .as_ref()
            .map_or(Ok(()), |certificate| self.auth.looks_good(certificate, &verified));
        let at = good.and_then(|()| Auth::without_token(connection, address.clone(), certificate));
        let at = match at {
            Ok(caller) => caller,
            Err(denied) => {
                let nobody = Caller::anonymous(connection, address);
                let status = self.turn_away(&request, &nobody, &denied);
                return Either::Left(ready(Err(status.into())));
            }
        };
        // Taken out: no door needs it, and nobody behind this one can print it.
        let Some(mut authorization) = request.headers_mut().remove(http::header::AUTHORIZATION)
        else {
            return Either::Left(ready(self.pass(request, at, &standing)));
        };
        authorization.set_sensitive(true);
        let this = self.clone();
        let recognised = async move {
            match this.auth.with_token(at.clone(), authorization.as_bytes(), &shown).await {
                Ok(caller) => this.pass(request, caller, &standing),
                Err(denied) => Err(this.turn_away(&request, &at, &denied).into()),
            }
        };
        Either::Right(recognised.boxed())
    }
}

impl Entrance {
    fn pass(
        &self,
        mut request: http::Request<Body>,
        caller: Caller,
        standing: &Standing,
    ) -> Passed {
        let admitted = match need(request.uri().path()) {
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
                request.extensions_mut().insert(caller);
                Ok(request)
            }
            Err(denied) => Err(self.turn_away(&request, &caller, &denied).into()),
        }
    }

    fn turn_away(&self, request: &http::Request<Body>, caller: &Caller, why: &Denied) -> Status {
        self.metrics.caller_denied(why);
        let method = request.uri().path();
        if self.bounds.refusals.tell(caller) {
            tracing::info!(?caller, method, %why, "caller denied");
            self.audit.write(|| {
                Record::new(Event::CallerDenied, Outcome::Denied)
                    .by(caller)
                    .saying(&format!("{method}: {why}"))
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
pub(super) fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| Status::internal("a call came in beside the entrance"))
}
