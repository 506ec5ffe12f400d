//! What a controller learns when a driver goes away, and where its retry goes.

use std::time::Duration;

use broker::registry::Policy;
use broker_proto::v1::{MachineRequest, OperationResult, Resumed, driver_side::Response};
use broker_tests::{
    Controller, Driver, Hello, TestBroker, delivery, fact, failed, hello, machine, reason,
    retry_after,
};
use futures::future::join_all;
use tokio::time::Instant;
use tonic::{Code, Status};

fn rebooted(instance: &str) -> Hello {
    Hello { boot_id: "second".to_owned(), ..hello(instance) }
}

/// Told at once, and how far it got.
fn is_lost(error: &Status, expected: &str) {
    assert_eq!(reason(error), "DRIVER_LOST");
    assert_eq!(delivery(error), expected);
    let code = if expected == "NOT_SENT" { Code::Unavailable } else { Code::Unknown };
    assert_eq!(error.code(), code, "never a plain failure for what may be running");
    assert!(retry_after(error).is_some() && fact(error, "operation_id").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stream_cut_at_any_frame_of_a_create_tells_the_caller_how_far_it_got() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let began = Instant::now();

    // Before the operation's frame: it waits behind another one.
    let mut driver = broker.driver_with(Hello { capacity: 1, ..hello("a") }).await;
    let ahead = controller.creating("ahead");
    driver.take().await;
    let create = controller.creating("unsent");
    broker.until_running(2).await;
    driver.vanish();
    is_lost(&ahead.error().await, "ACCEPTED");
    let error = create.error().await;
    assert_eq!((error.code(), delivery(&error).as_str()), (Code::Unavailable, "NOT_SENT"));

    // After it.
    let mut driver = broker.driver("b").await;
    let create = controller.creating("sent");
    driver.next_operation().await;
    driver.vanish();
    let error = create.error().await;
    is_lost(&error, "SENT");
    assert_eq!(fact(&error, "driver_instance").as_deref(), Some("b"));

    // After Accepted.
    let mut driver = broker.driver("c").await;
    let create = controller.creating("accepted");
    driver.take().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    driver.vanish();
    is_lost(&create.error().await, "ACCEPTED");

    // After the result.
    let mut driver = broker.driver("d").await;
    let create = controller.creating("answered");
    driver.serve_one().await;
    driver.half_close().await.unwrap();
    assert_eq!(create.answer().await.unwrap().provider_id, "id-answered");

    assert!(began.elapsed() < Duration::from_secs(3), "never a hang");
    broker.at_rest().await;
}

/// Instance "a" with a create of "w" that it accepted, and then it vanished.
async fn lose_a_create(broker: &TestBroker, controller: &Controller) -> Status {
    let mut driver = broker.driver("a").await;
    let create = controller.creating("w");
    driver.take().await;
    broker
        .until_drivers_are("busy", |drivers| {
            drivers.iter().any(|driver| driver.instance_id == "a" && driver.in_flight == 1)
        })
        .await;
    driver.vanish();
    create.error().await
}

#[tokio::test(start_paused = true)]
async fn what_may_still_run_is_sent_to_nobody_else_until_its_instance_is_back() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    is_lost(&lose_a_create(&broker, &controller).await, "ACCEPTED");
    let mut other = broker.driver("b").await;

    let retry = (controller.create("w").await, "ACCEPTED");
    let another = (controller.delete("w").await, "NOT_SENT");
    for (error, known) in [retry, another] {
        let error = error.unwrap_err();
        assert_eq!((error.code(), reason(&error).as_str()), (Code::Unavailable, "DRIVER_AWAY"));
        assert_eq!(delivery(&error), known);
        assert_eq!(fact(&error, "driver_instance").as_deref(), Some("a"));
        assert!(retry_after(&error).is_some());
    }
    other.hears_nothing_for(Duration::from_secs(1)).await;

    // Other machines are not concerned, and who waits is served when the instance is back.
    let elsewhere = controller.creating("elsewhere");
    other.serve_one().await;
    elsewhere.answer().await.unwrap();
    let waiting = controller
        .creating_with(MachineRequest { wait_for_driver: true, ..Controller::request("w") });
    other.hears_nothing_for(Duration::from_secs(60)).await;
    let mut back = broker.driver("a").await;
    let operation = back.take().await;
    assert_eq!(operation.params.as_ref().unwrap().machine_name, "w");
    back.answer(&operation, machine("the first one's"));
    assert_eq!(waiting.answer().await.unwrap().provider_id, "the first one's");
    back.vanish();
    other.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_turned_away_leaves_the_machine_to_the_instance_that_is_still_at_it() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    lose_a_create(&broker, &controller).await;
    // It is back, and about to stop what nobody waits for any more.
    let mut back = broker.driver("a").await;
    let retry = controller.creating("w");
    let operation = back.next_operation().await;
    back.answer(&operation, failed(Code::Aborted, "the create of machine w is being stopped"));
    assert_eq!(retry.error().await.code(), Code::Aborted);

    let mut other = broker.driver("b").await;
    back.vanish();
    broker.until_drivers(1).await;
    let error = controller.create("w").await.unwrap_err();
    assert_eq!(reason(&error), "DRIVER_AWAY");
    other.hears_nothing_for(Duration::from_secs(1)).await;
    other.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn what_ran_in_a_process_that_ended_may_run_anywhere() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    lose_a_create(&broker, &controller).await;
    let restarted = broker.driver_with(rebooted("a")).await.serve();
    let other = broker.driver("b").await.serve();
    controller.create("w").await.expect("whichever of the two");
    restarted.vanish();
    other.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_keeps_no_table_knows_nothing_on_a_new_stream() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let forgetful = || Hello { resume: false, ..hello("a") };
    let mut driver = broker.driver_with(forgetful()).await;
    let create = controller.creating("w");
    driver.take().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    driver.vanish();
    is_lost(&create.error().await, "ACCEPTED");
    let mut back = broker.driver_with(forgetful()).await;
    let (created, _) = tokio::join!(controller.create("w"), back.serve_one());
    created.unwrap();
    back.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_that_registers_again_has_ended_what_it_did() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.historic().await;
    let create = controller.creating("w");
    driver.next_operation().await;
    driver.vanish();
    is_lost(&create.error().await, "ACCEPTED");
    broker.until_drivers(0).await;
    assert_eq!(reason(&controller.create("w").await.unwrap_err()), "DRIVER_AWAY");

    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut back = broker.historic().await;
    let retry = controller.creating("w");
    let operation = back.next_operation().await;
    let made = broker_proto::v1::CreateResponse::default();
    back.say(operation.operation_id, "create", Response::Create(made));
    retry.answer().await.unwrap();
    back.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_waited_for_longer_than_it_could_have_run() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let began = Instant::now();
    lose_a_create(&broker, &controller).await;
    let other = broker.driver("b").await.serve();
    tokio::time::sleep(Duration::from_secs(20 * 60) - began.elapsed()).await;
    assert_eq!(reason(&controller.create("w").await.unwrap_err()), "DRIVER_AWAY");
    tokio::time::sleep(Duration::from_secs(61)).await;
    controller.create("w").await.expect("its deadline and a minute are over");
    other.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_lost_unsent_does_not_free_the_machine() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    lose_a_create(&broker, &controller).await;
    // The instance comes back, is too busy for the retry, and goes again.
    let mut back = broker.driver_with(Hello { capacity: 1, ..hello("a") }).await;
    let busy = controller.creating("busy");
    back.take().await;
    let retry = controller.creating("w");
    broker.until_running(2).await;
    back.vanish();
    busy.error().await;
    assert_eq!(delivery(&retry.error().await), "ACCEPTED", "still that of the first request");
    let mut other = broker.driver("b").await;
    assert_eq!(reason(&controller.create("w").await.unwrap_err()), "DRIVER_AWAY");
    other.hears_nothing_for(Duration::from_secs(1)).await;
    other.vanish();
    broker.at_rest().await;
}

