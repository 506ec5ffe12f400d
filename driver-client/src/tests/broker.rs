//! A broker that says what a test tells it to say.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use broker_proto::v1::{
    self as wire,
    broker_side::Control,
    driver_side::Response as Frame,
    drivers_server::{Drivers, DriversServer},
    operation_result::Payload,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::DuplexStream,
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Channel, Server},
};
use tower::service_fn;

use crate::{Dial, Tls, async_trait, dial::endpoint};

/// The brokers of a test, each with an address `http://broker-N`.
pub(super) struct Brokers {
    brokers: Vec<Broker>,
    pipes: HashMap<String, Sender<io::Result<DuplexStream>>>,
    servers: Arc<Servers>,
    open: Option<String>,
}

/// Ends the brokers when the test is over.
type Servers = JoinSet<Result<(), tonic::transport::Error>>;

/// One broker; sessions come out of it as they are dialled.
pub(super) struct Broker {
    pub(super) shelf: Arc<Shelf>,
    sessions: Receiver<Peer>,
}

/// What lookups find, and how they were asked.
#[derive(Default)]
pub(super) struct Shelf {
    pub(super) class_lookups: AtomicUsize,
    pub(super) secret_lookups: AtomicUsize,
    pub(super) refusal: Mutex<Option<Status>>,
    pub(super) authorization: Mutex<Option<String>>,
    /// The session token of the last lookup.
    pub(super) token: Mutex<String>,
}

/// The broker's end of one session.
pub(super) struct Peer {
    pub(super) registration: wire::Registration,
    inbound: Streaming<wire::DriverSide>,
    outbound: mpsc::Sender<Result<wire::BrokerSide, Status>>,
}

struct Service {
    shelf: Arc<Shelf>,
    sessions: Sender<Peer>,
}

struct Pipes {
    pipes: HashMap<String, Sender<io::Result<DuplexStream>>>,
    /// The way to this one can be listened in on.
    open: Option<String>,
    /// A driver's dialler outlives `Brokers` in most tests.
    _servers: Arc<Servers>,
}

impl Brokers {
    pub(super) fn new(count: usize) -> Self {
        let mut brokers = Vec::new();
        let mut pipes = HashMap::new();
        let mut servers = JoinSet::new();
        for number in 0..count {
            let shelf = Arc::new(Shelf::default());
            let (sender, sessions) = mpsc::channel(64);
            let (dial, incoming) = mpsc::channel(64);
            let service = Service { shelf: shelf.clone(), sessions: sender };
            let server = Server::builder()
                .add_service(DriversServer::new(service))
                .serve_with_incoming(ReceiverStream::new(incoming));
            servers.spawn(server);
            pipes.insert(format!("http://broker-{number}"), dial);
            brokers.push(Broker { shelf, sessions });
        }
        Self { brokers, pipes, servers: Arc::new(servers), open: None }
    }

    pub(super) fn take(&mut self) -> Broker {
        self.brokers.remove(0)
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        let mut addresses: Vec<_> = self.pipes.keys().cloned().collect();
        addresses.sort();
        addresses
    }

    pub(super) fn dial(&self) -> Arc<dyn Dial> {
        Arc::new(Pipes {
            pipes: self.pipes.clone(),
            open: self.open.clone(),
            _servers: self.servers.clone(),
        })
    }

    /// Where everybody can listen in on the way to this one.
    pub(super) fn open_only(self, address: &str) -> Self {
        Self { open: Some(address.to_owned()), ..self }
    }
}

#[async_trait]
impl Dial for Pipes {
    async fn dial(&self, address: &str, _: &Tls) -> Result<Channel, tonic::transport::Error> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        self.pipes[address].send(Ok(theirs)).await.ok();
        let mut ours = Some(TokioIo::new(ours));
        let connector = service_fn(move |_| {
            std::future::ready(ours.take().ok_or_else(|| io::Error::other("used up")))
        });
        endpoint(address)?.connect_with_connector(connector).await
    }

    fn is_private(&self, address: &str, _: &Tls) -> bool {
        self.open.as_deref() != Some(address)
    }
}

impl Broker {
    /// The next session, before it is welcomed.
    pub(super) async fn dialled(&mut self) -> Peer {
        self.sessions.recv().await.expect("the broker is serving")
    }

