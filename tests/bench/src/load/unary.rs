//! Unary calls, to the broker or to a driver that is a server: both speak the same.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tonic::{
    Request, client::Grpc, codegen::http::uri::PathAndQuery, metadata::MetadataMap,
    transport::Channel,
};

use super::{
    Plan, answers,
    callers::{self, Caller},
    ready::Ready,
    samples::Samples,
};
use crate::{
    dial::Bearer,
    workload::{Operation, Requests},
};

/// What every caller waits at most, and the broker is told.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

const CREATE: PathAndQuery = PathAndQuery::from_static("/machinebroker.v1.Machines/CreateMachine");

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Samples> {
    let requests = Requests::new(&plan.workload, |create| create.encode_to_vec());
    let (metadata, ..) = with_deadline(&plan.bearer, ()).into_parts();
    let callers = (0..plan.in_flight).map(|asker| Unary {
        machines: Grpc::new(plan.channels[asker % plan.channels.len()].clone()),
        metadata: metadata.clone(),
        requests: requests.clone(),
    });
    callers::all(callers.collect(), &plan.window).await
}

pub(super) fn with_deadline<T>(bearer: &Bearer, message: T) -> Request<T> {
    let mut request = bearer.request(message);
    request.set_timeout(DEADLINE);
    request
}

struct Unary {
    machines: Grpc<Channel>,
    metadata: MetadataMap,
    requests: Requests,
}

impl Caller for Unary {
    async fn call(&mut self, operation: Operation) -> anyhow::Result<()> {
        let message = Bytes::copy_from_slice(self.requests.create(operation));
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        self.machines.ready().await?;
        self.machines.unary(request, CREATE, Ready(answers::machine)).await?.into_inner()
    }
}