fn resumed(result: Option<OperationResult>) -> Response {
    Response::Resumed(Resumed {
        verb: "create".to_owned(),
        class: Some(Controller::class()),
        machine_name: "w".to_owned(),
        result,
        ..Default::default()
    })
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_resumes_after_a_restart_of_the_broker_meets_no_other_instance() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let resuming = broker.driver("a").await;
    resuming.say(0, "resumed", resumed(None));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Many others: by the hash alone it would almost surely be one of them.
    let mut others: Vec<Driver> = Vec::new();
    for n in 0..20 {
        others.push(broker.driver(&format!("other-{n}")).await);
    }
    resuming.vanish();
    broker.until_drivers(20).await;
    assert_eq!(reason(&controller.create("w").await.unwrap_err()), "DRIVER_AWAY");

    let mut back = broker.driver("a").await;
    let retry = controller.creating("w");
    back.serve_one().await;
    retry.answer().await.unwrap();
    back.vanish();
    drop(others);
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_success_that_a_driver_resumes_is_asked_for_where_it_is_known() {
    // Lost here, or given to the driver by a broker before this one.
    for lost_here in [true, false] {
        let broker = TestBroker::restarted(Policy::Share);
        let controller = broker.controller().await;
        if lost_here {
            lose_a_create(&broker, &controller).await;
        }
        let mut back = broker.driver_with(Hello { returning: true, ..hello("a") }).await;
        back.say(0, "resumed", resumed(Some(machine("the first one's"))));
        let mut others = Vec::new();
        for n in 0..20 {
            others.push(broker.driver(&format!("other-{n}")).await.serve());
        }
        let retry = controller.creating("w");
        let operation = back.take().await;
        back.answer(&operation, machine("the first one's"));
        assert_eq!(retry.answer().await.unwrap().provider_id, "the first one's");
        back.vanish();
        drop(others);
        broker.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_settled_long_ago_binds_nobody() {
    let broker = TestBroker::restarted(Policy::Share);
    let controller = broker.controller().await;
    broker.driver("a").await.vanish();
    broker.until_drivers(0).await;
    let mut back = broker.driver_with(Hello { returning: true, ..hello("a") }).await;
    back.say(0, "resumed", resumed(Some(machine("deleted since by another instance"))));
    let create = controller.creating("w");
    let operation = back.take().await;
    let recall = operation.params.as_ref().unwrap().recall_within;
    assert_eq!(recall, Some(Default::default()), "it must not answer from memory");
    back.succeed(&operation);
    create.answer().await.unwrap();
    back.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn of_several_who_tell_a_new_broker_of_one_machine_the_one_that_counts_is_asked() {
    // Ended so many seconds ago, or still running: what the first tells, what the second does, and which
    // of them has to be asked.
    let cases = [
        (Some(40), Some(10), "second"),
        (Some(10), Some(40), "first"),
        (Some(10), None, "second"),
        (None, Some(10), "first"),
    ];
    for (one, other, asked) in cases {
        let broker = TestBroker::restarted(Policy::Share);
        let mut drivers = Vec::new();
        for (instance, ended) in [("first", one), ("second", other)] {
            let returning = Hello { returning: true, ..hello(instance) };
            let driver = broker.driver_with(returning).await;
            let Response::Resumed(told) = resumed(ended.map(|_| machine("it"))) else { continue };
            let age = ended.map(|seconds| prost_types::Duration { seconds, nanos: 0 });
            driver.say(0, "resumed", Response::Resumed(Resumed { age, ..told }));
            drivers.push((instance, driver.serve()));
        }
        let delete = broker.controller().await.delete("w").await;
        delete.expect("whoever it is succeeds");
        for (instance, driver) in drivers {
            let expected: &[&str] = if instance == asked { &["w"] } else { &[] };
            assert_eq!(driver.served(), expected, "{instance} of {one:?} and {other:?}");
            driver.vanish();
        }
        broker.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_a_driver_resumes_frees_the_machine() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    lose_a_create(&broker, &controller).await;
    let back = broker.driver("a").await;
    back.say(0, "resumed", resumed(Some(failed(Code::ResourceExhausted, "no quota"))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    back.vanish();
    broker.until_drivers(0).await;
    let other = broker.driver("b").await.serve();
    controller.create("w").await.expect("nothing runs any more");
    other.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_has_no_say_about_machines_of_other_kinds() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let kinds = vec![broker_tests::kind("evil.dev/v1", "Evil")];
    let evil = broker.driver_with(Hello { kinds, ..hello("evil") }).await;
    evil.say(0, "resumed", resumed(None));
    let honest = broker.driver("honest").await.serve();
    tokio::time::sleep(Duration::from_secs(1)).await;
    controller.create("w").await.expect("not held by a stranger");
    evil.vanish();
    honest.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn five_hundred_callers_are_told_within_a_second_when_their_driver_dies() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver_with(Hello { capacity: 400, ..hello("a") }).await;
    let calls: Vec<_> = (0..500).map(|n| controller.creating(&format!("w-{n}"))).collect();
    driver.next_operations(400).await;
    broker.until_running(500).await;
    let died = Instant::now();
    driver.vanish();
    let errors = join_all(calls.into_iter().map(|call| call.error())).await;
    assert!(died.elapsed() < Duration::from_secs(1));
    let sent = errors.iter().filter(|error| delivery(error) == "SENT").count();
    let unsent = errors.iter().filter(|error| delivery(error) == "NOT_SENT").count();
    assert_eq!((sent, unsent), (400, 100));
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_driver_that_vanishes_moves_to_another_and_none_fails() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut leaving = broker.driver_with(Hello { capacity: 1, ..hello("leaving") }).await;
    let running = controller.creating("running");
    leaving.take().await;
    let waiting: Vec<_> = (0..200).map(|n| controller.creating(&format!("w-{n}"))).collect();
    broker.until_running(201).await;
    let other = broker.driver("other").await.serve();
    leaving.vanish();
    is_lost(&running.error().await, "ACCEPTED");
    for call in waiting {
        call.answer().await.expect("another instance makes it");
    }
    other.vanish();
    broker.at_rest().await;
}

/// With real threads, since what is told in which order matters here.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_waits_moves_without_a_failure_on_many_threads_too() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let staying = broker.driver_with(Hello { capacity: 100, ..hello("staying") }).await.serve();
    for round in 0..20 {
        let name = format!("leaving-{round}");
        let mut leaving = broker.driver_with(Hello { capacity: 1, ..hello(&name) }).await;
        let calls: Vec<_> =
            (0..50).map(|n| controller.creating(&format!("w-{round}-{n}"))).collect();
        let sent = leaving.next_operation().await.params.unwrap().machine_name;
        if round % 2 == 0 {
            leaving.vanish();
        } else {
            leaving.drain();
            leaving.unregister().await.unwrap();
        }
        let failed: Vec<_> = join_all(calls.into_iter().map(|call| call.answer()))
            .await
            .into_iter()
            .filter_map(Result::err)
            .map(|error| (reason(&error), delivery(&error)))
            .collect();
        assert_eq!(failed, [("DRIVER_LOST".to_owned(), "SENT".to_owned())], "only {sent} had gone");
    }
    staying.vanish();
    broker.at_rest().await;
}
