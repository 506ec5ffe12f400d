//! A broker that answers as it is told to, and remembers what it was asked.

use std::{
    collections::{HashMap, VecDeque},
    io::BufRead,
    sync::{Arc, Mutex},
    time::Duration,
};

use broker_proto::v1::{
    BrokerStatus, DrainDriverRequest, Driver, DriverDetails, DriverEvent, EvictDriverRequest,
    GetBrokerStatusRequest, GetDriverRequest, GetVolumeIDsRequest, GetVolumeIDsResponse,
    ListClassesRequest, ListClassesResponse, ListDriversRequest, ListDriversResponse,
    ListMachinesRequest, ListMachinesResponse, ListOperationsRequest, ListOperationsResponse,
    MachineRequest, MachineResponse, OperationEvent, PingDriverRequest, PingDriverResponse,
    SubmitRequest, SubmitResponse, WatchDriversRequest, WatchOperationsRequest,
    machines_server::{Machines, MachinesServer},
    registry_server::{Registry, RegistryServer},
};
use brokerctl::{Args, Console, Exit};
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
    status: Mutex<BrokerStatus>,
    classes: Mutex<ListClassesResponse>,
    operations: Mutex<ListOperationsResponse>,
    details: Mutex<VecDeque<Result<DriverDetails, Status>>>,
    pings: Mutex<VecDeque<Result<PingDriverResponse, Status>>>,
    driver_watches: Mutex<VecDeque<Vec<Result<DriverEvent, Status>>>>,
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
        Ok(Response::new(self.operations.lock().unwrap().clone()))
    }

    async fn get_broker_status(
        &self,
        request: Request<GetBrokerStatusRequest>,
    ) -> Result<Response<BrokerStatus>, Status> {
        self.note(request, Asked::BrokerStatus);
        Ok(Response::new(self.status.lock().unwrap().clone()))
    }

    async fn get_driver(
        &self,
        request: Request<GetDriverRequest>,
    ) -> Result<Response<DriverDetails>, Status> {
        self.note(request, Asked::Details);
        let answer = self.details.lock().unwrap().pop_front();
        answer.expect("an answer in the script").map(Response::new)
    }

    async fn ping_driver(
        &self,
        request: Request<PingDriverRequest>,
    ) -> Result<Response<PingDriverResponse>, Status> {
        self.note(request, Asked::Ping);
        let answer = self.pings.lock().unwrap().pop_front();
        answer.expect("an answer in the script").map(Response::new)
    }

    /// The driver has gone when one looks next.
    async fn drain_driver(
        &self,
        request: Request<DrainDriverRequest>,
    ) -> Result<Response<Driver>, Status> {
        self.note(request, Asked::Drain);
        let driver = self.drivers.lock().unwrap().drivers.pop();
        driver.map(Response::new).ok_or_else(|| Status::not_found("no driver has this name"))
    }

    async fn evict_driver(
        &self,
        request: Request<EvictDriverRequest>,
    ) -> Result<Response<Driver>, Status> {
        self.note(request, Asked::Evict);
        let driver = self.drivers.lock().unwrap().drivers.pop();
        driver.map(Response::new).ok_or_else(|| Status::not_found("no driver has this name"))
    }

    async fn list_classes(
        &self,
        request: Request<ListClassesRequest>,
    ) -> Result<Response<ListClassesResponse>, Status> {
        self.note(request, Asked::Classes);
        Ok(Response::new(self.classes.lock().unwrap().clone()))
    }

    type WatchDriversStream = BoxStream<DriverEvent>;

    async fn watch_drivers(
        &self,
        request: Request<WatchDriversRequest>,
    ) -> Result<Response<Self::WatchDriversStream>, Status> {
        self.note(request, Asked::WatchDrivers);
        let events = self.driver_watches.lock().unwrap().pop_front();
        let events = events.ok_or_else(|| Status::permission_denied("the script is over"))?;
        Ok(Response::new(Box::pin(tokio_stream::iter(events))))
    }

    type WatchOperationsStream = BoxStream<OperationEvent>;

    async fn watch_operations(
        &self,
        request: Request<WatchOperationsRequest>,
    ) -> Result<Response<Self::WatchOperationsStream>, Status> {
        self.note(request, Asked::WatchOperations);
        let events = self.operation_watches.lock().unwrap().pop_front();
        let events = events.ok_or_else(|| Status::permission_denied("the script is over"))?;
        Ok(Response::new(Box::pin(tokio_stream::iter(events))))
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
