//! Real processes and a collector: one trace from the controller through the broker and the driver to
//! the cloud, and a collector that is away is in nobody's way.

use std::{
    collections::{HashMap, HashSet},
    fs,
    net::TcpListener,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use broker_proto::v1::MachineRequest;
use broker_tests::{
    Controller,
    catalog::catalog_text,
    process::{BrokerProcess, binary},
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
/// In what no collector may ever see.
const MARKER: &str = "hush-hush";
/// Far more than a stop takes with a collector that does not answer, and far less than for ever.
const ON_TIME: Duration = Duration::from_secs(20);

/// Keeps what it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().expect("no panic").push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A span, and who sent it.
struct Seen {
    service: String,
    instance: String,
    span: Span,
}

impl Seen {
    fn id(&self) -> String {
        hex(&self.span.span_id)
    }

    fn parent(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    fn attribute(&self, key: &str) -> Option<String> {
        attribute(&self.span.attributes, key)
    }
}

impl Collector {
    /// Serves until the tasks are dropped.
    async fn start(&self, tasks: &mut JoinSet<()>) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Server::builder().add_service(TraceServiceServer::new(self.clone()));
        tasks.spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            server.serve_with_incoming(incoming).await.expect("it serves");
        });
        endpoint
    }

    fn spans(&self) -> Vec<Seen> {
        let requests = self.0.lock().expect("no panic").clone();
        let resources = requests.into_iter().flat_map(|request| request.resource_spans);
        let mut seen = Vec::new();
        for resource in resources {
            let facts = resource.resource.expect("a resource").attributes;
            let fact = |key| attribute(&facts, key).unwrap_or_default();
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let (service, instance) = (fact("service.name"), fact("service.instance.id"));
                seen.push(Seen { service, instance, span });
            }
        }
        seen
    }
}

fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        other => panic!("{key} is no text, but {other:?}"),
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A folder with a catalog, a cloud and a configuration.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().expect("a folder") };
        fs::create_dir(world.path("classes")).expect("a folder");
        fs::write(world.path("classes/all.yaml"), catalog_text(MARKER)).expect("a file");
        world
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    fn configure(&self, endpoint: &str, log: &str) {
        let (driver, cloud) = (binary("sim-driver"), self.path("cloud"));
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ncatalog: dir:{}\nreplica: replica-1\n\
             driverCommand: ['{} --cloud {cloud}']\notlpEndpoint: {endpoint}\nlog: {log}\n",
            self.path("classes"),
            driver.display()
        );
        fs::write(self.path("config.yaml"), text).expect("a file");
    }

    fn broker(&self) -> BrokerProcess {
        BrokerProcess::start(&["serve", "--config", &self.path("config.yaml")])
    }
}

fn request(machine: &str) -> MachineRequest {
    MachineRequest {
        // The driver is on its way.
        wait_for_driver: true,
        user_data: Some(format!("#cloud-config {MARKER}").into()),
        ..Controller::request(machine)
    }
}

