//! Who may do what: nothing is allowed that the policy does not name, whatever the method.

use std::{fs, time::Duration};

use broker::{
    audit::{Audit, Rotation, Target},
    auth::{Need, need},
};
use broker_proto::v1::{
    self, MachineRequest, registry_client::RegistryClient, reject::Reason,
    submit_request::Operation,
};
use broker_tests::{
    API_VERSION, CLASS, Controller, Driver, KIND, Service, TestBroker,
    catalog::{OTHER_API_VERSION, OTHER_KIND, SHARED_API_VERSION, SHARED_KIND, catalog, class},
    hello, kind, reason,
};
use prost::Message as _;
use prost_types::FileDescriptorProto;
use serde_json::Value;
use tempfile::TempDir;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status, transport::Channel};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

const DRIVER: &str = "spiffe://test/driver";
const OTHER_DRIVER: &str = "spiffe://test/driver-of-other";
const TEAM_DRIVER: &str = "spiffe://test/driver-of-team-b";
const CONTROLLER: &str = "spiffe://test/controller";
const READER: &str = "spiffe://test/reader";
const STEERER: &str = "spiffe://test/steerer";
const STRANGER: &str = "spiffe://test/stranger";

const POLICY: &str = "
rules:
- who: [spiffe://test/driver, spiffe://test/driver-2]
  driver: {kinds: [SimMachineClass]}
- who: spiffe://test/driver-of-other
  driver: {kinds: [other.machinebroker.dev/v1/OtherMachineClass]}
- who: spiffe://test/driver-of-team-b
  driver: {kinds: [SimMachineClass], namespaces: [team-b]}
- who: spiffe://test/controller
  controller: {kinds: [SimMachineClass], verbs: [create, list], namespaces: [default]}
- who: spiffe://test/reader
  operator: read
- who: spiffe://test/steerer
  operator: steer
";

/// A broker with the policy, and its files.
struct Guarded {
    folder: TempDir,
    audit: Audit,
    broker: TestBroker,
}

impl Guarded {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Target::File(folder.path().join("audit.log"), Rotation::default());
        let audit = Audit::open(&log).expect("the folder is ours");
        let broker = TestBroker::guarded(folder.path(), POLICY, catalog(), audit.clone());
        Self { folder, audit, broker }
    }

    fn change_policy(&self, from: &str, to: &str) {
        assert!(POLICY.contains(from));
        let text = POLICY.replace(from, to);
        fs::write(self.folder.path().join("policy.yaml"), text).expect("the folder is ours");
    }

    async fn driver(&self, uri: &str, instance: &str) -> Driver {
        Driver::welcomed(self.broker.channel_of(uri).await, hello(instance)).await
    }

    async fn controller(&self, uri: &str) -> Controller {
        Controller::new(self.broker.channel_of(uri).await)
    }

    async fn registry(&self, uri: &str) -> RegistryClient<Channel> {
        RegistryClient::new(self.broker.channel_of(uri).await)
    }

    async fn audited(&self, event: &str) -> Vec<Value> {
        self.audit.close(Duration::from_secs(60)).await;
        let text = fs::read_to_string(self.folder.path().join("audit.log")).expect("a file");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.filter(|line: &Value| line["event"] == event).collect()
    }
}

/// The paths of all methods of all services that the broker serves, as reflection tells them.
async fn all_methods(channel: Channel) -> Vec<String> {
    let mut reflection = ServerReflectionClient::new(channel);
    let mut ask = async |question| {
        let request =
            ServerReflectionRequest { message_request: Some(question), ..Default::default() };
        let answers = reflection.server_reflection_info(tokio_stream::once(request)).await;
        let mut answers = answers.expect("reflection answers").into_inner();
        answers.next().await.unwrap().unwrap().message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(services) =
        ask(MessageRequest::ListServices(String::new())).await
    else {
        panic!("not a list of services");
    };
    let mut methods = Vec::new();
    for service in services.service {
        let symbol = MessageRequest::FileContainingSymbol(service.name.clone());
        let MessageResponse::FileDescriptorResponse(files) = ask(symbol).await else {
            panic!("no file for {}", service.name);
        };
        for file in files.file_descriptor_proto {
            let file = FileDescriptorProto::decode(file.as_slice()).unwrap();
            let of_this = |other: &&prost_types::ServiceDescriptorProto| {
                service.name == format!("{}.{}", file.package(), other.name())
            };
            let found = file.service.iter().filter(of_this);
            let found = found.flat_map(|service| &service.method);
            methods.extend(found.map(|method| format!("/{}/{}", service.name, method.name())));
        }
    }
    methods
}

/// Calls a method with an empty message, for a minute: some of them stay open.
async fn call(channel: Channel, path: &str) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("the connection stands");
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let path = path.parse().expect("a path");
    let answer = grpc.unary(tonic::Request::new(()), path, codec);
    match tokio::time::timeout(Duration::from_secs(60), answer).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Ok(()),
    }
}

