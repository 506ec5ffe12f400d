//! Leads every call of a connection past the entrance to its door.
//!
//! On hyper itself: the layers and the router of tonic's own server cost a unary call about as much as all
//! that the broker does for it. What is called seldom still goes through that router.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use broker_proto::v1::{drivers_server, machines_server};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Map, ready},
};
use hyper::body::Incoming;
use tokio::time;
use tonic::{
    Status,
    body::Body,
    codegen::{
        Service as _,
        http::{Request, Response},
    },
    service::Routes,
};

use super::{
    Entrance, Peer,
    drivers::DriversDoor,
    entrance::{Passage, Passed},
    historic::answer_to_historic_names,
    machines::Machines,
    reply::Reply,
    timeout,
};
use crate::auth::Caller;

/// The way in, and all doors.
pub struct Front {
    pub(super) entrance: Entrance,
    pub(super) machines: Arc<Machines>,
    pub(super) drivers: DriversDoor,
    pub(super) others: Routes,
}

/// Receives the calls of one connection.
#[derive(Clone, Debug)]
pub struct Usher {
    pub front: Arc<Front>,
    pub peer: Peer,
}

type Answering = BoxFuture<'static, Response<Reply>>;

impl hyper::service::Service<Request<Incoming>> for Usher {
    type Response = Response<Reply>;
    type Error = Infallible;
    type Future = Map<Answering, fn(Response<Reply>) -> Result<Response<Reply>, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        answer_to_historic_names(&mut request);
        match self.front.entrance.check(&self.peer, &mut request) {
            Passage::Now(passed) => self.front.lead(passed, request),
            Passage::Later(passing) => {
                let front = Arc::clone(&self.front);
                async move { front.lead(passing.await, request).await }.boxed()
            }
        }
        .map(Ok)
    }
}

/// What a service of tonic's answers.
fn from(
    service: impl Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
) -> Answering {
    service.map(|Ok(answer)| answer.map(Reply::from)).boxed()
}

/// Ends with the caller's time, if it said how long it waits. Calls about machines have their own way to
/// do so, which tells how far they came.
fn within(patience: Option<Duration>, answering: Answering) -> Answering {
    let Some(patience) = patience else { return answering };
    let answer = time::timeout(patience, answering);
    let late = || Status::deadline_exceeded("no answer within the time given").into_http();
    answer.map(move |answer| answer.unwrap_or_else(|_| late())).boxed()
}

impl Front {
    fn lead(&self, passed: Passed, request: Request<Incoming>) -> Answering {
        let caller = match passed {
            Ok(caller) => caller,
            Err(status) => return ready(status.into_http()).boxed(),
        };
        if method(&request, machines_server::SERVICE_NAME).is_some() {
            self.machines.answer(request, caller)
        } else if method(&request, drivers_server::SERVICE_NAME).is_some() {
            self.drivers.answer(request, caller)
        } else {
            let patience = timeout::of(request.headers()).unwrap_or_default();
            within(patience, from(self.others.clone().call(of(caller, request))))
        }
    }
}

/// The method, if it is one of this service.
pub(super) fn method<'a>(request: &'a Request<Incoming>, service: &str) -> Option<&'a str> {
    let path = request.uri().path().strip_prefix('/')?;
    path.strip_prefix(service)?.strip_prefix('/')
}

/// The request, so that tonic carries who it is from to the door.
fn of(caller: Arc<Caller>, mut request: Request<Incoming>) -> Request<Incoming> {
    request.extensions_mut().insert(caller);
    request
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Front")
    }
}
