//! A driver, frame by frame.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use broker_proto::v1::{
    self, BrokerSide, DriverSide, OperationResult, broker_side::Control, driver_side::Response,
    operation_result::Payload,
};
use prost::Message as _;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_stream::{StreamExt as _, wrappers::UnboundedReceiverStream};
use tonic::{Code, Status, Streaming, codec::Codec, transport::Channel};

use crate::{API_VERSION, KIND, PATIENCE, peers};

/// The names under which the drivers' service answers.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    Today,
    Infra,
    Servicegrpc,
}

impl Service {
    fn path(self, method: &str) -> tonic::codegen::http::uri::PathAndQuery {
        let name = match self {
            Service::Today => "machinebroker.v1.Drivers",
            Service::Infra => "infra.Infragrpc",
            Service::Servicegrpc => "service.Servicegrpc",
        };
        format!("/{name}/{method}").parse().expect("a path")
    }
}

pub type Hello = v1::Hello;

/// A native driver of the sample kind that can do everything, four operations at once.
pub fn hello(instance: &str) -> Hello {
    let verbs = ["create", "initialize", "delete", "get_status", "list", "get_volume_ids"];
    Hello {
        protocol_min: 1,
        protocol_max: 1,
        instance_id: instance.to_owned(),
        boot_id: "first".to_owned(),
        driver_version: "1.2.3".to_owned(),
        kinds: vec![kind(API_VERSION, KIND)],
        verbs: verbs.map(str::to_owned).to_vec(),
        cancel: true,
        resume: true,
        drain: true,
        paging: true,
        capacity: 4,
        returning: false,
        resumed: Vec::new(),
        connected: Vec::new(),
    }
}

/// All classes of a kind, whatever their provider.
pub fn kind(api_version: &str, kind: &str) -> v1::Kind {
    v1::Kind { api_version: api_version.to_owned(), kind: kind.to_owned(), ..Default::default() }
}

/// What a driver says of a machine that it made.
pub fn machine(provider_id: &str) -> OperationResult {
    let machine = v1::MachineResponse {
        provider_id: provider_id.to_owned(),
        node_name: format!("node-{provider_id}"),
        ..Default::default()
    };
    OperationResult { payload: Some(Payload::Machine(machine)), ..Default::default() }
}

/// What a driver says that cannot do it.
pub fn failed(code: Code, message: &str) -> OperationResult {
    OperationResult { code: code.into(), message: message.to_owned(), ..Default::default() }
}

/// Some machines of a list, by their names.
pub fn page<'a>(names: impl IntoIterator<Item = &'a str>, more: bool) -> OperationResult {
    let machine = |name: &str| v1::Machine {
        provider_id: format!("id-{name}"),
        machine_name: name.to_owned(),
    };
    let page = v1::ListPage { machines: names.into_iter().map(machine).collect(), more };
    OperationResult { payload: Some(Payload::List(page)), ..Default::default() }
}

/// A driver's side of its stream. Pings are answered behind its back, with what it has accepted and
/// not answered, for as long as it is not told to be silent; what it is to forget is written down.
/// Dropping it cuts the connection.
pub struct Driver {
    channel: Channel,
    service: Service,
    pub token: String,
    pub session: String,
    voice: Voice,
    frames: mpsc::UnboundedReceiver<Result<BrokerSide, Status>>,
    reader: JoinHandle<()>,
}

/// What the driver says, and what it knows of itself.
#[derive(Clone)]
struct Voice {
    /// `None` closes the driver's side.
    send: mpsc::UnboundedSender<Option<DriverSide>>,
    running: Arc<Mutex<BTreeSet<i32>>>,
    silent: Arc<AtomicBool>,
    forgotten: Arc<Mutex<Vec<String>>>,
}

impl Voice {
    fn say(&self, id: i32, operation_type: &str, response: Option<Response>) {
        let frame =
            DriverSide { operation_id: id, operation_type: operation_type.to_owned(), response };
        // A broker that hung up shows in what is read, not in what is written.
        drop(self.send.send(Some(frame)));
    }

    fn pong(&self, sequence: u64) {
        let in_flight = self.running().iter().copied().collect();
        let pong = v1::Pong { sequence, in_flight, free_slots: 1 };
        self.say(0, "pong", Some(Response::Pong(pong)));
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeSet<i32>> {
        self.running.lock().expect("no panic while locked")
    }
}

impl Driver {
    /// Opens the stream and reads the broker's first frame.
    pub async fn dial(channel: Channel, service: Service) -> Self {
        Self::try_dial(channel, service, None).await.expect("a stream opens")
    }