#[tokio::test(start_paused = true)]
async fn every_method_of_every_service_has_a_rule() {
    let guarded = Guarded::start();
    let methods = all_methods(guarded.broker.channel_of(READER).await).await;
    assert!(methods.len() > 20, "{methods:?}");
    for method in &methods {
        assert!(need(method).is_some(), "{method} has no rule in auth/rules.rs");
    }
    assert_eq!(need("/machinebroker.v1.Registry/Unheard"), None);
}

#[tokio::test(start_paused = true)]
async fn who_shows_nothing_may_call_nothing_but_health() {
    let guarded = Guarded::start();
    let methods = all_methods(guarded.broker.channel_of(READER).await).await;
    let channel = guarded.broker.channel().await;
    for method in &methods {
        let answer = call(channel.clone(), method).await;
        let denied = answer.as_ref().is_err_and(|status| status.code() == Code::Unauthenticated);
        assert_eq!(denied, need(method) != Some(Need::Nothing), "{method}: {answer:?}");
    }
    for method in ["/infra.Infragrpc/GetSecret", "/service.Servicegrpc/Register"] {
        let status = call(channel.clone(), method).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{method}");
        assert!(status.message().contains("client certificate or a bearer token"), "{status:?}");
    }
    let unknown = call(channel, "/machinebroker.v1.Machines/Explode").await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unimplemented);
    let denied = guarded.audited("caller_denied").await;
    let guarded = methods.iter().filter(|method| need(method) != Some(Need::Nothing)).count();
    assert_eq!(denied.len(), guarded + 3, "a line for each");
    assert_eq!(denied[0]["identity"], "anonymous");
}

