//! The example driver as a real process: it dials in, works, and leaves on SIGTERM.

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
};

use broker_proto::v1::{
    self as wire,
    broker_side::Control,
    driver_side::Response as Frame,
    drivers_server::{Drivers, DriversServer},
};
use driver_client::async_trait;
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::{Duration, timeout},
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

type Outbound = mpsc::Sender<Result<wire::BrokerSide, Status>>;
type Session = (Streaming<wire::DriverSide>, Outbound);

/// Hands every session to the test.
struct Broker(mpsc::Sender<Session>);

#[async_trait]
impl Drivers for Broker {
    type RegisterStream = ReceiverStream<Result<wire::BrokerSide, Status>>;

    async fn register(
        &self,
        request: Request<Streaming<wire::DriverSide>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let (outbound, frames) = mpsc::channel(16);
        let session = (request.into_inner(), outbound);
        self.0.send(session).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(frames)))
    }

    async fn get_machine_class(
        &self,
        _: Request<wire::MachineClassMeta>,
    ) -> Result<Response<wire::MachineClass>, Status> {
        Err(Status::unimplemented("this driver does not ask"))
    }

    async fn get_secret(
        &self,
        _: Request<wire::SecretMeta>,
    ) -> Result<Response<wire::Secret>, Status> {
        Err(Status::unimplemented("this driver does not ask"))
    }
}

/// The example's process, which does not outlive the test.
struct Driver(Child);

impl Driver {
    fn start(broker: &str) -> Self {
        Self::with(broker, Stdio::null())
    }

    fn with(broker: &str, output: Stdio) -> Self {
        // cargo puts examples beside the folder of this test's own executable.
        let mut path: PathBuf = env::current_exe().expect("tests have a path");
        path.pop();
        path.pop();
        path.push("examples/minimal");
        let mut command = Command::new(&path);
        // As its author would start it for the first time.
        command.env("BROKER_ADDRESS", broker).env_remove("RUST_LOG").stdout(output);
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    fn terminate(&self) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(status.success());
    }

    async fn ended(mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.0.try_wait().expect("it is our child") {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test]
async fn the_example_is_a_working_driver() {
    timeout(Duration::from_secs(60), story()).await.expect("it does not hang");
}

#[tokio::test]
async fn the_example_says_that_it_finds_no_broker() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut driver = Driver::with(&nobody, Stdio::piped());
    let output = BufReader::new(driver.0.stdout.take().expect("it is piped"));
    let said = tokio::task::spawn_blocking(move || {
        output.lines().map_while(Result::ok).any(|line| line.contains("no session"))
    });
    let said = timeout(Duration::from_secs(60), said).await.expect("it does not hang");
    assert!(said.expect("it does not panic"));
}

async fn story() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, mut sessions) = mpsc::channel(1);
    let mut servers = JoinSet::new();
    servers.spawn(
        Server::builder()
            .add_service(DriversServer::new(Broker(sender)))
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );

    let driver = Driver::start(&address);
    let (mut inbound, outbound) = sessions.recv().await.unwrap();
    let Some(Frame::Registration(registration)) = next(&mut inbound).await.response else {
        panic!("it registers first");
    };
    let hello = registration.hello.expect("it is a native driver");
    assert_eq!(hello.kinds[0].kind, "MemoryMachineClass");
    assert_eq!(hello.verbs, ["create", "delete", "list"]);
    let welcome = Control::Welcome(wire::Welcome::default());
    send(&outbound, wire::BrokerSide { control: Some(welcome), ..Default::default() }).await;

    for (id, verb) in [(1, "create"), (2, "list"), (3, "delete")] {
        let class = wire::ClassRef { kind: "MemoryMachineClass".into(), ..Default::default() };
        let params = wire::OperationParams {
            machine_name: if verb == "list" { "" } else { "worker-0" }.into(),
            class: Some(class),
            ..Default::default()
        };
        let operation_type = verb.to_owned();
        let params = Some(params);
        send(
            &outbound,
            wire::BrokerSide { operation_id: id, operation_type, params, control: None },
        )
        .await;
        let mut frame = next(&mut inbound).await;
        // A success that comes at once says so by itself.
        if let Some(Frame::Accepted(_)) = frame.response {
            frame = next(&mut inbound).await;
        }
        let Some(Frame::Result(result)) = frame.response else {
            panic!("{verb} has no result");
        };
        assert_eq!(result.code, 0, "{result:?}");
        if let Some(wire::operation_result::Payload::List(page)) = result.payload {
            assert_eq!(page.machines[0].provider_id, "memory:///worker-0");
        }
    }

    driver.terminate();
    assert!(matches!(next(&mut inbound).await.response, Some(Frame::Drain(_))));
    assert_eq!(next(&mut inbound).await.operation_type, "unregister");
    drop(outbound);
    assert!(driver.ended().await.success());
}

async fn next(inbound: &mut Streaming<wire::DriverSide>) -> wire::DriverSide {
    inbound.message().await.expect("the stream holds").expect("the driver is there")
}

async fn send(outbound: &Outbound, frame: wire::BrokerSide) {
    outbound.send(Ok(frame)).await.expect("the driver reads");
}