    /// The next session, welcomed.
    pub(super) async fn welcome(&mut self) -> Peer {
        let mut peer = self.dialled().await;
        peer.control(Control::Welcome(wire::Welcome {
            session_id: "s".into(),
            session_token: "token".into(),
            dead_after: Some(wire_duration(Duration::from_secs(30))),
            ..wire::Welcome::default()
        }))
        .await;
        peer
    }
}

impl Peer {
    /// Welcomes the driver as this replica.
    pub(super) async fn welcome_as(&mut self, replica: &str, others: Option<wire::Peers>) {
        self.control(Control::Welcome(wire::Welcome {
            session_id: "s".into(),
            session_token: "token".into(),
            replica_id: replica.into(),
            dead_after: Some(wire_duration(Duration::from_secs(3600))),
            others,
            ..wire::Welcome::default()
        }))
        .await;
    }

    pub(super) async fn control(&mut self, control: Control) {
        self.send(wire::BrokerSide { control: Some(control), ..wire::BrokerSide::default() }).await;
    }

    pub(super) async fn send(&mut self, frame: wire::BrokerSide) {
        self.outbound.send(Ok(frame)).await.expect("the driver reads");
    }

    /// Asks for an operation.
    pub(super) async fn ask(&mut self, id: i32, verb: &str, machine: &str) {
        self.ask_with(id, verb, machine, |_| {}).await;
    }

    pub(super) async fn ask_with(
        &mut self,
        id: i32,
        verb: &str,
        machine: &str,
        change: impl FnOnce(&mut wire::OperationParams),
    ) {
        let mut params = wire::OperationParams {
            machine_class: Some(wire::MachineClassMeta {
                name: "default/small".into(),
                revision: 1,
                ..wire::MachineClassMeta::default()
            }),
            machine_name: machine.into(),
            class: Some(wire::ClassRef {
                api_version: "v1".into(),
                kind: "K".into(),
                namespace: "default".into(),
                name: "small".into(),
                provider: String::new(),
            }),
            secret_revision: 1,
            ..wire::OperationParams::default()
        };
        change(&mut params);
        self.send(wire::BrokerSide {
            operation_id: id,
            operation_type: verb.into(),
            params: Some(params),
            control: None,
        })
        .await;
    }

    pub(super) async fn cancel(&mut self, id: i32) {
        let control = Some(Control::Cancel(wire::Cancel {}));
        self.send(wire::BrokerSide { operation_id: id, control, ..Default::default() }).await;
    }

    /// Tells that someone joined an operation who waits for so long.
    pub(super) async fn extend(&mut self, id: i32, time_left: Duration) {
        let time_left = Some(wire_duration(time_left));
        let control = Some(Control::Extend(wire::Extend { time_left }));
        self.send(wire::BrokerSide { operation_id: id, control, ..Default::default() }).await;
    }

    /// The driver's next frame; `None` when it left or the connection broke.
    pub(super) async fn next(&mut self) -> Option<wire::DriverSide> {
        self.inbound.message().await.ok().flatten()
    }

    pub(super) async fn accepted(&mut self, id: i32) {
        let frame = self.next().await.expect("the driver is there");
        assert_eq!(frame.operation_id, id, "{frame:?}");
        assert!(matches!(frame.response, Some(Frame::Accepted(_))), "{frame:?}");
    }

    pub(super) async fn result(&mut self, id: i32) -> wire::OperationResult {
        let frame = self.next().await.expect("the driver is there");
        assert_eq!(frame.operation_id, id, "{frame:?}");
        match frame.response {
            Some(Frame::Result(result)) => result,
            other => panic!("not a result: {other:?}"),
        }
    }

    /// The result, whatever is told of other brokers' operations before it, and whether or not it says
    /// that it was accepted.
    pub(super) async fn result_among_orphans(&mut self, id: i32) -> wire::OperationResult {
        loop {
            match self.next().await.expect("the driver is there") {
                wire::DriverSide { response: Some(Frame::Resumed(resumed)), .. } => {
                    assert!(resumed.elsewhere, "{resumed:?}");
                }
                wire::DriverSide { response: Some(Frame::Accepted(_)), .. } => {}
                wire::DriverSide {
                    operation_id, response: Some(Frame::Result(result)), ..
                } => {
                    assert_eq!(operation_id, id);
                    return result;
                }
                other => panic!("not a result: {other:?}"),
            }
        }
    }

