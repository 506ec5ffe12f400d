//! The controllers' door.

mod submissions;

use std::{sync::Arc, time::Duration};

use broker_proto::v1::{GetVolumeIDsResponse, ListMachinesResponse, machines_server};
use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, ready},
};
use hyper::{HeaderMap, Request, Response, body::Incoming, header::HeaderName};
use tonic::Status;

use self::submissions::Submissions;
use super::{
    MAX_MESSAGE, front::method, guard::while_allowed, messages::Messages, reply::Reply, status,
    timeout, unary,
};
use crate::{
    auth::{Act, Auth, Caller, Denied, Need, Subject},
    bounds::Bounds,
    dispatch::{Answered, Ask, ClassNames, Dispatcher, Error, Origin},
    driver::Verb,
    operation::{Answer, Payload, Trace},
};

#[derive(Clone, Debug)]
pub(super) struct Machines {
    dispatcher: Dispatcher,
    auth: Auth,
    bounds: Bounds,
    names: ClassNames,
}

impl Machines {
    pub(super) fn new(dispatcher: Dispatcher, auth: Auth, bounds: Bounds) -> Self {
        Self { dispatcher, auth, bounds, names: ClassNames::default() }
    }

    pub(super) fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        caller: Arc<Caller>,
    ) -> BoxFuture<'static, Response<Reply>> {
        let verb = match method(&request, machines_server::SERVICE_NAME).unwrap_or_default() {
            "CreateMachine" => Verb::Create,
            "InitializeMachine" => Verb::Initialize,
            "DeleteMachine" => Verb::Delete,
            "GetMachineStatus" => Verb::GetStatus,
            "ListMachines" => Verb::List,
            "GetVolumeIDs" => Verb::GetVolumeIds,
            "Submit" => {
                let answer = self.submit(request, caller);
                return ready(answer.unwrap_or_else(Status::into_http)).boxed();
            }
            _ => {
                return ready(Status::unimplemented("there is no such method").into_http()).boxed();
            }
        };
        // All else of the request is let go before anybody waits.
        let (time, origin) = (timeout::of(request.headers()), origin(request.headers(), caller));
        let answer = Arc::clone(self).unary(verb, request.into_body(), origin, time);
        answer.map(unary::respond).boxed()
    }

    async fn unary(
        self: Arc<Self>,
        verb: Verb,
        body: Incoming,
        origin: Origin,
        time: Result<Option<Duration>, timeout::Unreadable>,
    ) -> Result<Bytes, Status> {
        let mut given = time.unwrap_or_default();
        let message = unary::read(body, MAX_MESSAGE, &mut given).await?;
        let ask = Ask::read(verb, &message, &self.names)?.by(origin);
        let (ask, timeout) = self.admit(ask, time.map(|_| given).map_err(Error::from))?;
        let payload = payload(self.dispatcher.execute(ask, timeout).await)?;
        Ok(match (verb, payload) {
            (Verb::List, payload) => unary::message(&list(payload)),
            (Verb::GetVolumeIds, payload) => unary::message(&volume_ids(payload)),
            (_, Payload::Machine(machine)) => unary::encoded(machine.as_bytes()),
            // As a machine of which nothing is said.
            (_, Payload::None | Payload::List(_) | Payload::VolumeIds(_)) => unary::encoded(&[]),
        })
    }

    fn submit(
        &self,
        request: Request<Incoming>,
        caller: Arc<Caller>,
    ) -> Result<Response<Reply>, Status> {
        let origin = origin(request.headers(), Arc::clone(&caller));
        let requests = Messages::new(request.into_body(), MAX_MESSAGE);
        origin.caller.expect_much();
        let answers = Submissions::new(self.clone(), origin, requests);
        let guard = (&self.auth, &self.bounds);
        let answers = while_allowed(answers, guard, caller, Need::Controller)?;
        Ok(unary::answered(Reply::Messages(answers.boxed())))
    }

    /// Whether it may be asked for, and for how long. If not, that is written down.
    fn admit(
        &self,
        ask: Box<Ask>,
        timeout: Result<Option<Duration>, Error>,
    ) -> Result<(Box<Ask>, Option<Duration>), Error> {
        match self.check(&ask).and(timeout) {
            Ok(timeout) => Ok((ask, timeout)),
            Err(error) if self.is_one_too_many(&ask, &error) => Err(error),
            Err(error) => Err(self.dispatcher.refused(ask, error)),
        }
    }

    /// Before anything is looked up, so that nobody learns what exists by asking.
    fn check(&self, ask: &Ask) -> Result<(), Error> {
        let Some(caller) = &ask.caller else { return Err(Error::Denied(Denied::NoCredentials)) };
        let class = Subject {
            api_version: &ask.class.api_version,
            kind: &ask.class.kind,
            namespace: &ask.class.namespace,
        };
        self.auth.allows(caller, Act::Operate { verb: ask.verb, class }).map_err(Error::Denied)
    }

    /// Whether this is a denial that gets no line of its own any more.
    fn is_one_too_many(&self, ask: &Ask, error: &Error) -> bool {
        let Some(caller) = &ask.caller else { return false };
        matches!(error, Error::Denied(_)) && !self.bounds.refusals.tell(caller)
    }
}

fn origin(headers: &HeaderMap, caller: Arc<Caller>) -> Origin {
    Origin { caller, trace: trace(headers) }
}

fn trace(headers: &HeaderMap) -> Option<Arc<Trace>> {
    static PARENT: HeaderName = HeaderName::from_static("traceparent");
    static STATE: HeaderName = HeaderName::from_static("tracestate");
    let header = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    Trace::read(header(&PARENT)?, header(&STATE)).map(Arc::new)
}

fn payload(result: Result<Answered, Error>) -> Result<Payload, Status> {
    let Answered { answer, seen } = result?;
    if !answer.code.is_ok() {
        return Err(status::of_answer(&answer, seen.as_ref()));
    }
    // Most answers have one reader, who need not copy.
    let Answer { payload, .. } = Arc::unwrap_or_clone(answer);
    Ok(payload)
}

fn list(payload: Payload) -> ListMachinesResponse {
    match payload {
        Payload::List(machines) => ListMachinesResponse { machines },
        Payload::None | Payload::Machine(_) | Payload::VolumeIds(_) => {
            ListMachinesResponse::default()
        }
    }
}

fn volume_ids(payload: Payload) -> GetVolumeIDsResponse {
    match payload {
        Payload::VolumeIds(volume_ids) => GetVolumeIDsResponse { volume_ids },
        Payload::None | Payload::Machine(_) | Payload::List(_) => GetVolumeIDsResponse::default(),
    }
}
