//! What the broker of 2018 got wrong, each shown to be right here.
//!
//! Told elsewhere: no deadline (`deadlines.rs`), callers of a dead driver that hung (`disconnect.rs`,
//! `liveness.rs`), a first message without a registration (`registration.rs`), a half-open stream
//! that blocked the real driver's return (`seating.rs`), classes and secrets for anyone
//! (`classes.rs`), no driver as a fake success (`bad_input.rs`), ids that collide with the
//! register frame's (`operations.rs`, and the session's own tests for those that wrap).

use std::time::Duration;

use broker_proto::v1::{
    CreateResponse, DeleteResponse, ListResponse, MachineRequest, driver_side::Response,
};
use broker_tests::{Controller, Driver, Hello, Service, TestBroker, hello, machine};
use futures::future::join_all;

fn created(provider_id: &str) -> Response {
    Response::Create(CreateResponse { provider_id: provider_id.to_owned(), ..Default::default() })
}

/// Real threads: the original lost 28 of 12,800 replies that were faster than its bookkeeping.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_reply_is_too_fast() {
    let broker = TestBroker::start();
    let driver = broker.driver_with(Hello { capacity: 64, ..hello("a") }).await.serve();
    let callers = (0..64).map(|caller| {
        let broker = &broker;
        async move {
            let controller = broker.controller().await;
            for n in 0..50 {
                let request =
                    Controller::request_within(&format!("w-{caller}-{n}"), Duration::from_secs(60));
                controller.create_with(request).await.expect("every reply is heard");
            }
        }
    });
    join_all(callers).await;
    assert_eq!(driver.served().len(), 64 * 50);
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_reply_is_ignored() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut native = broker.driver("a").await;
    let create = controller.creating("w");
    let operation = native.take().await;
    for provider_id in ["first", "second", "third"] {
        native.answer(&operation, machine(provider_id));
    }
    assert_eq!(create.answer().await.unwrap().provider_id, "first");
    let create = controller.creating("x");
    let operation = native.take().await;
    native.answer(&operation, machine("its own"));
    assert_eq!(create.answer().await.unwrap().provider_id, "its own");
    native.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_of_the_wrong_kind_harms_nobody() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.historic().await;
    let create = controller.creating("w");
    let id = driver.next_operation().await.operation_id;
    driver.say(id, "create", Response::Delete(DeleteResponse::default()));
    driver.say(id, "list", Response::List(ListResponse::default()));
    driver.say(id + 1, "create", created("of nobody"));
    driver.say(-1, "create", created("of nobody"));
    driver.say(1, "register", Response::Registration(Default::default()));
    driver.say_nothing(id, "create");
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    assert!(!create.is_answered(), "none of these is its answer");
    driver.say(id, "create", created("right"));
    assert_eq!(create.answer().await.unwrap().provider_id, "right");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_while_it_is_written_to_ends_nothing_but_itself() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    for round in 0..20 {
        let dying = broker.driver(&format!("dying-{round}")).await;
        let create = controller.creating(&format!("w-{round}"));
        dying.vanish();
        create.error().await;
        broker.until_drivers(0).await;
    }
    let well = broker.driver("well").await.serve();
    controller.create("x").await.expect("the broker is well");
    well.vanish();
    broker.at_rest().await;
}

/// The client of 2018 dials again every five seconds for ever, and never closes what it leaks.
#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_that_leaks_its_old_connections_is_served_on_the_newest() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut leaked = Vec::new();
    let mut driver = broker.historic().await;
    for _ in 0..5 {
        let channel = broker.channel().await;
        leaked.push(channel.clone());
        driver.half_close().await.unwrap();
        broker.until_drivers(0).await;
        let (group, _) = broker_tests::API_VERSION.split_once('/').unwrap();
        driver = Driver::historic(channel, Service::Infra, broker_tests::KIND, group).await;
        broker.until_drivers(1).await;
    }
    let create = controller.creating("w");
    let operation = driver.next_operation().await;
    driver.say(operation.operation_id, "create", created("aws:///1"));
    assert_eq!(create.answer().await.unwrap().provider_id, "aws:///1");
    driver.get_class("small").await.expect("its connection is known");
    driver.vanish();
    drop(leaked);
    broker.at_rest().await;
}

/// Drivers that come and go from many threads while others work.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_map_of_drivers_bears_everyone_at_once() {
    let broker = TestBroker::start();
    let staying = broker.driver_with(Hello { capacity: 100, ..hello("staying") }).await.serve();
    let coming_and_going = (0..8).map(|n| {
        let broker = &broker;
        async move {
            for _ in 0..20 {
                let kinds = vec![broker_tests::kind("x.dev/v1", "Passing")];
                let passing = Hello { kinds, ..hello(&format!("passing-{n}")) };
                broker.driver_with(passing).await.vanish();
            }
        }
    });
    let working = (0..8).map(|n| {
        let broker = &broker;
        async move {
            let controller = broker.controller().await;
            for m in 0..50 {
                controller.create(&format!("w-{n}-{m}")).await.expect("the one that stays works");
                broker.drivers().await;
            }
        }
    });
    tokio::join!(join_all(coming_and_going), join_all(working));
    staying.vanish();
    broker.at_rest().await;
}

/// Secrets and user data have types that cannot be printed; a caller's words do not come back either.
#[tokio::test(start_paused = true)]
async fn no_error_repeats_the_user_data() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let user_data = Some("password: hunter2".into());
    let request = MachineRequest { user_data, ..Controller::request("w") };
    let controller = broker.controller().await;
    let create = controller.creating_with(request.clone());
    driver.take().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    driver.vanish();
    let lost = create.error().await;
    let away = controller.create_with(request).await.unwrap_err();
    let shown = format!("{lost:?} {away:?} {:?}", broker.operations().await);
    assert!(!shown.contains("hunter2"), "{shown}");
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_that_answers_nonsense_and_moves_on_does_not_block_what_waits() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.historic().await;
    let botched = controller.creating("botched");
    let operation = driver.next_operation().await;
    let waiting = controller.creating("waiting");
    broker.until_running(2).await;

    driver.say_nothing(operation.operation_id, "create");

    let next = driver.next_operation().await;
    driver.say(next.operation_id, "create", created("id"));
    waiting.answer().await.unwrap();
    drop(botched);
}
