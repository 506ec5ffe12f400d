//! The controllers' door.

mod submissions;
mod unary;

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use broker_proto::{
    passing::{
        GetVolumeIDsRequest, ListMachinesRequest, MachineRequest, MachineResponse, SubmitRequest,
        SubmitResponse, machines_server,
    },
    v1::{GetVolumeIDsResponse, ListMachinesResponse},
};
use futures::{FutureExt as _, Stream};
use hyper::{HeaderMap, body::Incoming, header::HeaderName};
use tokio::time::{self, Instant};
use tonic::{Request, Response, Status, Streaming, codegen::http};

use self::submissions::Submissions;
use super::{entrance::caller, guard::while_allowed, reply::Reply, status, timeout};
use crate::{
    auth::{Act, Auth, Caller, Denied, Need, Subject},
    bounds::Bounds,
    dispatch::{Answered, Ask, ClassNames, Dispatcher, Error, Origin},
    driver::Verb,
    operation::{Answer, Payload, Trace},
};

/// How long a request may take to come, where its caller says nothing of time.
const READ_WITHIN: Duration = Duration::from_secs(60);

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

    /// Answers a call about one machine, which most are; `None` for all others.
    pub(super) fn unary(self: &Arc<Self>, method: &str) -> Option<Unary> {
        let verb = match method {
            "CreateMachine" => Verb::Create,
            "InitializeMachine" => Verb::Initialize,
            "DeleteMachine" => Verb::Delete,
            "GetMachineStatus" => Verb::GetStatus,
            _ => return None,
        };
        Some(Unary { door: Arc::clone(self), verb })
    }

    /// For tonic's service, which has to have all methods: [`Unary`] is quicker, and called instead.
    async fn machine(
        &self,
        verb: Verb,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        let (origin, timeout) = (origin(&request)?, timeout::of(request.metadata().as_ref()));
        let asked = self.about(verb, request.into_inner(), origin, timeout).await;
        asked.map(Response::new)
    }

    async fn about(
        &self,
        verb: Verb,
        request: MachineRequest,
        origin: Origin,
        timeout: Result<Option<Duration>, Error>,
    ) -> Result<MachineResponse, Status> {
        let ask = Ask::passed_on(verb, request, &self.names)?.by(origin);
        self.execute(ask, timeout).await.map(machine)
    }

    async fn execute(
        &self,
        ask: Box<Ask>,
        timeout: Result<Option<Duration>, Error>,
    ) -> Result<Payload, Status> {
        match self.admit(ask, timeout) {
            Ok((ask, timeout)) => payload(self.dispatcher.execute(ask, timeout).await),
            Err(error) => Err(error.into()),
        }
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

#[tonic::async_trait]
impl machines_server::Machines for Machines {
    type SubmitStream = Pin<Box<dyn Stream<Item = Result<SubmitResponse, Status>> + Send>>;

    async fn create_machine(
        &self,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        self.machine(Verb::Create, request).await
    }

    async fn initialize_machine(
        &self,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        self.machine(Verb::Initialize, request).await
    }

    async fn delete_machine(
        &self,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        self.machine(Verb::Delete, request).await
    }

    async fn get_machine_status(
        &self,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        self.machine(Verb::GetStatus, request).await
    }

    async fn list_machines(
        &self,
        request: Request<ListMachinesRequest>,
    ) -> Result<Response<ListMachinesResponse>, Status> {
        let (origin, timeout) = (origin(&request)?, timeout::of(request.metadata().as_ref()));
        let ask = Ask::list(request.into_inner(), &self.names)?.by(origin);
        self.execute(ask, timeout).await.map(list).map(Response::new)
    }

    async fn get_volume_i_ds(
        &self,
        request: Request<GetVolumeIDsRequest>,
    ) -> Result<Response<GetVolumeIDsResponse>, Status> {
        let (origin, timeout) = (origin(&request)?, timeout::of(request.metadata().as_ref()));
        let ask = Ask::volume_ids(request.into_inner(), &self.names)?.by(origin);
        self.execute(ask, timeout).await.map(volume_ids).map(Response::new)
    }

    async fn submit(
        &self,
        request: Request<Streaming<SubmitRequest>>,
    ) -> Result<Response<Self::SubmitStream>, Status> {
        let origin = origin(&request)?;
        let caller = origin.caller.clone();
        let answers = Submissions::new(self.clone(), origin, request.into_inner());
        let guard = (&self.auth, &self.bounds);
        while_allowed(answers, guard, caller, Need::Controller).map(Response::new)
    }
}

/// A call about one machine, on its way.
pub(super) struct Unary {
    door: Arc<Machines>,
    verb: Verb,
}

impl Unary {
    pub(super) async fn answer(
        self,
        request: http::Request<Incoming>,
        caller: Arc<Caller>,
    ) -> http::Response<Reply> {
        unary::respond(self.machine(request, caller).await)
    }

    async fn machine(
        &self,
        request: http::Request<Incoming>,
        caller: Arc<Caller>,
    ) -> Result<MachineResponse, Status> {
        let origin = Origin { caller, trace: trace(request.headers()) };
        let mut time = timeout::of(request.headers());
        let mut reading = pin!(unary::read(request));
        let request = match reading.as_mut().now_or_never() {
            // Mostly it has come with its head, and nobody waits.
            Some(read) => read?,
            None => {
                let (given, began) = (time.as_ref().ok().copied().flatten(), Instant::now());
                let read = time::timeout(given.unwrap_or(READ_WITHIN), reading).await;
                let late = |_| Status::deadline_exceeded("the request did not come in time");
                let request = read.map_err(late)??;
                time = time.map(|given| given.map(|time| time.saturating_sub(began.elapsed())));
                request
            }
        };
        self.door.about(self.verb, request, origin, time).await
    }
}

fn origin<T>(request: &Request<T>) -> Result<Origin, Status> {
    Ok(Origin { caller: caller(request)?, trace: trace(request.metadata().as_ref()) })
}

fn trace(headers: &HeaderMap) -> Option<Arc<Trace>> {
    const PARENT: HeaderName = HeaderName::from_static("traceparent");
    const STATE: HeaderName = HeaderName::from_static("tracestate");
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    Trace::read(header(PARENT)?, header(STATE)).map(Arc::new)
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

fn machine(payload: Payload) -> MachineResponse {
    match payload {
        Payload::Machine(machine) => machine,
        Payload::None | Payload::List(_) | Payload::VolumeIds(_) => MachineResponse::default(),
    }
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