#[tokio::test(start_paused = true)]
async fn each_role_may_call_the_methods_of_its_own_and_no_others() {
    let guarded = Guarded::start();
    let methods = all_methods(guarded.broker.channel_of(READER).await).await;
    for (who, may) in [
        (DRIVER, vec![Need::Driver]),
        (CONTROLLER, vec![Need::Controller]),
        (READER, vec![Need::Read]),
        (STEERER, vec![Need::Read, Need::Steer]),
        (STRANGER, vec![]),
    ] {
        for method in &methods {
            let need = need(method).expect("a rule");
            if need == Need::Nothing || (need == Need::AnyRole && who != STRANGER) {
                continue;
            }
            // Each on its own, since some of them stay open.
            let channel = guarded.broker.channel_of(who).await;
            let answer = call(channel, method).await;
            let denied = answer.is_err_and(|status| {
                status.code() == Code::PermissionDenied && reason(&status) == "DENIED"
            });
            // An empty request of a controller is for no kind that it may have.
            let empty = need == Need::Controller && !method.ends_with("Submit");
            assert_eq!(denied, !may.contains(&need) || empty, "{who} {method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_registers_the_kinds_it_may_serve_and_no_others() {
    let guarded = Guarded::start();
    let _driver = guarded.driver(DRIVER, "own").await;
    let mut registry = guarded.registry(READER).await;
    let listed = registry.list_drivers(v1::ListDriversRequest::default()).await.expect("it may");
    let listed = listed.into_inner().drivers;
    assert_eq!(listed[0].identity, DRIVER);

    let foreign = kind(OTHER_API_VERSION, OTHER_KIND);
    for kinds in [vec![foreign.clone()], vec![kind(API_VERSION, KIND), foreign]] {
        let hello = v1::Hello { kinds, ..hello("foreign") };
        let channel = guarded.broker.channel_of(DRIVER).await;
        let (reject, status) = Driver::rejected(channel, hello).await;
        assert_eq!(reject.reason(), Reason::Denied);
        assert!(reject.message.contains(OTHER_KIND), "{reject:?}");
        assert!(reject.retryable, "a policy can be mended while the driver waits");
        assert_eq!(status.code(), Code::PermissionDenied);
    }
    let rejected = guarded.audited("driver_rejected").await;
    assert_eq!(rejected.len(), 2);
    assert_eq!(
        (&rejected[0]["identity"], &rejected[0]["outcome"]),
        (&DRIVER.into(), &"denied".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_needs_the_role_as_well() {
    let guarded = Guarded::start();
    let (group, _) = API_VERSION.split_once('/').unwrap();
    let channel = guarded.broker.channel_of(OTHER_DRIVER).await;
    let mut driver = Driver::historic(channel, Service::Infra, KIND, group).await;
    let status = driver.end().await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[tokio::test(start_paused = true)]
async fn a_controller_is_held_to_its_kinds_verbs_and_namespaces_in_every_operation() {
    let guarded = Guarded::start();
    let _serving = guarded.driver(DRIVER, "driver").await.serve();
    let controller = guarded.controller(CONTROLLER).await;
    controller.create("worker-0").await.expect("it may");
    let elsewhere = v1::ClassRef { namespace: "team-b".to_owned(), ..Controller::class() };
    let foreign = class(OTHER_API_VERSION, OTHER_KIND, "other");
    let missing = class(OTHER_API_VERSION, OTHER_KIND, "missing");
    let mut said = Vec::new();
    for class in [elsewhere, foreign, missing] {
        let request = MachineRequest { class: Some(class), ..Controller::request("worker-1") };
        let status = controller.create_with(request).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert_eq!(reason(&status), "DENIED");
        said.push(status.message().to_owned());
    }
    assert_eq!(said[1], said[2], "what exists and what does not look the same");
    assert_eq!(controller.delete("worker-0").await.unwrap_err().code(), Code::PermissionDenied);

    let mut submit = controller.submit().await;
    submit.send(1, Operation::Delete(Controller::request("worker-0")));
    let (_, outcome) = submit.next().await;
    assert_eq!(outcome.unwrap_err().code(), Code::PermissionDenied);
    submit.send(2, Operation::Create(Controller::request("worker-2")));
    let (tag, outcome) = submit.next().await;
    assert_eq!(tag, 2);
    outcome.expect("the stream goes on");

    let operations = guarded.audited("operation").await;
    let denied: Vec<_> = operations.iter().filter(|line| line["outcome"] == "denied").collect();
    assert_eq!(denied.len(), 5);
    for line in denied {
        assert_eq!((&line["identity"], &line["code"]), (&CONTROLLER.into(), &"DENIED".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_look_may_not_steer() {
    let guarded = Guarded::start();
    let mut driver = guarded.driver(DRIVER, "driver").await;
    let evict =
        || v1::EvictDriverRequest { driver: "driver".to_owned(), reason: "for a test".to_owned() };
    let status = guarded.registry(READER).await.evict_driver(evict()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    guarded.registry(STEERER).await.evict_driver(evict()).await.expect("it may");
    assert_eq!(driver.end().await.unwrap_err().code(), Code::Aborted);
    let evicted = guarded.audited("driver_evicted").await;
    assert_eq!(evicted.len(), 1);
    assert_eq!(evicted[0]["identity"], STEERER);
}

#[tokio::test(start_paused = true)]
async fn to_ask_what_is_logged_is_to_look_and_to_change_it_is_to_steer() {
    let guarded = Guarded::start();
    for (who, filter, code) in [
        (READER, "", Code::FailedPrecondition),
        (READER, "debug", Code::PermissionDenied),
        (STEERER, "debug", Code::FailedPrecondition),
    ] {
        let request = v1::SetLogFilterRequest { filter: filter.to_owned(), lasts: None };
        // The broker of a test has no log of its own: that is found out after the role.
        let status = guarded.registry(who).await.set_log_filter(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{who} {filter}");
    }
    assert_eq!(guarded.audited("log_filter_set").await[0]["outcome"], "denied");
}

#[tokio::test(start_paused = true)]
async fn a_driver_gets_neither_classes_nor_work_outside_its_namespaces() {
    let guarded = Guarded::start();
    let mut driver = guarded.driver(TEAM_DRIVER, "team-b").await;
    let own = driver.get_class(&format!("team-b/{CLASS}")).await.expect("its own");
    assert!(own.data.contains("team-b"));
    let foreign = driver.get_class(CLASS).await.unwrap_err();
    let missing = driver.get_class("missing").await.unwrap_err();
    assert_eq!((foreign.code(), foreign.message()), (missing.code(), missing.message()));
    let secret = driver.get_secret_of(Controller::class()).await.unwrap_err();
    assert_eq!(secret.message(), missing.message());
    assert_eq!(driver.get_secret("default", "base").await.unwrap_err().code(), Code::NotFound);

    let controller = guarded.controller(CONTROLLER).await;
    let status = controller.create("worker-0").await.unwrap_err();
    assert_eq!(reason(&status), "NO_DRIVER");
    driver.hears_nothing_for(Duration::from_secs(1)).await;

    let denied = guarded.audited("class_denied").await;
    let why: Vec<_> = denied.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert!(why[0].contains("another driver") && why[1].contains("does not exist"), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_session_is_of_no_use_to_anybody_else() {
    let guarded = Guarded::start();
    let driver = guarded.driver(DRIVER, "driver").await;
    driver.get_class(CLASS).await.expect("its own");
    let thief = guarded.driver("spiffe://test/driver-2", "thief").await;
    let thief = thief.with_token_of(&driver);
    assert_eq!(thief.get_class(CLASS).await.unwrap_err().code(), Code::FailedPrecondition);
    let stranger = guarded.broker.channel_of(STRANGER).await;
    let status = call(stranger, "/machinebroker.v1.Drivers/GetSecret").await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_over_the_session_of_another_identity_while_that_lives() {
    let guarded = Guarded::start();
    let driver = guarded.driver(DRIVER, "driver").await;
    let serving = driver.serve();
    // The same instance and boot: of the same identity it would be the same process.
    let channel = guarded.broker.channel_of("spiffe://test/driver-2").await;
    let (reject, _) = Driver::rejected(channel, hello("driver")).await;
    assert_eq!(reject.reason(), Reason::Duplicate);
    guarded.controller(CONTROLLER).await.create("worker-0").await.expect("the first one serves");
    assert_eq!(serving.served(), ["worker-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_has_no_say_about_machines_outside_its_namespaces() {
    let guarded = Guarded::start();
    let serving = guarded.driver(DRIVER, "driver").await.serve();
    let meddler = guarded.driver(TEAM_DRIVER, "team-b").await;
    meddler.still_runs("create", "worker-0");
    // What it says afterwards is read afterwards.
    meddler.get_class(&format!("team-b/{CLASS}")).await.expect("its own");
    guarded.controller(CONTROLLER).await.create("worker-0").await.expect("nobody holds it");
    assert_eq!(serving.served(), ["worker-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_one_provider_gets_nothing_of_another_by_claiming_its_machines() {
    let broker = TestBroker::of_catalog(catalog());
    let of = |provider: &str| v1::Kind {
        provider: provider.to_owned(),
        ..kind(SHARED_API_VERSION, SHARED_KIND)
    };
    let aws = v1::Hello { kinds: vec![of("aws")], ..hello("aws") };
    let aws = broker.driver_with(aws).await.serve();
    let gcp = v1::Hello { kinds: vec![of("gcp")], ..hello("gcp") };
    let mut gcp = broker.driver_with(gcp).await;
    let on_aws = class(SHARED_API_VERSION, SHARED_KIND, "on-aws");
    gcp.still_runs_of(on_aws.clone(), "create", "worker-0");
    gcp.hears_nothing_for(Duration::from_secs(1)).await;
    let request = MachineRequest { class: Some(on_aws), ..Controller::request("worker-0") };
    broker.controller().await.create_with(request).await.expect("the aws driver makes it");
    assert_eq!(aws.served(), ["worker-0"]);
    gcp.hears_nothing_for(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn who_takes_the_instance_id_of_another_identity_gets_none_of_its_work() {
    let guarded = Guarded::start();
    let mut driver = guarded.driver(DRIVER, "driver").await;
    let controller = guarded.controller(CONTROLLER).await;
    let create = controller.creating("worker-0");
    driver.take().await;
    driver.vanish();
    assert_eq!(create.error().await.code(), Code::Unknown);
    for boot_id in ["first", "second"] {
        let hello = v1::Hello { boot_id: boot_id.to_owned(), ..hello("driver") };
        let channel = guarded.broker.channel_of("spiffe://test/driver-2").await;
        let thief = Driver::welcomed(channel, hello).await;
        thief.still_runs("create", "worker-0");
        let status = controller.create("worker-0").await.unwrap_err();
        assert_eq!(reason(&status), "DRIVER_AWAY", "{boot_id}");
        thief.vanish();
    }
    let back = guarded.driver(DRIVER, "driver").await.serve();
    controller.create("worker-0").await.expect("the first one is back");
    assert_eq!(back.served(), ["worker-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_driver_of_one_namespace_leaves_the_others_to_the_general_one() {
    let guarded = Guarded::start();
    guarded.change_policy(
        "- who: spiffe://test/driver-of-team-b\n",
        "- who: spiffe://test/driver-of-other\n  driver: {kinds: [MachineClass]}\n\
         - who: spiffe://test/controller\n  controller: {kinds: [MachineClass]}\n\
         - who: spiffe://test/driver-of-team-b\n  driver: {kinds: [MachineClass], namespaces: [team-b]}\n\
         - who: spiffe://test/driver-of-team-b\n",
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    let general =
        v1::Hello { kinds: vec![kind(SHARED_API_VERSION, SHARED_KIND)], ..hello("general") };
    let general =
        Driver::welcomed(guarded.broker.channel_of(OTHER_DRIVER).await, general).await.serve();
    let mut of_aws = kind(SHARED_API_VERSION, SHARED_KIND);
    of_aws.provider = "aws".to_owned();
    let special = v1::Hello { kinds: vec![of_aws], ..hello("special") };
    let _special = Driver::welcomed(guarded.broker.channel_of(TEAM_DRIVER).await, special).await;
    let on_aws = class(SHARED_API_VERSION, SHARED_KIND, "on-aws");
    let request = MachineRequest { class: Some(on_aws), ..Controller::request("worker-0") };
    let controller = guarded.controller(CONTROLLER).await;
    controller.create_with(request).await.expect("the general driver serves the namespace");
    assert_eq!(general.served(), ["worker-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_the_policy_names_no_more_is_sent_away_with_the_reason() {
    let guarded = Guarded::start();
    let mut driver = guarded.driver(DRIVER, "driver").await;
    let mut other = guarded.driver("spiffe://test/driver-2", "driver-2").await;
    guarded
        .change_policy("[spiffe://test/driver, spiffe://test/driver-2]", "spiffe://test/driver-2");
    let status = driver.end().await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("no rule of the policy names"), "{status:?}");
    other.hears_nothing_for(Duration::from_secs(3)).await;
    let left = guarded.audited("driver_left").await;
    assert!(left[0]["message"].as_str().unwrap().contains("no rule"), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_driver_whose_namespaces_change_registers_anew() {
    let guarded = Guarded::start();
    let mut driver = guarded.driver(TEAM_DRIVER, "driver").await;
    guarded.change_policy("namespaces: [team-b]", "namespaces: [team-b, default]");
    let status = driver.end().await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("register again"), "{status:?}");
    let again = guarded.driver(TEAM_DRIVER, "driver").await;
    again.get_class(CLASS).await.expect("its own now");
}

#[tokio::test(start_paused = true)]
async fn open_streams_of_controllers_and_operators_end_with_their_role() {
    let guarded = Guarded::start();
    let mut drivers = guarded
        .registry(READER)
        .await
        .watch_drivers(v1::WatchDriversRequest::default())
        .await
        .expect("it may")
        .into_inner();
    let controller = guarded.controller(CONTROLLER).await;
    let mut submit = controller.submit().await;
    guarded.change_policy("operator: read", "autoscaler: {kinds: [\"*\"]}");
    let status = loop {
        match drivers.next().await.expect("it ends with a reason") {
            Ok(_) => {}
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::PermissionDenied);
    submit.send(1, Operation::Delete(Controller::request("worker-0")));
    assert_eq!(submit.next().await.0, 1, "what the change does not concern goes on");
    guarded.change_policy("spiffe://test/controller", "spiffe://test/other-controller");
    assert_eq!(submit.end().await.code(), Code::PermissionDenied);
}

#[tokio::test(start_paused = true)]
async fn a_broken_policy_changes_nothing_and_is_a_concern() {
    let guarded = Guarded::start();
    let mut driver = guarded.driver(DRIVER, "driver").await;
    guarded.change_policy("operator: read", "operator: reed");
    tokio::time::sleep(Duration::from_secs(10)).await;
    driver.hears_nothing_for(Duration::from_secs(3)).await;
    let mut registry = guarded.registry(READER).await;
    let status = registry.get_broker_status(v1::GetBrokerStatusRequest {}).await.expect("it may");
    let concerns = status.into_inner().concerns;
    assert!(concerns.iter().any(|concern| format!("{concern:?}").contains("reed")), "{concerns:?}");
}
