//! A broker that answers as it is told to, and remembers what it was asked.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use broker_proto::v1::{
    GetVolumeIDsRequest, GetVolumeIDsResponse, ListDriversRequest, ListDriversResponse,
    ListMachinesRequest, ListMachinesResponse, ListOperationsRequest, ListOperationsResponse,
    MachineRequest, MachineResponse, SubmitRequest, SubmitResponse,
    machines_server::{Machines, MachinesServer},
    registry_server::{Registry, RegistryServer},
};
use brokerctl::{Args, Console, Exit};
use clap::Parser as _;
use tokio::{net::TcpListener, task::JoinSet};
use tonic::{
    Code, Request, Response, Status, Streaming,
    codegen::BoxStream,
    transport::{Server, server::TcpIncoming},
};
use tonic_types::{ErrorDetails, StatusExt as _};

pub(crate) struct FakeBroker {
    address: String,
    script: Arc<Script>,
    // Stops serving when dropped.
    _serving: JoinSet<Result<(), tonic::transport::Error>>,
}

#[derive(Default)]
struct Script {
    drivers: Mutex<ListDriversResponse>,
    machines: Mutex<VecDeque<Result<MachineResponse, Status>>>,
    lists: Mutex<VecDeque<Result<ListMachinesResponse, Status>>>,
    asked: Mutex<Vec<Asked>>,
    deadlines: Mutex<Vec<Option<String>>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    Create(MachineRequest),
    Initialize(MachineRequest),
    Delete(MachineRequest),
    Status(MachineRequest),
    List(ListMachinesRequest),
    Drivers(ListDriversRequest),
    Operations(ListOperationsRequest),
}

/// What the operator got to see.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) exit: Exit,
    pub(crate) out: String,
    pub(crate) remarks: String,
}

impl FakeBroker {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("is bound").to_string();
        let script = Arc::new(Script::default());
        let server = Server::builder()
            .add_service(MachinesServer::from_arc(script.clone()))
            .add_service(RegistryServer::from_arc(script.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        let mut serving = JoinSet::new();
        serving.spawn(server);
        Self { address, script, _serving: serving }
    }

    pub(crate) async fn run(&self, line: &str) -> Seen {
        run(&format!("--broker {} {line}", self.address)).await
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn drivers(&self, answer: ListDriversResponse) {
        *self.script.drivers.lock().unwrap() = answer;
    }

    /// The next answer to create, initialize, delete or status.
    pub(crate) fn will_answer(&self, answer: Result<MachineResponse, Status>) {
        self.script.machines.lock().unwrap().push_back(answer);
    }

    pub(crate) fn will_list(&self, answer: Result<ListMachinesResponse, Status>) {
        self.script.lists.lock().unwrap().push_back(answer);
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.script.asked.lock().unwrap().clone()
    }

    /// The `grpc-timeout` of each call.
    pub(crate) fn deadlines(&self) -> Vec<Option<String>> {
        self.script.deadlines.lock().unwrap().clone()
    }
}

impl Script {
    fn note<T>(&self, request: Request<T>, asked: fn(T) -> Asked) {
        let deadline = request.metadata().get("grpc-timeout");
        let deadline = deadline.map(|value| value.to_str().expect("ASCII").to_owned());
        self.deadlines.lock().unwrap().push(deadline);
        self.asked.lock().unwrap().push(asked(request.into_inner()));
    }

    /// Without an answer in the script it never answers.
    async fn machine(&self) -> Result<Response<MachineResponse>, Status> {
        let answer = self.machines.lock().unwrap().pop_front();
        match answer {
            Some(answer) => answer.map(Response::new),
            None => std::future::pending().await,
        }
    }
}

/// Runs a command line, split at blanks, in this process.
pub(crate) async fn run(line: &str) -> Seen {
    let words = std::iter::once("brokerctl").chain(line.split_whitespace());
    let args = Args::try_parse_from(words).expect("a good command line");
    let (mut out, mut remarks) = (Vec::new(), Vec::new());
    let mut console = Console { out: &mut out, remarks: &mut remarks, colour: false, live: false };
    let exit = brokerctl::run(args, &mut console).await;
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Seen { exit, out: text(out), remarks: text(remarks) }
}

/// A status as the broker makes them.
pub(crate) fn status(code: Code, reason: &str, message: &str, delivery: &str) -> Status {
    let metadata = HashMap::from([("delivery".to_owned(), delivery.to_owned())]);
    let mut details = ErrorDetails::with_error_info(reason, "machinebroker.dev", metadata);
    if matches!(code, Code::Unavailable) {
        details.set_retry_info(Some(Duration::from_secs(5)));
    }
    Status::with_error_details(code, message, details)
}

#[tonic::async_trait]
impl Registry for Script {
    async fn list_drivers(
        &self,
        request: Request<ListDriversRequest>,
    ) -> Result<Response<ListDriversResponse>, Status> {
        self.note(request, Asked::Drivers);
        Ok(Response::new(self.drivers.lock().unwrap().clone()))
    }

    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        self.note(request, Asked::Operations);
        Ok(Response::new(ListOperationsResponse::default()))
    }
}

#[tonic::async_trait]
impl Machines for Script {
    async fn create_machine(
        &self,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        self.note(request, Asked::Create);
        self.machine().await
    }

    async fn initialize_machine(
        &self,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        self.note(request, Asked::Initialize);
        self.machine().await
    }

    async fn delete_machine(
        &self,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        self.note(request, Asked::Delete);
        self.machine().await
    }

    async fn get_machine_status(
        &self,
        request: Request<MachineRequest>,
    ) -> Result<Response<MachineResponse>, Status> {
        self.note(request, Asked::Status);
        self.machine().await
    }

    async fn list_machines(
        &self,
        request: Request<ListMachinesRequest>,
    ) -> Result<Response<ListMachinesResponse>, Status> {
        self.note(request, Asked::List);
        let answer = self.lists.lock().unwrap().pop_front();
        answer.unwrap_or_else(|| Ok(ListMachinesResponse::default())).map(Response::new)
    }

    async fn get_volume_i_ds(
        &self,
        _: Request<GetVolumeIDsRequest>,
    ) -> Result<Response<GetVolumeIDsResponse>, Status> {
        Err(Status::unimplemented("brokerctl does not ask this"))
    }

    type SubmitStream = BoxStream<SubmitResponse>;

    async fn submit(
        &self,
        _: Request<Streaming<SubmitRequest>>,
    ) -> Result<Response<Self::SubmitStream>, Status> {
        Err(Status::unimplemented("brokerctl does not ask this"))
    }
}