    /// The result of an operation that is executed. A success that comes at once says by itself that it
    /// was accepted.
    pub(super) async fn executed(&mut self, id: i32) -> wire::OperationResult {
        let frame = self.next().await.expect("the driver is there");
        assert_eq!(frame.operation_id, id, "{frame:?}");
        match frame.response {
            Some(Frame::Accepted(_)) => self.result(id).await,
            Some(Frame::Result(result)) => {
                let is_list = matches!(result.payload, Some(Payload::List(_)));
                assert!(result.code == 0 && !is_list, "not accepted: {result:?}");
                result
            }
            other => panic!("neither accepted nor a result: {other:?}"),
        }
    }

    pub(super) async fn resumed(&mut self) -> wire::Resumed {
        match self.next().await.expect("the driver is there").response {
            Some(Frame::Resumed(resumed)) => resumed,
            other => panic!("not a resumed operation: {other:?}"),
        }
    }

    /// Sends a ping and returns the pong, which also proves that all before it was handled. What is
    /// told of other brokers' operations may come before it.
    pub(super) async fn ping(&mut self, sequence: u64) -> wire::Pong {
        self.control(Control::Ping(wire::Ping { sequence })).await;
        loop {
            match self.next().await.expect("the driver is there").response {
                Some(Frame::Pong(pong)) if pong.sequence == sequence => return pong,
                Some(Frame::Resumed(resumed)) if resumed.elsewhere => {}
                other => panic!("not the pong: {other:?}"),
            }
        }
    }

    /// Cuts the stream, as a broker does that crashes.
    /// Ends the stream with this.
    pub(super) async fn fail(self, status: Status) {
        self.outbound.send(Err(status)).await.expect("the driver is there");
    }

    pub(super) async fn cut(self) {
        self.outbound.send(Err(Status::unavailable("cut"))).await.ok();
    }
}

pub(super) fn wire_duration(duration: Duration) -> prost_types::Duration {
    duration.try_into().expect("a short time")
}

/// The provider id in a result.
pub(super) fn provider_id(result: &wire::OperationResult) -> &str {
    match &result.payload {
        Some(wire::operation_result::Payload::Machine(machine)) => &machine.provider_id,
        other => panic!("no machine: {other:?}"),
    }
}

#[async_trait]
impl Drivers for Service {
    type RegisterStream = ReceiverStream<Result<wire::BrokerSide, Status>>;

    async fn register(
        &self,
        request: Request<Streaming<wire::DriverSide>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        *self.shelf.authorization.lock().unwrap() = authorization(&request);
        let mut inbound = request.into_inner();
        let hello = inbound.message().await?.ok_or_else(|| Status::aborted("no hello"))?;
        assert_eq!((hello.operation_id, hello.operation_type.as_str()), (1, "register"));
        let Some(Frame::Registration(registration)) = hello.response else {
            return Err(Status::invalid_argument("no registration"));
        };
        let (outbound, frames) = mpsc::channel(64);
        let peer = Peer { registration, inbound, outbound };
        self.sessions.send(peer).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(frames)))
    }

    async fn get_machine_class(
        &self,
        request: Request<wire::MachineClassMeta>,
    ) -> Result<Response<wire::MachineClass>, Status> {
        assert_eq!(authorization(&request), *self.shelf.authorization.lock().unwrap());
        self.shelf.class_lookups.fetch_add(1, SeqCst);
        if let Some(refusal) = self.shelf.refusal.lock().unwrap().take() {
            return Err(refusal);
        }
        let meta = request.into_inner();
        assert_eq!(meta.name, "default/small");
        *self.shelf.token.lock().unwrap() = meta.session_token;
        let data = format!(r#"{{"spec": {{"size": "size-{}"}}}}"#, meta.revision);
        Ok(Response::new(wire::MachineClass { data, ..Default::default() }))
    }

    async fn get_secret(
        &self,
        request: Request<wire::SecretMeta>,
    ) -> Result<Response<wire::Secret>, Status> {
        let number = self.shelf.secret_lookups.fetch_add(1, SeqCst);
        let meta = request.into_inner();
        assert_eq!(meta.class.map(|class| class.name).as_deref(), Some("small"));
        let data = format!(r#"{{"stringData": {{"key": "key-{number}", "userData": "default"}}}}"#);
        Ok(Response::new(wire::Secret { data, error: String::new(), revision: 0 }))
    }
}

fn authorization<T>(request: &Request<T>) -> Option<String> {
    let value = request.metadata().get("authorization")?;
    value.to_str().ok().map(str::to_owned)
}
