//! What a broker that has just started learns from its drivers, and what they learn from it.

use std::time::Duration;

use broker::registry::Policy;
use broker_proto::v1::{BrokerSide, Resumed, reject::Reason};
use broker_tests::{Controller, Driver, Hello, TestBroker, failed, hello, kind, machine, reason};
use tokio::time::{Instant, sleep};
use tonic::Code;

/// How the last change of a machine went.
#[derive(Clone, Copy, Debug)]
enum Went {
    /// It has not ended.
    On,
    Well(u64),
    Wrong(u64),
}

/// What a driver says of a create.
fn created(machine_name: &str, went: Went) -> Resumed {
    let (result, ago) = match went {
        Went::On => (None, None),
        Went::Well(ago) => (Some(machine("it")), Some(ago)),
        Went::Wrong(ago) => (Some(failed(Code::ResourceExhausted, "no quota")), Some(ago)),
    };
    Resumed {
        verb: "create".to_owned(),
        class: Some(Controller::class()),
        machine_name: machine_name.to_owned(),
        result,
        age: ago.and_then(|ago| Duration::from_secs(ago).try_into().ok()),
        ..Default::default()
    }
}

/// A driver that knew an earlier process of this broker.
fn back(instance: &str, resumed: Vec<Resumed>) -> Hello {
    Hello { returning: true, resumed, ..hello(instance) }
}

/// Whether the driver may answer from memory, however old.
fn may_recall(operation: &BrokerSide) -> bool {
    operation.params.as_ref().expect("an operation has params").recall_within.is_none()
}

#[tokio::test(start_paused = true)]
async fn a_new_broker_waits_for_drivers_to_return_although_the_first_that_comes_is_new_as_well() {
    let broker = TestBroker::restarted(Policy::Share);
    let began = Instant::now();
    let mut newcomer = broker.driver("newcomer").await;
    let retry = broker.controller().await.creating("w");
    sleep(Duration::from_secs(4)).await;
    let mut worker = broker.driver_with(back("worker", vec![created("w", Went::On)])).await;

    let operation = worker.next_operation().await;
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    worker.answer(&operation, machine("of-the-first-execution"));
    assert_eq!(retry.answer().await.unwrap().provider_id, "of-the-first-execution");
    newcomer.hears_nothing_for(Duration::from_secs(1)).await;
    newcomer.vanish();
    worker.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn reads_of_a_new_broker_wait_for_nobody() {
    let broker = TestBroker::restarted(Policy::Share);
    let began = Instant::now();
    let driver = broker.driver("a").await.serve();
    broker.controller().await.list().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_runs_is_known_although_another_has_its_seat() {
    let broker = TestBroker::restarted(Policy::Exclusive);
    let controller = broker.controller().await;
    let seated = broker.driver_with(back("waited outside", vec![])).await.serve();
    let tells = async |went| {
        let hello = back("was at work", vec![created("w", went)]);
        let (reject, _) = Driver::rejected(broker.channel().await, hello).await;
        assert_eq!((reject.reason(), reject.retryable), (Reason::Duplicate, true));
        let again: Duration = reject.retry_after.expect("a time").try_into().expect("a time");
        assert!(again <= Duration::from_secs(2), "it has to come within the settling: {again:?}");
    };

    tells(Went::On).await;
    assert_eq!(reason(&controller.create("w").await.unwrap_err()), "DRIVER_AWAY");
    tells(Went::On).await;
    assert_eq!(reason(&controller.create("w").await.unwrap_err()), "DRIVER_AWAY");
    controller.create("another").await.expect("nobody is at that one");
    // Well or not, it is over.
    tells(Went::Wrong(1)).await;
    controller.create("w").await.expect("nothing runs any more");
    assert_eq!(seated.served(), ["another", "w"]);
    seated.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_turned_away_has_no_say_about_machines_of_other_kinds() {
    let broker = TestBroker::restarted(Policy::Exclusive);
    let seated = broker.driver("honest").await.serve();
    let other = Hello {
        kinds: vec![kind("evil.dev/v1", "Evil")],
        ..back("evil", vec![created("w", Went::On)])
    };
    let incumbent = broker
        .driver_with(Hello { resumed: vec![], instance_id: "first".into(), ..other.clone() })
        .await;
    let (reject, _) = Driver::rejected(broker.channel().await, other).await;
    assert_eq!(reject.reason(), Reason::Duplicate);
    broker.controller().await.create("w").await.expect("not held by somebody else");
    seated.vanish();
    incumbent.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_was_last_at_a_machine_counts_although_it_failed_there() {
    for who_comes_first in ["maker", "failed"] {
        let broker = TestBroker::restarted(Policy::Standby);
        let failed = back("failed", vec![created("w", Went::Wrong(10))]);
        let maker = back("maker", vec![created("w", Went::Well(40))]);
        let (mut maker, failed) = if who_comes_first == "maker" {
            let maker = broker.driver_with(maker).await;
            (maker, broker.driver_with(failed).await)
        } else {
            let failed = broker.driver_with(failed).await;
            (broker.driver_with(maker).await, failed)
        };
        failed.vanish();
        broker.until_drivers(1).await;
        let create = broker.controller().await.creating("w");
        let operation = maker.take().await;
        assert!(!may_recall(&operation), "{who_comes_first} came first");
        maker.succeed(&operation);
        create.answer().await.unwrap();
        maker.vanish();
        broker.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_changed_a_machine_before_is_told_that_another_does_now() {
    let broker = TestBroker::seated(Policy::Standby);
    let controller = broker.controller().await;
    let mut old = broker.driver("old").await;
    let (made, _) = tokio::join!(controller.create("w"), old.serve_one());
    made.unwrap();
    assert_eq!(old.forgotten(), Vec::<String>::new());

    let mut new = broker.driver("new").await;
    let (deleted, _) = tokio::join!(controller.delete("w"), new.serve_one());
    deleted.unwrap();
    assert_eq!(old.forgotten(), ["w"]);
    assert_eq!(new.forgotten(), Vec::<String>::new());

    // One that was away hears of it when it is back, and one that has to wait outside as well.
    old.vanish();
    broker.until_drivers(1).await;
    let old = broker.driver_with(back("old", vec![created("w", Went::Well(60))])).await;
    assert_eq!(old.forgotten(), ["w"]);
    old.vanish();
    new.vanish();
    broker.at_rest().await;
}
