//! A broker that answers as it is told to, and remembers what it was asked.

mod registry;

use std::{
    collections::{HashMap, VecDeque},
    io::BufRead,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use broker_proto::v1::{
    BrokerStatus, DrainDriverRequest, DriverDetails, DriverEvent, EvictDriverRequest,
    GetBrokerStatusRequest, GetDriverRequest, GetVolumeIDsRequest, GetVolumeIDsResponse,
    ListClassesRequest, ListClassesResponse, ListDriversRequest, ListDriversResponse,
    ListMachinesRequest, ListMachinesResponse, ListOperationsRequest, ListOperationsResponse,
    MachineRequest, MachineResponse, OperationEvent, PingDriverRequest, PingDriverResponse,
    SetLogFilterRequest, SubmitRequest, SubmitResponse, WatchDriversRequest,
    WatchOperationsRequest,
    machines_server::{Machines, MachinesServer},
    registry_server::RegistryServer,
};
use brokerctl::{Args, Console, Exit};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_stream::StreamExt as _;
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
    status: Mutex<BrokerStatus>,
    classes: Mutex<ListClassesResponse>,
    operations: Mutex<ListOperationsResponse>,
    details: Mutex<VecDeque<Result<DriverDetails, Status>>>,
    pings: Mutex<VecDeque<Result<PingDriverResponse, Status>>>,
    driver_watches: Mutex<VecDeque<Vec<Result<DriverEvent, Status>>>>,
    /// Watches stay open after their last event.
    patient: AtomicBool,
    operation_watches: Mutex<VecDeque<Vec<Result<OperationEvent, Status>>>>,
    asked: Mutex<Vec<Asked>>,
    tokens: Mutex<Vec<Option<String>>>,
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
    Details(GetDriverRequest),
    WatchDrivers(WatchDriversRequest),
    WatchOperations(WatchOperationsRequest),
    Ping(PingDriverRequest),
    Drain(DrainDriverRequest),
    Evict(EvictDriverRequest),
    Log(SetLogFilterRequest),
    Classes(ListClassesRequest),
    BrokerStatus(GetBrokerStatusRequest),
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

    pub(crate) fn operations(&self, answer: ListOperationsResponse) {
        *self.script.operations.lock().unwrap() = answer;
    }

    pub(crate) fn classes(&self, answer: ListClassesResponse) {
        *self.script.classes.lock().unwrap() = answer;
    }

    pub(crate) fn status(&self, answer: BrokerStatus) {
        *self.script.status.lock().unwrap() = answer;
    }

    pub(crate) fn will_describe(&self, answer: Result<DriverDetails, Status>) {
        self.script.details.lock().unwrap().push_back(answer);
    }

    pub(crate) fn will_pong(&self, answer: Result<PingDriverResponse, Status>) {
        self.script.pings.lock().unwrap().push_back(answer);
    }

    /// Watches do not end any more.
    pub(crate) fn keeps_watches_open(&self) {
        self.script.patient.store(true, Ordering::Relaxed);
    }

    /// The events of the next watch. After the last of them its stream ends.
    pub(crate) fn will_show_drivers(&self, events: Vec<Result<DriverEvent, Status>>) {
        self.script.driver_watches.lock().unwrap().push_back(events);
    }

    pub(crate) fn will_show_operations(&self, events: Vec<Result<OperationEvent, Status>>) {
        self.script.operation_watches.lock().unwrap().push_back(events);
    }

    /// The `authorization` of each call.
    pub(crate) fn tokens(&self) -> Vec<Option<String>> {
        self.script.tokens.lock().unwrap().clone()
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
        let metadata = |key: &str| {
            let value = request.metadata().get(key);
            value.map(|value| value.to_str().expect("ASCII").to_owned())
        };
        self.deadlines.lock().unwrap().push(metadata("grpc-timeout"));
        self.tokens.lock().unwrap().push(metadata("authorization"));
        self.asked.lock().unwrap().push(asked(request.into_inner()));
    }

    fn stream<T: Send + 'static>(&self, events: Vec<Result<T, Status>>) -> BoxStream<T> {
        let events = tokio_stream::iter(events);
        match self.patient.load(Ordering::Relaxed) {
            true => Box::pin(events.chain(tokio_stream::pending())),
            false => Box::pin(events),
        }
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
    run_with(line, None).await
}

/// The same with a person at the terminal, who types `answers`.
pub(crate) async fn run_with(line: &str, answers: Option<&str>) -> Seen {
    let words = std::iter::once("brokerctl").chain(line.split_whitespace());
    let args = Args::from_words(words).expect("a good command line");
    let (mut out, mut remarks) = (Vec::new(), Vec::new());
    let mut answers = answers.map(str::as_bytes);
    let mut console = Console {
        out: &mut out,
        remarks: &mut remarks,
        colour: false,
        live: false,
        terminal: false,
        answers: answers.as_mut().map(|answers| answers as &mut dyn BufRead),
    };
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