    /// The same, with an `authorization` header, and perhaps in vain.
    pub async fn try_dial(
        channel: Channel,
        service: Service,
        authorization: Option<&str>,
    ) -> Result<Self, Status> {
        let codec = tonic_prost::ProstCodec::<DriverSide, BrokerSide>::default();
        Self::dial_in(codec, channel, service, authorization).await
    }

    /// The same, in the words of this codec.
    async fn dial_in(
        codec: impl Codec<Encode = DriverSide, Decode = BrokerSide>,
        channel: Channel,
        service: Service,
        authorization: Option<&str>,
    ) -> Result<Self, Status> {
        let (send, sent) = mpsc::unbounded_channel();
        let mut grpc = tonic::client::Grpc::new(channel.clone())
            .max_decoding_message_size(16 * 1024 * 1024)
            .max_encoding_message_size(usize::MAX);
        grpc.ready().await.expect("the connection stands");
        let mut request =
            tonic::Request::new(UnboundedReceiverStream::new(sent).map_while(|frame| frame));
        if let Some(authorization) = authorization {
            let value = authorization.parse().expect("a header");
            request.metadata_mut().insert("authorization", value);
        }
        let stream = grpc.streaming(request, service.path("Register"), codec).await?.into_inner();
        let (running, silent, forgotten) = Default::default();
        let voice = Voice { send, running, silent, forgotten };
        let (heard, frames) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read(stream, voice.clone(), heard));
        let (token, session) = (String::new(), String::new());
        let mut driver = Self { channel, service, token, session, voice, frames, reader };
        let first = driver.next_frame().await.expect("the broker speaks first");
        assert_eq!((first.operation_id, first.operation_type.as_str()), (1, "register"));
        assert_eq!(first.encoded_len(), 12, "a historic driver knows every byte of it");
        Ok(driver)
    }

    /// Says hello; what comes of it is the next frame.
    pub async fn dial_with(channel: Channel, hello: Hello) -> Self {
        Self::dial(channel, Service::Today).await.greet(hello)
    }

    /// The same in the words of a later protocol.
    pub async fn dial_newer(channel: Channel, hello: Hello) -> Self {
        let driver = Self::dial_in(peers::Newer, channel, Service::Today, None).await;
        driver.expect("a stream opens").greet(hello)
    }

    fn greet(self, hello: Hello) -> Self {
        let driver = self;
        let registration =
            v1::Registration { name: "test".to_owned(), hello: Some(hello), ..Default::default() };
        driver.say(1, "register", Response::Registration(registration));
        driver
    }

    pub async fn welcomed(channel: Channel, hello: Hello) -> Self {
        Self::dial_with(channel, hello).await.is_welcome().await
    }

    /// Reads the answer to the hello.
    pub async fn is_welcome(self) -> Self {
        let mut driver = self;
        match driver.next_frame().await.expect("an answer to the hello").control {
            Some(Control::Welcome(welcome)) => {
                driver.token = welcome.session_token;
                driver.session = welcome.session_id;
            }
            other => panic!("not welcome: {other:?}"),
        }
        driver
    }

    /// Says hello and is turned away: how, and the status at the end of the stream.
    pub async fn rejected(channel: Channel, hello: Hello) -> (v1::Reject, Status) {
        let mut driver = Self::dial_with(channel, hello).await;
        let reject = match driver.next_frame().await.expect("an answer to the hello").control {
            Some(Control::Reject(reject)) => reject,
            other => panic!("not rejected: {other:?}"),
        };
        (reject, driver.end().await.expect_err("the end has a status too"))
    }

    /// A driver of 2018.
    pub async fn historic(channel: Channel, service: Service, kind: &str, group: &str) -> Self {
        let driver = Self::dial(channel, service).await;
        let registration = v1::Registration {
            name: "externalDriver".to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            version: "v1alpha1".to_owned(),
            hello: None,
        };
        driver.say(1, "register", Response::Registration(registration));
        driver
    }

    pub fn say(&self, id: i32, operation_type: &str, response: Response) {
        self.voice.say(id, operation_type, Some(response));
    }

    /// A frame with nothing in it.
    pub fn say_nothing(&self, id: i32, operation_type: &str) {
        self.voice.say(id, operation_type, None);
    }