fn traced(machine: &str, flags: &str) -> Request<MachineRequest> {
    let mut request = Request::new(request(machine));
    let parent = format!("00-{TRACE}-{CALLER}-{flags}").parse().expect("a header");
    request.metadata_mut().insert("traceparent", parent);
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_goes_from_the_controller_to_the_cloud() {
    let (collector, mut tasks) = (Collector::default(), JoinSet::new());
    let world = World::new();
    // The span of an operation is not logged at this level.
    world.configure(&collector.start(&mut tasks).await, "info");
    let mut broker = world.broker();
    let controller = Controller::new(broker.channel().await);

    controller.create_with(traced("exported", "01")).await.expect("a machine");
    controller.create_with(traced("not-exported", "00")).await.expect("a machine");
    controller.create_with(request("of-its-own")).await.expect("a machine");
    controller.status("missing").await.expect_err("there is no such machine");
    broker.process.signal("-TERM");
    assert!(broker.process.end().expect("it ends").success());

    let spans = collector.spans();
    let of = |service: &str, machine: &str| -> Vec<&Seen> {
        let of_it = |seen: &&Seen| {
            seen.service == service && seen.attribute("machine").as_deref() == Some(machine)
        };
        spans.iter().filter(of_it).collect()
    };
    let only = |service: &str, machine: &str| match of(service, machine).as_slice() {
        [seen] => *seen,
        others => panic!("{} spans of {service} for {machine}", others.len()),
    };
    let below = |parent: &Seen| -> Vec<&Seen> {
        spans.iter().filter(|seen| seen.parent() == parent.id()).collect()
    };

    // From the controller to the broker, from there to the driver, and below that its cloud.
    let (ours, drivers) = (only("machine-broker", "exported"), only("sim", "exported"));
    assert_eq!((ours.parent(), &*ours.span.name), (CALLER.to_owned(), "operation"));
    assert_eq!(ours.span.kind(), SpanKind::Server);
    assert_eq!(ours.instance, "replica-1");
    assert_eq!(ours.attribute("verb").as_deref(), Some("create"));
    assert_eq!(ours.attribute("code").as_deref(), Some("OK"));
    assert_eq!(drivers.parent(), ours.id());
    assert!(drivers.instance.ends_with("-child-1"), "{}", drivers.instance);
    let calls = below(drivers);
    let calls: HashMap<_, _> = calls.iter().map(|seen| (seen.attribute("call"), *seen)).collect();
    for call in ["find", "put"] {
        let seen = calls[&Some(call.to_owned())];
        assert_eq!((&*seen.service, &*seen.span.name), ("sim", "cloud"));
        assert_eq!(hex(&seen.span.trace_id), TRACE);
    }
    assert!(spans.iter().filter(|seen| hex(&seen.span.trace_id) == TRACE).all(|seen| {
        seen.id() == ours.id() || seen.id() == drivers.id() || seen.parent() == drivers.id()
    }));

    // Callers decide what is exported; without one a trace begins at the broker.
    assert!(
        of("machine-broker", "not-exported").is_empty() && of("sim", "not-exported").is_empty()
    );
    let (ours, drivers) = (only("machine-broker", "of-its-own"), only("sim", "of-its-own"));
    assert_eq!((ours.parent(), drivers.parent()), (String::new(), ours.id()));
    for service in ["machine-broker", "sim"] {
        let seen = only(service, "missing");
        assert_eq!(seen.span.status.as_ref().expect("a status").code(), StatusCode::Error);
        assert_eq!(seen.attribute("code").as_deref(), Some("NOT_FOUND"));
    }

    // Nothing but the fields that were meant, and nothing secret in them.
    let attributes = spans.iter().flat_map(|seen| &seen.span.attributes);
    let keys: HashSet<&str> = attributes.map(|attribute| attribute.key.as_str()).collect();
    let known = ["id", "verb", "class", "machine", "driver", "trace", "traceparent", "code"];
    let known: HashSet<&str> = known.into_iter().chain(["call", "address"]).collect();
    assert!(keys.is_subset(&known), "{:?}", keys.difference(&known));
    assert!(spans.iter().all(|seen| seen.span.events.is_empty()));
    assert!(!format!("{:?}", collector.0.lock().expect("no panic")).contains(MARKER));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_is_in_nobodys_way() {
    // One port that takes connections and says nothing, and one where nobody is.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at_silent = silent.local_addr().expect("an address");
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    for (address, complaint) in
        [(at_silent, "the last spans were not exported in time"), (gone, "spans are lost")]
    {
        let world = World::new();
        let endpoint = format!("http://{address}");
        world.configure(&endpoint, "info");
        let mut broker = world.broker();
        let controller = Controller::new(broker.channel().await);
        controller.create_with(request("one")).await.expect("a machine");

        // What is logged is still another matter.
        world.configure(&endpoint, "debug");
        broker.process.signal("-HUP");
        let says = |what: &str| {
            broker.process.line(what, |line| line.contains(what).then_some(()));
        };
        says("log filter read again");
        controller.create_with(request("two")).await.expect("a machine");
        says("operation over");
        assert!(!broker.process.output().contains("machine=\"one\""));

        let asked = Instant::now();
        broker.process.signal("-TERM");
        assert!(broker.process.end().expect("it ends").success());
        assert!(asked.elapsed() < ON_TIME, "it took {:?}", asked.elapsed());
        let output = broker.process.output();
        let complaints = output.lines().filter(|line| !line.starts_with('['));
        let complaints = complaints.filter(|line| line.contains(complaint)).count();
        assert_eq!(complaints, 1, "{complaint} in:\n{output}");
    }
}
