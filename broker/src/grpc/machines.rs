//! The controllers' door.

use std::{pin::Pin, sync::Arc, time::Duration};

use broker_proto::v1::{
    self, GetVolumeIDsRequest, GetVolumeIDsResponse, ListMachinesRequest, ListMachinesResponse,
    MachineRequest, MachineResponse, SubmitRequest, SubmitResponse, machines_server,
    submit_request::Operation, submit_response::Outcome,
};
use futures::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use super::{entrance::caller, guard::while_allowed, status, timeout};
use crate::{
    auth::{Act, Auth, Denied, Need, Subject},
    bounds::Bounds,
    catalog::DEFAULT_NAMESPACE,
    dispatch::{Answered, Ask, Dispatcher, Error, Origin},
    driver::Verb,
    operation::{Answer, Payload, Trace, duration},
};

/// How many operations of one Submit stream run at once; beyond that the stream is not read.
const SUBMITTED_AT_ONCE: usize = 10_000;

#[derive(Clone, Debug)]
pub(super) struct Machines {
    dispatcher: Dispatcher,
    auth: Auth,
    bounds: Bounds,
}

impl Machines {
    pub(super) fn new(dispatcher: Dispatcher, auth: Auth, bounds: Bounds) -> Self {
        Self { dispatcher, auth, bounds }
    }

    async fn machine(
        &self,
        verb: Verb,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        let (origin, timeout) = (origin(&request)?, timeout::of(request.metadata()));
        let ask = Ask::machine(verb, request.into_inner()).by(origin);
        self.execute(ask, timeout).await.map(machine).map(Response::new)
    }

    async fn execute(
        &self,
        ask: Box<Ask>,
        timeout: Result<Option<Duration>, Error>,
    ) -> Result<Payload, Status> {
        let timeout = match self.check(&ask).and(timeout) {
            Ok(timeout) => timeout,
            Err(error) if self.is_one_too_many(&ask, &error) => return Err(error.into()),
            Err(error) => return Err(self.dispatcher.refused(ask, error).into()),
        };
        let Answered { answer, seen } = self.dispatcher.execute(ask, timeout).await?;
        if !answer.code.is_ok() {
            return Err(status::of_answer(&answer, seen.as_ref()));
        }
        // Most answers have one reader, who need not copy.
        let Answer { payload, .. } = Arc::unwrap_or_clone(answer);
        Ok(payload)
    }

    /// Before anything is looked up, so that nobody learns what exists by asking.
    fn check(&self, ask: &Ask) -> Result<(), Error> {
        let Some(caller) = &ask.caller else { return Err(Error::Denied(Denied::NoCredentials)) };
        let namespace = match ask.class.namespace.as_str() {
            "" => DEFAULT_NAMESPACE,
            given => given,
        };
        let class =
            Subject { api_version: &ask.class.api_version, kind: &ask.class.kind, namespace };
        self.auth.allows(caller, Act::Operate { verb: ask.verb, class }).map_err(Error::Denied)
    }

    /// Whether this is a denial that gets no line of its own any more.
    fn is_one_too_many(&self, ask: &Ask, error: &Error) -> bool {
        let Some(caller) = &ask.caller else { return false };
        matches!(error, Error::Denied(_)) && !self.bounds.refusals.tell(caller)
    }

    async fn submitted(&self, request: SubmitRequest, origin: Origin) -> SubmitResponse {
        let outcome = match self.submit_one(request.operation, request.timeout, origin).await {
            Ok(outcome) => outcome,
            Err(status) => Outcome::Error(to_message(status)),
        };
        SubmitResponse { tag: request.tag, outcome: Some(outcome) }
    }

    async fn submit_one(
        &self,
        operation: Option<Operation>,
        timeout: Option<prost_types::Duration>,
        origin: Origin,
    ) -> Result<Outcome, Status> {
        let timeout = timeout.map(positive).transpose();
        let (verb, request) = match operation {
            Some(Operation::Create(request)) => (Verb::Create, request),
            Some(Operation::Initialize(request)) => (Verb::Initialize, request),
            Some(Operation::Delete(request)) => (Verb::Delete, request),
            Some(Operation::GetStatus(request)) => (Verb::GetStatus, request),
            Some(Operation::List(request)) => {
                return self
                    .execute(Ask::list(request).by(origin), timeout)
                    .await
                    .map(list)
                    .map(Outcome::List);
            }
            Some(Operation::GetVolumeIds(request)) => {
                let payload = self.execute(Ask::volume_ids(request).by(origin), timeout).await;
                return payload.map(volume_ids).map(Outcome::VolumeIds);
            }
            None => return Err(invalid("operation", "one must be set").into()),
        };
        let ask = Ask::machine(verb, request).by(origin);
        self.execute(ask, timeout).await.map(machine).map(Outcome::Machine)
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
        let (origin, timeout) = (origin(&request)?, timeout::of(request.metadata()));
        let ask = Ask::list(request.into_inner()).by(origin);
        self.execute(ask, timeout).await.map(list).map(Response::new)
    }

    async fn get_volume_i_ds(
        &self,
        request: Request<GetVolumeIDsRequest>,
    ) -> Result<Response<GetVolumeIDsResponse>, Status> {
        let (origin, timeout) = (origin(&request)?, timeout::of(request.metadata()));
        let ask = Ask::volume_ids(request.into_inner()).by(origin);
        self.execute(ask, timeout).await.map(volume_ids).map(Response::new)
    }

    /// The answers are the stream: no task of its own, so a caller that leaves takes everything
    /// that waits for it along, and one that reads slowly is sent no more than it reads.
    async fn submit(
        &self,
        request: Request<Streaming<SubmitRequest>>,
    ) -> Result<Response<Self::SubmitStream>, Status> {
        let (door, origin) = (self.clone(), origin(&request)?);
        let caller = origin.caller.clone();
        let answers = request
            .into_inner()
            .map(move |request| {
                let (door, origin) = (door.clone(), origin.clone());
                // Boxed at once: it is large, and moved about until it is first polled.
                Box::pin(async move { Ok(door.submitted(request?, origin).await) })
            })
            .buffer_unordered(SUBMITTED_AT_ONCE);
        let guard = (&self.auth, &self.bounds);
        while_allowed(answers, guard, caller, Need::Controller).map(Response::new)
    }
}

fn origin<T>(request: &Request<T>) -> Result<Origin, Status> {
    let header = |name| request.metadata().get(name).and_then(|value| value.to_str().ok());
    let trace = header("traceparent")
        .and_then(|parent| Trace::read(parent, header("tracestate")))
        .map(Arc::new);
    Ok(Origin { caller: caller(request)?, trace })
}

fn positive(timeout: prost_types::Duration) -> Result<Duration, Error> {
    let positive = duration(timeout).filter(|timeout| !timeout.is_zero());
    positive.ok_or_else(|| invalid("timeout", "must be more than zero"))
}

fn invalid(field: &'static str, problem: &str) -> Error {
    Error::Invalid { field, problem: problem.to_owned() }
}

fn to_message(status: Status) -> tonic_types::Status {
    // The details of a status are an encoded google.rpc.Status.
    prost::Message::decode(status.details())
        .ok()
        .filter(|_| !status.details().is_empty())
        .unwrap_or(tonic_types::Status {
            code: status.code().into(),
            message: status.message().to_owned(),
            details: Vec::new(),
        })
}

fn machine(payload: Payload) -> v1::MachineResponse {
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
