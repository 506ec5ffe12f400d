//! What a controller sees of an operation that goes well, or that the driver says no to.

use std::time::Duration;

use broker_proto::v1::{
    Address, GetVolumeIDsResponse, MachineRequest, MachineResponse, OperationResult,
    operation_result::Payload,
};
use broker_tests::{
    API_VERSION, Controller, Hello, KIND, TestBroker,
    catalog::{self, SHARED_API_VERSION, SHARED_KIND},
    delivery, fact, failed, hello, kind, machine, page, reason, retry_after,
};
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn a_create_reaches_the_driver_with_all_its_fields_and_the_whole_answer_comes_back() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let mut request = tonic::Request::new(MachineRequest {
        provider_id: "sim:///7".to_owned(),
        last_known_state: "half made".to_owned(),
        user_data: Some("#cloud-config".into()),
        request_id: "request-1".to_owned(),
        ..Controller::request("worker-0")
    });
    request.set_timeout(Duration::from_secs(60));

    let create = controller.creating_with(request);
    let operation = driver.take().await;
    assert_eq!(operation.operation_type, "create");
    assert!(operation.operation_id > 1, "1 is the register frame's");
    let params = operation.params.clone().expect("an operation has params");
    assert_eq!(params.machine_name, "worker-0");
    assert_eq!(params.machine_id, "sim:///7");
    assert_eq!(params.last_known_state, "half made");
    assert_eq!(params.user_data.as_deref(), Some(b"#cloud-config".as_slice()));
    assert_eq!(params.request_id, "request-1");
    assert_eq!(params.credentials, "", "drivers ask for secrets");
    assert_eq!(params.class, Some(Controller::class()));
    assert_ne!(params.secret_revision, 0, "the class has a secret");
    let meta = params.machine_class.expect("historic drivers crash without it");
    assert_eq!(
        meta.name,
        "/apis/sim.machinebroker.dev/v1alpha1/namespaces/default/simmachineclasses/small"
    );
    assert_ne!(meta.revision, 0);
    assert_eq!(meta.session_token, "", "the token is told once, in the Welcome");
    let time_left = Duration::try_from(params.time_left.expect("the time left")).unwrap();
    assert!(time_left <= Duration::from_secs(60) && time_left > Duration::from_secs(58));

    let made = MachineResponse {
        provider_id: "sim:///7".to_owned(),
        node_name: "worker-0.example".to_owned(),
        addresses: vec![Address { r#type: "InternalIP".into(), address: "10.0.0.7".into() }],
        last_known_state: "made".to_owned(),
    };
    let payload = Some(Payload::Machine(made.clone()));
    driver.answer(&operation, OperationResult { payload, ..Default::default() });
    assert_eq!(create.answer().await.expect("the driver succeeded"), made);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn every_verb_reaches_a_native_driver_under_its_name() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;

    let calls = async {
        assert_eq!(controller.create("w").await.unwrap().provider_id, "id-w");
        assert_eq!(controller.initialize("w").await.unwrap().provider_id, "id-w");
        assert_eq!(controller.status("w").await.unwrap().provider_id, "id-w");
        assert_eq!(controller.list().await.unwrap()[0].machine_name, driver_session(&broker).await);
        assert_eq!(controller.volume_ids(&["{\"a\":1}"]).await.unwrap(), ["vol-1"]);
        assert_eq!(controller.delete("w").await.unwrap().provider_id, "id-w");
    };
    let served = async {
        let mut verbs = Vec::new();
        for _ in 0..6 {
            let operation = driver.take().await;
            if operation.operation_type == "get_volume_ids" {
                assert_eq!(operation.params.as_ref().unwrap().volume_specs, ["{\"a\":1}"]);
                let ids = GetVolumeIDsResponse { volume_ids: vec!["vol-1".to_owned()] };
                let payload = Some(Payload::VolumeIds(ids));
                driver.answer(&operation, OperationResult { payload, ..Default::default() });
            } else {
                driver.succeed(&operation);
            }
            verbs.push(operation.operation_type);
        }
        verbs
    };
    let ((), verbs) = tokio::join!(calls, served);
    assert_eq!(verbs, ["create", "initialize", "get_status", "list", "get_volume_ids", "delete"]);
    driver.vanish();
    broker.at_rest().await;
}

/// The harness's driver lists one machine, named after its session.
async fn driver_session(broker: &TestBroker) -> String {
    broker.drivers().await[0].session_id.clone()
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_before_accepted_counts() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let create = broker.controller().await.creating("w");
    let operation = driver.next_operation().await;
    driver.answer(&operation, machine("at-once"));
    driver.accept(&operation);
    assert_eq!(create.answer().await.unwrap().provider_id, "at-once");
    driver.forget(&operation);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_several_pages_is_one_answer() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let list = broker.controller().await.listing();
    let operation = driver.take().await;
    driver.answer(&operation, page(["a", "b"], true));
    driver.answer(&operation, page(["c"], true));
    driver.answer(&operation, page([], true));
    assert!(!list.is_answered());
    driver.answer(&operation, page(["d"], false));
    let names: Vec<_> = list.answer().await.unwrap().into_iter().map(|m| m.machine_name).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn pages_that_end_with_a_bare_success_are_not_lost() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let list = broker.controller().await.listing();
    let operation = driver.take().await;
    driver.answer(&operation, page(["a", "b"], true));
    driver.answer(&operation, OperationResult::default());
    assert_eq!(list.answer().await.unwrap().len(), 2);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_half_way_is_a_failure_and_not_half_a_list() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let list = broker.controller().await.listing();
    let operation = driver.take().await;
    driver.answer(&operation, page(["a"], true));
    driver.answer(&operation, failed(Code::Internal, "page 2 is broken"));
    let error = list.error().await;
    assert_eq!((error.code(), error.message()), (Code::Internal, "page 2 is broken"));
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_longer_than_a_frame_is_still_one_answer() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let list = broker.controller().await.listing();
    let operation = driver.take().await;
    let names: Vec<String> = (0..1_000).map(|n| format!("{n:01000}")).collect();
    for _ in 0..6 {
        driver.answer(&operation, page(names.iter().map(String::as_str), true));
    }
    driver.answer(&operation, page([], false));
    assert_eq!(list.answer().await.expect("6 MB").len(), 6_000);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_uninitialized_machine_is_an_error_that_carries_its_provider_id() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let create = broker.controller().await.creating("w");
    let operation = driver.take().await;
    let result = OperationResult {
        code: 17,
        message: "the disk is not attached".to_owned(),
        ..machine("sim:///9")
    };
    driver.answer(&operation, result);
    let error = create.error().await;
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(error.message(), "the disk is not attached");
    assert_eq!(reason(&error), "UNINITIALIZED");
    assert_eq!(delivery(&error), "ANSWERED");
    assert_eq!(fact(&error, "provider_id").as_deref(), Some("sim:///9"));
    assert_eq!(fact(&error, "node_name").as_deref(), Some("node-sim:///9"));
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_drivers_error_keeps_its_code_message_and_retry_time() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    for (code, name) in [
        (Code::NotFound, "NOT_FOUND"),
        (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
        (Code::PermissionDenied, "PERMISSION_DENIED"),
        (Code::Unavailable, "UNAVAILABLE"),
        (Code::Cancelled, "CANCELLED"),
    ] {
        let create = controller.creating("w");
        let operation = driver.take().await;
        let retry_after_7_s = Some(prost_types::Duration { seconds: 7, nanos: 0 });
        let result =
            OperationResult { retry_after: retry_after_7_s, ..failed(code, "the cloud says no") };
        driver.answer(&operation, result);
        let error = create.error().await;
        assert_eq!((error.code(), error.message()), (code, "the cloud says no"));
        assert_eq!(reason(&error), name);
        assert_eq!(delivery(&error), "ANSWERED");
        assert_eq!(fact(&error, "driver_instance").as_deref(), Some("a"));
        assert!(fact(&error, "operation_id").is_some());
        assert_eq!(retry_after(&error), Some(Duration::from_secs(7)));
    }
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_time_that_makes_no_sense_is_left_out() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    for (seconds, nanos) in [(-1, 0), (i64::MIN, i32::MIN), (0, -1), (i64::MAX, i32::MAX)] {
        let create = controller.creating("w");
        let operation = driver.take().await;
        let nonsense = Some(prost_types::Duration { seconds, nanos });
        let result = OperationResult { retry_after: nonsense, ..failed(Code::Aborted, "no") };
        driver.answer(&operation, result);
        assert_eq!(create.error().await.code(), Code::Aborted, "{seconds}.{nanos}");
    }
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_code_that_nobody_knows_is_unknown_and_an_endless_message_ends() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let create = broker.controller().await.creating("w");
    let operation = driver.take().await;
    let message = "é".repeat(100_000);
    driver.answer(&operation, OperationResult { code: -4711, message, ..Default::default() });
    let error = create.error().await;
    assert_eq!(error.code(), Code::Unknown);
    assert!(error.message().len() < 2_000 && error.message().ends_with("é…"));
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_stays_small_enough_to_arrive_whatever_the_driver_puts_into_it() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let create = broker.controller().await.creating("w");
    let operation = driver.take().await;
    let made = MachineResponse {
        provider_id: "sim:///1".to_owned(),
        last_known_state: "x".repeat(100_000),
        ..Default::default()
    };
    driver.answer(
        &operation,
        OperationResult {
            code: 17,
            message: "m".repeat(100_000),
            payload: Some(Payload::Machine(made)),
            ..Default::default()
        },
    );
    let error = create.error().await;
    assert_eq!(
        (error.code(), reason(&error).as_str()),
        (Code::FailedPrecondition, "UNINITIALIZED")
    );
    assert_eq!(fact(&error, "provider_id").as_deref(), Some("sim:///1"));
    assert_eq!(fact(&error, "last_known_state"), None, "half a state is worse than none");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_a_driver_tells_before_it_starts_is_its_answer() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let create = broker.controller().await.creating("w");
    let operation = driver.next_operation().await;
    driver.answer(&operation, failed(Code::Unavailable, "the provider has an outage"));
    let error = create.error().await;
    assert_eq!((error.code(), delivery(&error).as_str()), (Code::Unavailable, "ANSWERED"));
    assert_eq!(error.message(), "the provider has an outage");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_verb_that_the_driver_did_not_declare_is_never_sent() {
    let broker = TestBroker::start();
    let verbs = vec!["create".to_owned(), "delete".to_owned()];
    let mut driver = broker.driver_with(Hello { verbs, ..hello("a") }).await;
    let error = broker.controller().await.status("w").await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert_eq!(reason(&error), "VERB_NOT_IMPLEMENTED");
    assert_eq!(delivery(&error), "NOT_SENT");
    assert!(error.message().contains("get_status") && error.message().contains(KIND), "{error}");
    driver.hears_nothing_for(Duration::from_secs(10)).await;
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_verb_goes_to_the_instance_that_declares_it() {
    let broker = TestBroker::start();
    let verbs = vec!["create".to_owned()];
    let mut poor = broker.driver_with(Hello { verbs, ..hello("poor") }).await;
    let rich = broker.driver("rich").await.serve();
    let controller = broker.controller().await;
    for n in 0..10 {
        controller.status(&format!("w-{n}")).await.expect("one of them can");
    }
    poor.hears_nothing_for(Duration::from_secs(1)).await;
    rich.vanish();
    poor.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_version_left_empty_is_the_one_that_is_connected() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let mut class = Controller::class();
    class.api_version.clear();
    class.namespace.clear();
    let create = controller
        .creating_with(MachineRequest { class: Some(class.clone()), ..Controller::request("w") });
    let operation = driver.serve_one().await;
    assert_eq!(operation.params.unwrap().class, Some(Controller::class()));
    create.answer().await.unwrap();

    let second = Hello { kinds: vec![kind("sim.machinebroker.dev/v2", KIND)], ..hello("b") };
    let second = broker.driver_with(second).await;
    let error = controller.list_of(class).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains(API_VERSION), "names both: {error}");
    second.vanish();
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_for_one_provider_is_preferred_to_one_for_all() {
    let broker = TestBroker::of_catalog(catalog::catalog());
    let mut of_aws = kind(SHARED_API_VERSION, SHARED_KIND);
    of_aws.provider = "aws".to_owned();
    let mut aws = broker.driver_with(Hello { kinds: vec![of_aws], ..hello("aws") }).await;
    let all = vec![kind(SHARED_API_VERSION, SHARED_KIND)];
    let mut general = broker.driver_with(Hello { kinds: all, ..hello("general") }).await;
    let controller = broker.controller().await;
    let on = |name: &str| MachineRequest {
        class: Some(catalog::class(SHARED_API_VERSION, SHARED_KIND, name)),
        ..Controller::request("w")
    };

    for (class, driver) in [("on-aws", &mut aws), ("on-gcp", &mut general)] {
        let create = controller.creating_with(on(class));
        let operation = driver.serve_one().await;
        assert_eq!(operation.params.unwrap().class.unwrap().name, class);
        create.answer().await.unwrap();
    }

    // Without its own driver a provider's classes go to the general one.
    aws.vanish();
    broker.until_drivers(1).await;
    let create = controller.creating_with(on("on-aws"));
    general.serve_one().await;
    create.answer().await.unwrap();
    general.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_serves_the_three_verbs_of_its_time_in_frames_of_its_time() {
    use broker_proto::v1::{
        CreateResponse, DeleteResponse, ListResponse, ListedMachine, driver_side::Response,
    };
    let broker = TestBroker::start();
    let mut driver = broker.historic().await;
    let controller = broker.controller().await;

    let create = controller.creating_with(MachineRequest {
        user_data: Some("x".into()),
        request_id: "r".to_owned(),
        last_known_state: "s".to_owned(),
        ..Controller::request("w")
    });
    let operation = driver.next_operation().await;
    let params = operation.params.clone().unwrap();
    assert_eq!((params.machine_name.as_str(), params.machine_id.as_str()), ("w", ""));
    let today = (params.class, params.time_left, params.user_data, params.secret_revision);
    assert_eq!(today, (None, None, None, 0), "fields that it does not know");
    assert_eq!((params.request_id + &params.last_known_state).as_str(), "");
    assert!(params.machine_class.unwrap().name.starts_with("/apis/"), "it crashes without");
    let made = CreateResponse {
        provider_id: "aws:///1".to_owned(),
        node_name: "node-1".to_owned(),
        error: String::new(),
    };
    driver.say(operation.operation_id, "create", Response::Create(made));
    let made = create.answer().await.unwrap();
    assert_eq!((made.provider_id.as_str(), made.node_name.as_str()), ("aws:///1", "node-1"));

    let list = controller.listing();
    let operation = driver.next_operation().await;
    assert!(operation.params.as_ref().unwrap().machine_class.is_some(), "it passes nil on");
    let listed = ListedMachine { machine_id: "aws:///1".to_owned(), machine_name: "w".to_owned() };
    let list_response = ListResponse { machines: vec![listed], error: String::new() };
    driver.say(operation.operation_id, "list", Response::List(list_response));
    assert_eq!(list.answer().await.unwrap()[0].provider_id, "aws:///1");

    let request = MachineRequest { provider_id: "aws:///1".to_owned(), ..Controller::request("w") };
    let (deleted, ()) = tokio::join!(controller.delete_with(request), async {
        let operation = driver.next_operation().await;
        assert_eq!(operation.params.as_ref().unwrap().machine_id, "aws:///1");
        let error = "the cloud says no".to_owned();
        driver.say(operation.operation_id, "delete", Response::Delete(DeleteResponse { error }));
    });
    let error = deleted.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unknown, "the cloud says no"));
    assert_eq!(delivery(&error), "ANSWERED");

    let error = controller.delete("w").await.unwrap_err();
    assert_eq!(reason(&error), "PROVIDER_ID_REQUIRED");
    assert_eq!(controller.status("w").await.unwrap_err().code(), Code::Unimplemented);
    driver.hears_nothing_for(Duration::from_secs(60)).await;
    driver.unregister().await.unwrap();
    broker.at_rest().await;
}