    /// The next frame of any kind but an answered ping; `None` at the end of the stream.
    pub async fn try_next_frame(&mut self) -> Result<Option<BrokerSide>, Status> {
        let frame = timeout(PATIENCE, self.frames.recv()).await;
        frame.expect("something comes within an hour").transpose()
    }

    /// The end of the stream, whatever comes before it.
    pub async fn end(&mut self) -> Result<(), Status> {
        while self.try_next_frame().await?.is_some() {}
        Ok(())
    }

    pub async fn next_frame(&mut self) -> Option<BrokerSide> {
        self.try_next_frame().await.expect("the stream stands")
    }

    /// The next operation.
    pub async fn next_operation(&mut self) -> BrokerSide {
        let frame = self.next_frame().await.expect("an operation");
        assert!(frame.params.is_some(), "not an operation: {frame:?}");
        frame
    }

    pub async fn next_operations(&mut self, count: usize) -> Vec<BrokerSide> {
        let mut operations = Vec::with_capacity(count);
        while operations.len() < count {
            operations.push(self.next_operation().await);
        }
        operations
    }

    /// The next control frame.
    pub async fn next_control(&mut self) -> (i32, Control) {
        let frame = self.next_frame().await.expect("a control frame");
        let id = frame.operation_id;
        (id, frame.control.unwrap_or_else(|| panic!("no control frame, but {:?}", frame.params)))
    }

    /// The id of the operation that is cancelled next.
    pub async fn next_cancel(&mut self) -> i32 {
        match self.next_control().await {
            (id, Control::Cancel(_)) => id,
            (_, other) => panic!("not a cancel: {other:?}"),
        }
    }

    /// Asserts that nothing but pings comes for `time`.
    pub async fn hears_nothing_for(&mut self, time: Duration) {
        if let Ok(frame) = timeout(time, self.try_next_frame()).await {
            panic!("nothing should have come, but {frame:?}");
        }
    }

    /// Says nothing more of its own accord: pings come as frames.
    pub fn fall_silent(&self) {
        self.voice.silent.store(true, Ordering::Release);
    }

    pub fn pong(&self, sequence: u64) {
        self.voice.pong(sequence);
    }

    /// Lists it no longer among those it runs.
    pub fn forget(&self, operation: &BrokerSide) {
        self.voice.running().remove(&operation.operation_id);
    }

    pub fn accept(&self, operation: &BrokerSide) {
        let (id, verb) = (operation.operation_id, operation.operation_type.as_str());
        self.voice.running().insert(id);
        self.say(id, verb, Response::Accepted(v1::Accepted {}));
    }

    pub fn answer(&self, operation: &BrokerSide, result: OperationResult) {
        let (id, verb) = (operation.operation_id, operation.operation_type.as_str());
        let more = matches!(&result.payload, Some(Payload::List(page)) if page.more);
        self.say(id, verb, Response::Result(result));
        if !more {
            self.forget(operation);
        }
    }

    /// Accepts the next operation.
    pub async fn take(&mut self) -> BrokerSide {
        let operation = self.next_operation().await;
        self.accept(&operation);
        operation
    }

    /// Makes the machine of the next operation, or succeeds at whatever it is.
    pub async fn serve_one(&mut self) -> BrokerSide {
        let operation = self.take().await;
        self.succeed(&operation);
        operation
    }

    pub fn succeed(&self, operation: &BrokerSide) {
        let params = operation.params.as_ref().expect("an operation has params");
        let result = match operation.operation_type.as_str() {
            "list" => page([self.session.as_str()], false),
            "get_volume_ids" => OperationResult::default(),
            _ => machine(&format!("id-{}", params.machine_name)),
        };
        self.answer(operation, result);
    }

    pub fn drain(&self) {
        self.say(0, "drain", Response::Drain(v1::Drain::default()));
    }

    /// Serves whatever comes until the stream ends.
    pub fn serve(self) -> Serving {
        self.serve_in(Duration::ZERO)
    }

