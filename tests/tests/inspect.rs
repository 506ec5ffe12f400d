//! What operators and probes see.

use std::time::Duration;

use broker_proto::v1::{
    Delivery, ListOperationsRequest, Operation, registry_client::RegistryClient,
};
use broker_tests::{Controller, Hello, TestBroker, failed, hello, kind};
use tokio_stream::StreamExt as _;
use tonic::{Code, transport::Channel};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

fn age(operation: &Operation) -> Duration {
    operation.age.expect("every operation has an age").try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_running_operation_shows_how_far_it_got_and_a_finished_one_how_it_ended() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver_with(Hello { capacity: 1, ..hello("a") }).await;
    let create = controller.creating("w");
    let frame = driver.next_operation().await;
    let queued = controller.creating("queued");
    let running = broker.until_running(2).await;
    let first = &running[0];
    assert_eq!((first.verb.as_str(), first.machine_name.as_str()), ("create", "w"));
    assert_eq!(first.class, Some(Controller::class()));
    assert_eq!((&first.driver_instance, &first.session_id), (&"a".to_owned(), &driver.session));
    assert!(first.submitted_at.is_some() && !first.finished && first.outcome.is_empty());
    assert_eq!((first.delivery(), running[1].delivery()), (Delivery::Sent, Delivery::NotSent));

    driver.accept(&frame);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let running = broker.until_running(2).await;
    assert_eq!(running[0].delivery(), Delivery::Accepted);
    assert!(age(&running[0]) >= Duration::from_secs(10));

    driver.answer(&frame, failed(Code::PermissionDenied, "not with this role"));
    create.error().await;
    driver.serve_one().await;
    queued.answer().await.unwrap();
    let finished = broker.operations().await;
    let outcomes: Vec<_> =
        finished.iter().map(|o| (o.machine_name.as_str(), o.outcome.as_str())).collect();
    assert_eq!(outcomes, [("queued", "OK"), ("w", "PERMISSION_DENIED")], "newest first");
    assert!(finished.iter().all(|o| o.finished && o.delivery() == Delivery::Answered));
    assert_eq!(finished[1].message, "not with this role");
    assert!(age(&finished[1]) >= Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(broker.operations().await, finished, "it ages no more");

    let lost = controller.creating("lost");
    driver.take().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    driver.vanish();
    lost.error().await;
    let lost = broker.operations().await.remove(0);
    assert_eq!((lost.outcome.as_str(), lost.delivery()), ("LOST", Delivery::Accepted));
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn as_many_finished_operations_are_listed_as_were_asked_for_and_old_ones_are_forgotten() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let driver = broker.driver("a").await.serve();
    for n in 0..1_050 {
        controller.status(&format!("w-{n}")).await.unwrap();
    }
    let mut registry = RegistryClient::new(broker.channel().await);
    for (asked, listed) in [(None, 100), (Some(0), 0), (Some(3), 3), (Some(u32::MAX), 1_000)] {
        let request = ListOperationsRequest { finished: asked };
        let operations = registry.list_operations(request).await.unwrap().into_inner().operations;
        assert_eq!(operations.len(), listed, "of {asked:?}");
        let names = operations.into_iter().map(|operation| operation.machine_name);
        assert!(names.eq((1_050 - listed..1_050).rev().map(|n| format!("w-{n}"))), "newest first");
    }
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn drivers_are_listed_in_the_order_they_came_and_by_kind_where_asked() {
    let broker = TestBroker::start();
    let mut drivers = Vec::new();
    for (name, of) in [("c", "One"), ("a", "Two"), ("b", "One")] {
        let kinds = vec![kind("x.dev/v1", of)];
        drivers.push(broker.driver_with(Hello { kinds, ..hello(name) }).await);
    }
    let names = |listed: Vec<broker_proto::v1::Driver>| {
        listed.into_iter().map(|driver| driver.instance_id).collect::<Vec<_>>()
    };
    assert_eq!(names(broker.drivers().await), ["c", "a", "b"]);
    assert_eq!(names(broker.drivers_of("One").await), ["c", "b"]);
    assert_eq!(names(broker.drivers_of("Three").await), Vec::<String>::new());
    drop(drivers);
    broker.at_rest().await;
}

async fn health(health: &mut HealthClient<Channel>, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.to_owned() };
    health.check(request).await.expect("the service is known").into_inner().status()
}

#[tokio::test(start_paused = true)]
async fn health_is_serving_until_the_broker_begins_to_stop() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver("a").await;
    let create = controller.creating("w");
    let operation = driver.take().await;
    let mut probe = HealthClient::new(broker.channel().await);
    let services = ["", "machinebroker.v1.Drivers", "machinebroker.v1.Machines"];
    for service in services {
        assert_eq!(health(&mut probe, service).await, ServingStatus::Serving, "{service:?}");
    }

    let stop = async {
        broker.broker.stop(Duration::from_secs(30)).await;
    };
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for service in services {
            assert_eq!(health(&mut probe, service).await, ServingStatus::NotServing, "{service:?}");
        }
        // One can still look while it stops.
        let looking = health(&mut probe, "machinebroker.v1.Registry").await;
        assert_eq!(looking, ServingStatus::Serving);
        assert_eq!(broker.running().await.len(), 1);
        driver.succeed(&operation);
        create.answer().await.unwrap();
        driver.unregister().await.unwrap();
    };
    tokio::join!(stop, meanwhile);
}

#[tokio::test(start_paused = true)]
async fn reflection_lists_the_services() {
    let broker = TestBroker::start();
    let mut reflection = ServerReflectionClient::new(broker.channel().await);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answers = reflection.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    let answer = answers.into_inner().next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
        panic!("not a list of services: {answer:?}")
    };
    let names: Vec<_> = services.service.into_iter().map(|service| service.name).collect();
    for name in ["Drivers", "Machines", "Registry"] {
        assert!(names.contains(&format!("machinebroker.v1.{name}")), "{names:?}");
    }
    assert!(names.contains(&"grpc.health.v1.Health".to_owned()), "{names:?}");
}
