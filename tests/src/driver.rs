//! A driver, frame by frame.

use std::time::Duration;

use broker_proto::v1::{
    self, BrokerSide, DriverSide, OperationResult, broker_side::Control, driver_side::Response,
    operation_result::Payload,
};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming, transport::Channel};

use crate::{API_VERSION, KIND};

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
        kinds: vec![v1::Kind {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            provider: String::new(),
        }],
        verbs: verbs.map(str::to_owned).to_vec(),
        cancel: true,
        resume: true,
        drain: true,
        paging: true,
        capacity: 4,
    }
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

pub struct Driver {
    channel: Channel,
    service: Service,
    pub token: String,
    send: mpsc::Sender<DriverSide>,
    frames: Streaming<BrokerSide>,
}

impl Driver {
    /// Opens the stream and reads the broker's first frame.
    pub async fn dial(channel: Channel, service: Service) -> Self {
        let (send, sent) = mpsc::channel(64);
        let mut grpc = tonic::client::Grpc::new(channel.clone())
            .max_decoding_message_size(16 * 1024 * 1024)
            .max_encoding_message_size(16 * 1024 * 1024);
        grpc.ready().await.expect("the connection stands");
        let codec = tonic_prost::ProstCodec::<DriverSide, BrokerSide>::default();
        let request = tonic::Request::new(ReceiverStream::new(sent));
        let frames = grpc.streaming(request, service.path("Register"), codec).await;
        let frames = frames.expect("a stream opens").into_inner();
        let mut driver = Self { channel, service, token: String::new(), send, frames };
        let first = driver.next_frame().await.expect("the broker speaks first");
        assert_eq!((first.operation_id, first.operation_type.as_str()), (1, "register"));
        assert_eq!(first.encoded_len(), 12, "a historic driver knows every byte of it");
        driver
    }

    pub async fn dial_with(channel: Channel, hello: Hello) -> Self {
        let driver = Self::dial(channel, Service::Today).await;
        let registration =
            v1::Registration { name: "test".to_owned(), hello: Some(hello), ..Default::default() };
        driver.say(1, "register", Response::Registration(registration)).await;
        driver
    }

    pub async fn welcomed(channel: Channel, hello: Hello) -> Self {
        let mut driver = Self::dial_with(channel, hello).await;
        match driver.next_frame().await.expect("an answer to the hello").control {
            Some(Control::Welcome(welcome)) => driver.token = welcome.session_token,
            other => panic!("not welcome: {other:?}"),
        }
        driver
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
        driver.say(1, "register", Response::Registration(registration)).await;
        driver
    }

    pub async fn say(&self, id: i32, operation_type: &str, response: Response) {
        self.send_frame(DriverSide {
            operation_id: id,
            operation_type: operation_type.to_owned(),
            response: Some(response),
        })
        .await;
    }

    pub async fn send_frame(&self, frame: DriverSide) {
        // A broker that hung up shows in what is read, not in what is written.
        drop(self.send.send(frame).await);
    }

    /// The next frame of any kind; `None` at the end of the stream.
    pub async fn try_next_frame(&mut self) -> Result<Option<BrokerSide>, Status> {
        self.frames.message().await
    }

    async fn next_frame(&mut self) -> Option<BrokerSide> {
        self.try_next_frame().await.expect("the stream stands")
    }

    /// The next operation or cancel; pings are answered on the way, with `in_flight` empty.
    pub async fn next_operation(&mut self) -> BrokerSide {
        self.next_operation_with(&[]).await
    }

    pub async fn next_operation_with(&mut self, in_flight: &[i32]) -> BrokerSide {
        loop {
            let frame = self.next_frame().await.expect("an operation");
            match frame.control {
                Some(Control::Ping(ping)) => self.pong(ping.sequence, in_flight).await,
                _ => return frame,
            }
        }
    }

    pub async fn pong(&self, sequence: u64, in_flight: &[i32]) {
        let pong = v1::Pong { sequence, in_flight: in_flight.to_vec(), free_slots: 1 };
        self.say(0, "pong", Response::Pong(pong)).await;
    }

    pub async fn accept(&self, operation: &BrokerSide) {
        let (id, verb) = (operation.operation_id, operation.operation_type.as_str());
        self.say(id, verb, Response::Accepted(v1::Accepted {})).await;
    }

    pub async fn answer(&self, operation: &BrokerSide, result: OperationResult) {
        let (id, verb) = (operation.operation_id, operation.operation_type.as_str());
        self.say(id, verb, Response::Result(result)).await;
    }

    /// Answers pings and nothing else, until the stream ends.
    pub async fn answer_pings(mut self) {
        while let Ok(Some(frame)) = self.try_next_frame().await {
            if let Some(Control::Ping(ping)) = frame.control {
                self.pong(ping.sequence, &[]).await;
            }
        }
    }

    /// Makes a machine for every create, and succeeds at all else, until the stream ends.
    pub async fn serve(mut self) {
        while let Ok(Some(frame)) = self.try_next_frame().await {
            match (&frame.control, &frame.params) {
                (Some(Control::Ping(ping)), _) => self.pong(ping.sequence, &[]).await,
                (_, Some(params)) => {
                    let id = format!("id-{}", params.machine_name);
                    self.answer(&frame, machine(&id)).await;
                }
                _ => {}
            }
        }
    }

    pub async fn get_class(&self, name: &str) -> Result<v1::MachineClass, Status> {
        let meta = v1::MachineClassMeta {
            name: name.to_owned(),
            session_token: self.token.clone(),
            ..Default::default()
        };
        self.unary("GetMachineClass", meta).await
    }

    pub async fn get_secret(&self, namespace: &str, name: &str) -> Result<v1::Secret, Status> {
        let meta = v1::SecretMeta {
            secret_name: name.to_owned(),
            namespace: namespace.to_owned(),
            revision: 1,
            session_token: self.token.clone(),
            class: None,
        };
        self.unary("GetSecret", meta).await
    }

    async fn unary<Q, A>(&self, method: &str, question: Q) -> Result<A, Status>
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

    /// Cuts the connection, as a crash would.
    pub fn vanish(self) {}

    /// Leaves as a driver of 2018 does.
    pub async fn unregister(self) {
        self.send_frame(DriverSide {
            operation_type: "unregister".to_owned(),
            ..Default::default()
        })
        .await;
        // The half-close; the broker ends its side in turn.
        let Self { send, mut frames, .. } = self;
        drop(send);
        while let Ok(Some(_)) = frames.message().await {}
    }
}