    /// The same, where each operation takes so much time.
    pub fn serve_in(mut self, time: Duration) -> Serving {
        let machines = Arc::new(Mutex::new(Vec::new()));
        let served = Arc::clone(&machines);
        let task = tokio::spawn(async move {
            let mut running: VecDeque<(Instant, BrokerSide)> = VecDeque::new();
            loop {
                let next = running.front().map(|(due, _)| *due);
                let frame = tokio::select! {
                    frame = self.try_next_frame() => frame,
                    () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                        let (_, operation) = running.pop_front().expect("looked at above");
                        self.succeed(&operation);
                        continue;
                    }
                };
                let Ok(Some(frame)) = frame else { return };
                let Some(params) = &frame.params else { continue };
                served.lock().expect("no panic while locked").push(params.machine_name.clone());
                self.accept(&frame);
                if time.is_zero() {
                    self.succeed(&frame);
                } else {
                    running.push_back((Instant::now() + time, frame));
                }
            }
        });
        Serving { task, machines }
    }

    /// With the session token of another driver in its questions.
    pub fn with_token_of(mut self, other: &Driver) -> Self {
        self.token.clone_from(&other.token);
        self
    }

    pub async fn get_class(&self, name: &str) -> Result<v1::MachineClass, Status> {
        let meta = v1::MachineClassMeta {
            name: name.to_owned(),
            session_token: self.token.clone(),
            ..Default::default()
        };
        self.ask("GetMachineClass", meta).await
    }

    pub async fn get_secret(&self, namespace: &str, name: &str) -> Result<v1::Secret, Status> {
        let meta = v1::SecretMeta {
            secret_name: name.to_owned(),
            namespace: namespace.to_owned(),
            revision: 1,
            session_token: self.token.clone(),
            class: None,
        };
        self.ask("GetSecret", meta).await
    }

    /// The secret of a class, as native drivers ask for it.
    pub async fn get_secret_of(&self, class: v1::ClassRef) -> Result<v1::Secret, Status> {
        let meta = v1::SecretMeta {
            session_token: self.token.clone(),
            class: Some(class),
            ..Default::default()
        };
        self.ask("GetSecret", meta).await
    }

    async fn ask<Q, A>(&self, method: &str, question: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.expect("the connection stands");
        let mut request = tonic::Request::new(question);
        request.set_timeout(Duration::from_secs(1));
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        grpc.unary(request, self.service.path(method), codec).await.map(tonic::Response::into_inner)
    }

    /// Says that an operation on a machine of the sample class, from an earlier stream, still runs.
    pub fn still_runs(&self, verb: &str, machine: &str) {
        self.still_runs_of(crate::Controller::class(), verb, machine);
    }

    /// The same of another class.
    pub fn still_runs_of(&self, class: v1::ClassRef, verb: &str, machine: &str) {
        let resumed = v1::Resumed {
            verb: verb.to_owned(),
            class: Some(class),
            machine_name: machine.to_owned(),
            ..Default::default()
        };
        self.say(0, "resumed", Response::Resumed(resumed));
    }

    /// The machines of which it was told that another changed them.
    pub fn forgotten(&self) -> Vec<String> {
        self.voice.forgotten.lock().expect("no panic while locked").clone()
    }

    /// Cuts the connection, as a crash would.
    pub fn vanish(self) {}

    /// Closes its side and reads to the end.
    pub async fn half_close(mut self) -> Result<(), Status> {
        drop(self.voice.send.send(None));
        self.end().await
    }

    /// Leaves as a driver of 2018 does.
    pub async fn unregister(self) -> Result<(), Status> {
        self.say_nothing(0, "unregister");
        self.half_close().await
    }
}

/// A driver that succeeds at everything. Dropping it cuts the connection.
pub struct Serving {
    task: JoinHandle<()>,
    machines: Arc<Mutex<Vec<String>>>,
}

impl Serving {
    /// The machine names of the operations that it was sent so far.
    pub fn served(&self) -> Vec<String> {
        self.machines.lock().expect("no panic while locked").clone()
    }

    /// Cuts the connection, as a crash would.
    pub fn vanish(self) {}
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Reads what the broker says and answers pings, until the stream ends.
async fn read(
    mut stream: Streaming<BrokerSide>,
    voice: Voice,
    heard: mpsc::UnboundedSender<Result<BrokerSide, Status>>,
) {
    while let Some(frame) = stream.message().await.transpose() {
        if let Ok(BrokerSide { control: Some(Control::Ping(ping)), .. }) = &frame
            && !voice.silent.load(Ordering::Acquire)
        {
            voice.pong(ping.sequence);
        } else if let Ok(BrokerSide { control: Some(Control::Forget(forget)), .. }) = &frame {
            let mut forgotten = voice.forgotten.lock().expect("no panic while locked");
            forgotten.push(forget.machine_name.clone());
        } else if heard.send(frame).is_err() {
            return;
        }
    }
}
