//! Requests that cannot be right: each gets a clear error, and no driver hears of it.

use std::time::Duration;

use broker_proto::v1::{ClassRef, GetVolumeIDsRequest, MachineRequest};
use broker_tests::{
    Controller, Hello, TestBroker,
    catalog::{self, SHARED_API_VERSION, SHARED_KIND},
    delivery, hello, kind, reason, retry_after,
};
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn a_kind_that_nobody_serves_is_unavailable_and_told_what_is_connected() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let error = controller.create("w").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("no driver is connected at all"), "{error}");

    let mut driver = broker.driver("a").await;
    let class = ClassRef { kind: "OtherMachineClass".to_owned(), ..Controller::class() };
    for api_version in ["other.dev/v1", ""] {
        let class = ClassRef { api_version: api_version.to_owned(), ..class.clone() };
        let error = controller.list_of(class).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert_eq!((reason(&error).as_str(), delivery(&error).as_str()), ("NO_DRIVER", "NOT_SENT"));
        assert!(error.message().contains("OtherMachineClass"), "names what was wanted: {error}");
        assert!(error.message().contains("SimMachineClass"), "and what is connected: {error}");
        assert!(retry_after(&error).is_some());
    }
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_does_not_exist_is_not_found() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    for class in [
        ClassRef { name: "huge".to_owned(), ..Controller::class() },
        ClassRef { namespace: "elsewhere".to_owned(), ..Controller::class() },
    ] {
        let error = controller.list_of(class.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert_eq!(reason(&error), "CLASS_NOT_FOUND");
        assert_eq!(delivery(&error), "NOT_SENT");
        let full_name = format!("{}/{}", class.namespace, class.name);
        assert!(error.message().contains(&full_name), "{error}");
    }
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_name_or_too_long_is_invalid_and_the_field_is_named() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let long = "a".repeat(254);
    let longer = "a".repeat(1025);
    let good = || Controller::request("w");
    let machine =
        |machine_name: &str| MachineRequest { machine_name: machine_name.to_owned(), ..good() };
    let class = |class: ClassRef| MachineRequest { class: Some(class), ..good() };
    let name = |name: &str| class(ClassRef { name: name.to_owned(), ..Controller::class() });
    let namespace =
        |name: &str| class(ClassRef { namespace: name.to_owned(), ..Controller::class() });
    let of_kind = |kind: &str| class(ClassRef { kind: kind.to_owned(), ..Controller::class() });
    let blob = "x".repeat(1024 * 1024 + 1);

    for (field, request) in [
        ("class.kind", MachineRequest { class: None, ..good() }),
        ("class.kind", of_kind("")),
        ("class.kind", of_kind(&longer)),
        ("class.name", name("")),
        ("class.name", name(&long)),
        ("class.name", name("../small")),
        ("class.name", name("Small")),
        ("class.namespace", namespace(&long)),
        ("class.namespace", namespace("a/b")),
        ("class.namespace", namespace("-")),
        (
            "class.api_version",
            class(ClassRef { api_version: longer.clone(), ..Controller::class() }),
        ),
        ("class.provider", class(ClassRef { provider: longer.clone(), ..Controller::class() })),
        ("machine_name", machine("")),
        ("machine_name", machine(&long)),
        ("machine_name", machine("worker 0")),
        ("machine_name", machine("worker\n0")),
        ("machine_name", machine("wörker")),
        ("machine_name", machine("worker/0")),
        ("machine_name", machine("..")),
        ("provider_id", MachineRequest { provider_id: longer.clone(), ..good() }),
        ("request_id", MachineRequest { request_id: longer.clone(), ..good() }),
        ("last_known_state", MachineRequest { last_known_state: blob.clone(), ..good() }),
        ("user_data", MachineRequest { user_data: Some(blob.clone().into()), ..good() }),
    ] {
        let error = controller.create_with(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{field}: {error}");
        assert!(error.message().starts_with(&format!("{field}: ")), "{field}: {error}");
        assert!(error.message().len() < 300, "{field}: {}", error.message().len());
        assert_eq!((reason(&error).as_str(), delivery(&error).as_str()), ("INVALID", "NOT_SENT"));
        assert_eq!(retry_after(&error), None, "no retry will help");
    }

    let volume_specs = vec![blob];
    let request = GetVolumeIDsRequest {
        class: Some(Controller::class()),
        volume_specs,
        ..Default::default()
    };
    let error = controller.machines.clone().get_volume_i_ds(request).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("volume_specs: "), "{error}");

    driver.hears_nothing_for(Duration::from_secs(1)).await;
    assert_eq!(broker.operations().await, [], "none of them became an operation");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_longest_names_and_data_that_are_allowed_arrive() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let name = "a".repeat(253);
    let data = "x".repeat(1024 * 1024);
    let create = broker.controller().await.creating_with(MachineRequest {
        user_data: Some(data.clone().into()),
        last_known_state: data.clone(),
        ..Controller::request(&name)
    });
    let params = driver.serve_one().await.params.unwrap();
    assert_eq!((params.machine_name, params.last_known_state.len()), (name, data.len()));
    create.answer().await.unwrap();
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_larger_than_a_message_may_be_ends_alone() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let waiting = controller.creating("w");
    let operation = driver.take().await;
    let user_data = Some(vec![0; 5 * 1024 * 1024].into());
    let huge = MachineRequest { user_data, ..Controller::request("huge") };
    assert_eq!(controller.create_with(huge).await.unwrap_err().code(), Code::OutOfRange);
    driver.succeed(&operation);
    waiting.answer().await.expect("the same connection goes on");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_not_the_classs_own_is_invalid() {
    let broker = TestBroker::of_catalog(catalog::catalog());
    let kinds = vec![kind(SHARED_API_VERSION, SHARED_KIND)];
    let mut driver = broker.driver_with(Hello { kinds, ..hello("a") }).await;
    let class = ClassRef {
        provider: "gcp".to_owned(),
        ..catalog::class(SHARED_API_VERSION, SHARED_KIND, "on-aws")
    };
    let error = broker.controller().await.list_of(class).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("aws") && error.message().contains("gcp"), "{error}");
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    driver.vanish();
    broker.at_rest().await;
}
