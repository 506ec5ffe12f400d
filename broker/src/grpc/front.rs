//! Leads every call of a connection past the entrance to its door.
//!
//! On hyper itself: the layers and the router of tonic's own server cost a unary call about as much as all
//! that the broker does for it. What is called seldom still goes through that router.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use broker_proto::passing::{
    drivers_server::{self, DriversServer},
    machines_server::{self, MachinesServer},
};
use futures::{
    FutureExt as _,
    future::{BoxFuture, ready},
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
    Entrance, Peer, drivers::DriversDoor, entrance::Passage, historic::answer_to_historic_names,
    machines::Machines, timeout,
};

/// The way in, and all doors.
pub struct Front {
    pub(super) entrance: Entrance,
    pub(super) door: Arc<Machines>,
    /// The same door, for all but the calls about one machine.
    pub(super) machines: MachinesServer<Machines>,
    pub(super) drivers: DriversServer<DriversDoor>,
    pub(super) others: Routes,
}

/// Where the calls of one connection are received.
#[derive(Clone, Debug)]
pub struct Desk {
    pub front: Arc<Front>,
    pub peer: Peer,
}

type Answering = BoxFuture<'static, Result<Response<Body>, Infallible>>;

impl hyper::service::Service<Request<Incoming>> for Desk {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        let request = answer_to_historic_names(request);
        match self.front.entrance.check(&self.peer, request) {
            Passage::Now(passed) => self.front.lead(passed),
            Passage::Later(passing) => {
                let front = Arc::clone(&self.front);
                async move { front.lead(passing.await).await }.boxed()
            }
        }
    }
}

/// Ends with the caller's time, if it said how long it waits. Calls about machines have their own way to
/// do so, which tells how far they came.
fn within(patience: Option<Duration>, answering: Answering) -> Answering {
    let Some(patience) = patience else { return answering };
    let answer = time::timeout(patience, answering);
    let late = || Status::deadline_exceeded("no answer within the time given").into_http();
    answer.map(move |answer| answer.unwrap_or_else(|_| Ok(late()))).boxed()
}

impl Front {
    fn lead(&self, passed: Result<Request<Incoming>, Status>) -> Answering {
        let request = match passed {
            Ok(request) => request,
            Err(status) => return ready(Ok(status.into_http())).boxed(),
        };
        let patience = || timeout::of(request.headers()).ok().flatten();
        let path = request.uri().path();
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        match service {
            machines_server::SERVICE_NAME => match self.door.unary(method) {
                Some(call) => call.answer(request).map(Ok).boxed(),
                None => self.machines.clone().call(request),
            },
            drivers_server::SERVICE_NAME => within(patience(), self.drivers.clone().call(request)),
            _ => within(patience(), self.others.clone().call(request).boxed()),
        }
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Front")
    }
}
