//! Several drivers of one kind: who gets the work, and who has to wait outside.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use broker::registry::Policy;
use broker_proto::v1::{BrokerSide, MachineRequest, reject::Reason};
use broker_tests::{
    API_VERSION, Controller, Driver, Hello, KIND, Service, Serving, TestBroker, catalog, delivery,
    failed, hello, machine,
};
use tokio::time::Instant;
use tonic::Code;

fn rebooted(instance: &str) -> Hello {
    Hello { boot_id: "second".to_owned(), ..hello(instance) }
}

fn machines(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("w-{n}")).collect()
}

/// Which instance each machine went to, after a create of each.
async fn spread(
    controller: &Controller,
    drivers: &[(&str, &Serving)],
    machines: &[String],
) -> HashMap<String, String> {
    let before: Vec<usize> = drivers.iter().map(|(_, driver)| driver.served().len()).collect();
    for machine in machines {
        controller.create(machine).await.expect("one of them does it");
    }
    let mut spread = HashMap::new();
    for ((name, driver), before) in drivers.iter().zip(before) {
        for machine in driver.served().drain(before..) {
            assert_eq!(spread.insert(machine, (*name).to_owned()), None, "by one of them only");
        }
    }
    assert_eq!(spread.len(), machines.len());
    spread
}

#[tokio::test(start_paused = true)]
async fn shared_machines_always_meet_the_same_instance_and_all_instances_get_some() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let machines = machines(300);
    let a = broker.driver("a").await.serve();
    let b = broker.driver("b").await.serve();
    let c = broker.driver("c").await.serve();
    let all = [("a", &a), ("b", &b), ("c", &c)];
    let first = spread(&controller, &all, &machines).await;
    for (name, _) in all {
        let share = first.values().filter(|instance| *instance == name).count();
        assert!((60..=140).contains(&share), "{name} has {share} of 300");
    }
    assert_eq!(spread(&controller, &all, &machines).await, first, "the same again");
    let deleted = &machines[0];
    controller.delete(deleted).await.unwrap();
    let mine = all.iter().find(|(name, _)| first[deleted] == *name).unwrap().1;
    assert_eq!(mine.served().last(), Some(deleted), "whatever the verb");

    // When one leaves, only its machines move; when it comes back, they return.
    drop(c);
    broker.until_drivers(2).await;
    let second = spread(&controller, &[("a", &a), ("b", &b)], &machines).await;
    for machine in &machines {
        assert!(first[machine] == "c" || first[machine] == second[machine], "{machine} moved");
    }
    let c = broker.driver_with(rebooted("c")).await.serve();
    let third = spread(&controller, &[("a", &a), ("b", &b), ("c", &c)], &machines).await;
    assert_eq!(third, first);
    drop((a, b, c));
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn shared_reads_go_to_the_least_loaded() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut slow = broker.driver("slow").await;
    let mut stuck = vec![controller.listing()];
    stuck.push(controller.listing());
    slow.take().await;
    slow.take().await;
    let quick = broker.driver("quick").await.serve();
    for _ in 0..50 {
        controller.list().await.expect("the idle one answers");
    }
    assert_eq!(quick.served().len(), 50);
    slow.hears_nothing_for(Duration::from_secs(1)).await;
    slow.vanish();
    for call in stuck {
        assert_eq!(delivery(&call.error().await), "ACCEPTED");
    }
    quick.vanish();
    broker.at_rest().await;
}

/// Three drivers, of which one takes ten times as long as the others.
async fn one_slow_of_three(broker: &TestBroker) -> [Serving; 3] {
    let quick = Duration::from_millis(100);
    let of = |name| Hello { capacity: 32, ..hello(name) };
    [
        broker.driver_with(of("slow")).await.serve_in(10 * quick),
        broker.driver_with(of("quick-0")).await.serve_in(quick),
        broker.driver_with(of("quick-1")).await.serve_in(quick),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_shared_instance_that_is_ten_times_slower_gets_few_of_the_reads() {
    const CALLERS: usize = 30;
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let drivers = one_slow_of_three(&broker).await;
    let callers = (0..CALLERS).map(|_| async {
        for _ in 0..40 {
            controller.list().await.expect("one of them does it");
        }
    });
    futures::future::join_all(callers).await;
    let [slow, quick_0, quick_1] = drivers.each_ref().map(|driver| driver.served().len());
    println!("reads: {slow} by the slow one, {quick_0} and {quick_1} by the others");
    assert_eq!(slow + quick_0 + quick_1, CALLERS * 40);
    // It has as many at once as the others and answers a tenth of them: one of 21.
    assert!(slow * 100 <= CALLERS * 40 * 8, "{slow} of {}", CALLERS * 40);
    drop(drivers);
    broker.at_rest().await;
}

/// A machine always meets one instance, so that a retry finds the first execution: that is worth more
/// than an even load. Who is too slow for it says so by its capacity, or is drained.
#[tokio::test(start_paused = true)]
async fn a_shared_instance_that_is_ten_times_slower_keeps_its_share_of_the_changes() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let drivers = one_slow_of_three(&broker).await;
    let creates = machines(300).into_iter().map(|name| {
        let controller = controller.clone();
        async move { controller.create(&name).await.expect("one of them does it") }
    });
    futures::future::join_all(creates).await;
    let shares = drivers.each_ref().map(|driver| driver.served().len());
    println!("changes: {shares:?}, the slow one first");
    for share in shares {
        assert!((60..=140).contains(&share), "{shares:?}");
    }
    drop(drivers);
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn load_is_judged_by_what_an_instance_can_take() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut large = broker.driver_with(Hello { capacity: 30, ..hello("large") }).await;
    let mut small = broker.driver_with(Hello { capacity: 10, ..hello("small") }).await;
    let calls: Vec<_> = (0..40).map(|_| controller.listing()).collect();
    for operation in large.next_operations(30).await {
        large.succeed(&operation);
    }
    for operation in small.next_operations(10).await {
        small.succeed(&operation);
    }
    for call in calls {
        call.answer().await.unwrap();
    }
    large.vanish();
    small.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn on_standby_the_newest_works_and_the_older_takes_over_when_it_leaves() {
    let broker = TestBroker::seated(Policy::Standby);
    let controller = broker.controller().await;
    let old = broker.driver("old").await.serve();
    controller.create("w-0").await.unwrap();
    let new = broker.driver("new").await.serve();
    for name in ["w-1", "w-2", "w-3"] {
        controller.create(name).await.unwrap();
    }
    assert_eq!((old.served().len(), new.served().len()), (1, 3));
    new.vanish();
    broker.until_drivers(1).await;
    controller.create("w-4").await.unwrap();
    assert_eq!(old.served().len(), 2);
    old.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn on_standby_a_new_version_that_fails_from_the_start_gives_way_to_the_older() {
    let broker = TestBroker::seated(Policy::Standby);
    let controller = broker.controller().await;
    let old = broker.driver("old").await.serve();
    let mut new = broker.driver("new").await;
    for n in 0..3 {
        let create = controller.creating(&format!("w-{n}"));
        let operation = new.take().await;
        new.answer(&operation, failed(Code::Internal, "a bug"));
        assert_eq!(create.error().await.code(), Code::Internal);
    }
    for n in 0..3 {
        controller.create(&format!("w-{n}")).await.expect("the older one works");
    }
    new.hears_nothing_for(Duration::from_secs(1)).await;
    assert_eq!(old.served().len(), 3);

    // Better a doubtful one than none.
    old.vanish();
    broker.until_drivers(1).await;
    let (created, _) = tokio::join!(controller.create("w-3"), new.serve_one());
    created.unwrap();
    new.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn on_standby_failures_that_are_not_the_drivers_fault_do_not_count() {
    let broker = TestBroker::seated(Policy::Standby);
    let controller = broker.controller().await;
    let old = broker.driver("old").await.serve();
    let mut new = broker.driver("new").await;
    for _ in 0..10 {
        let create = controller.creating("w");
        let operation = new.take().await;
        new.answer(&operation, failed(Code::ResourceExhausted, "no quota"));
        create.error().await;
    }
    assert_eq!(old.served(), Vec::<String>::new());
    old.vanish();
    new.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_kind_has_one_driver_and_a_second_one_is_told_to_come_again() {
    let broker = TestBroker::seated(Policy::Exclusive);
    let controller = broker.controller().await;
    let incumbent = broker.driver("a").await;
    let session = incumbent.session.clone();
    let incumbent = incumbent.serve();
    for _ in 0..5 {
        let began = Instant::now();
        let (reject, status) = Driver::rejected(broker.channel().await, hello("b")).await;
        assert!(began.elapsed() < Duration::from_secs(1), "as soon as the incumbent answered");
        assert_eq!((reject.reason(), reject.retryable), (Reason::Duplicate, true));
        assert!(reject.retry_after.unwrap().seconds > 0);
        assert!(reject.message.contains("\"a\""), "names who serves it: {}", reject.message);
        assert_eq!(status.code(), Code::AlreadyExists);
    }
    assert_eq!(broker.drivers().await[0].session_id, session, "no flapping");
    controller.create("w").await.unwrap();

    // When the incumbent leaves there is room.
    incumbent.vanish();
    broker.until_drivers(0).await;
    let next = broker.driver("b").await;
    next.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_incumbent_that_does_not_answer_is_taken_over_within_three_seconds_and_fenced()
{
    let broker = TestBroker::seated(Policy::Exclusive);
    let controller = broker.controller().await;
    let mut half_open = broker.driver("a").await;
    let lost = controller.creating("w");
    let operation = half_open.take().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    half_open.fall_silent();

    let began = Instant::now();
    let mut newcomer = broker.driver("b").await;
    assert!(began.elapsed() <= Duration::from_secs(3), "after {:?}", began.elapsed());
    assert_eq!(delivery(&lost.error().await), "ACCEPTED");
    let listed = broker.drivers().await;
    assert_eq!((listed.len(), listed[0].instance_id.as_str()), (1, "b"));

    // Whatever the old one still says goes nowhere, even with an id that the new one uses.
    let create = controller.creating("x");
    let own = newcomer.take().await;
    assert_eq!(own.operation_id, operation.operation_id, "each stream counts for itself");
    half_open.answer(&operation, machine("of the old one"));
    assert_eq!(half_open.end().await.unwrap_err().code(), Code::Aborted, "and it is told");
    newcomer.answer(&own, machine("of the new one"));
    assert_eq!(create.answer().await.unwrap().provider_id, "of the new one");
    half_open.vanish();
    newcomer.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_incumbent_behind_a_dead_line_does_not_block_the_return_of_the_real_driver() {
    let broker = TestBroker::start();
    let (channel, line) = broker.line().await;
    let old = Driver::welcomed(channel, hello("a")).await;
    line.cut();
    // Its process was restarted on another node.
    let began = Instant::now();
    let new = broker.driver_with(rebooted("a")).await;
    assert!(began.elapsed() <= Duration::from_secs(3));
    assert_eq!(broker.drivers().await[0].session_id, new.session);
    old.vanish();
    new.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_stream_of_the_same_process_replaces_the_old_at_once() {
    let broker = TestBroker::start();
    let mut old = broker.driver("a").await;
    let began = Instant::now();
    let new = broker.driver("a").await;
    assert!(began.elapsed() < Duration::from_millis(100));
    assert_eq!(old.end().await.unwrap_err().code(), Code::Aborted);
    let listed = broker.until_drivers(1).await;
    assert_eq!(listed[0].session_id, new.session);
    new.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn two_living_processes_with_one_instance_id_are_a_mistake_that_is_told() {
    let broker = TestBroker::start();
    let first = broker.driver("a").await;
    let (reject, _) = Driver::rejected(broker.channel().await, rebooted("a")).await;
    assert_eq!((reject.reason(), reject.retryable), (Reason::Duplicate, true));
    assert!(reject.message.contains("instance id"), "{}", reject.message);
    assert_eq!(broker.drivers().await[0].session_id, first.session);
    first.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_late_end_of_an_old_stream_leaves_the_new_entry_alone() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let old = broker.driver("a").await;
    let new = broker.driver("a").await;
    let session = new.session.clone();
    let new = new.serve();
    tokio::time::sleep(Duration::from_secs(10)).await;
    old.unregister().await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let listed = broker.drivers().await;
    assert_eq!((listed.len(), &listed[0].session_id), (1, &session));
    controller.create("w").await.expect("the new one works");
    new.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_rival_for_one_of_several_kinds_leaves_no_seat_half_taken() {
    use broker_tests::{API_VERSION, KIND, kind};
    let broker = TestBroker::seated(Policy::Exclusive);
    let incumbent = broker.driver("a").await;
    let kinds = vec![kind("a.dev/v1", "First"), kind(API_VERSION, KIND), kind("z.dev/v1", "Z")];
    let (reject, _) = Driver::rejected(broker.channel().await, Hello { kinds, ..hello("b") }).await;
    assert_eq!(reject.reason(), Reason::Duplicate);
    assert_eq!(broker.drivers_of("First").await, []);
    let kinds = vec![kind("a.dev/v1", "First"), kind("z.dev/v1", "Z")];
    let free = broker.driver_with(Hello { kinds, ..hello("c") }).await;
    let names: HashSet<_> =
        broker.drivers().await.into_iter().map(|driver| driver.instance_id).collect();
    assert_eq!(names, HashSet::from(["a".to_owned(), "c".to_owned()]));
    incumbent.vanish();
    free.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_healthy_exclusive_incumbent_of_2018_is_not_taken_over() {
    let broker = TestBroker::seated(Policy::Exclusive);
    let incumbent = broker.historic().await;
    let session = broker.drivers().await[0].session_id.clone();
    let (group, _) = API_VERSION.split_once('/').expect("a group");

    let mut second = Driver::historic(broker.channel().await, Service::Infra, KIND, group).await;

    assert_eq!(second.end().await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(broker.drivers().await[0].session_id, session);
    incumbent.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_specific_driver_that_comes_does_not_cut_off_a_retry() {
    let broker = TestBroker::of_catalog(catalog::catalog());
    let (version, kind) = (catalog::SHARED_API_VERSION, catalog::SHARED_KIND);
    let all = || Hello { kinds: vec![broker_tests::kind(version, kind)], ..hello("general") };
    let mut general = broker.driver_with(all()).await;
    let controller = broker.controller().await;
    let class = Some(catalog::class(version, kind, "on-aws"));
    let request = MachineRequest { class, ..Controller::request("w") };
    let create = controller.creating_with(request.clone());
    general.take().await;
    broker.until_running(1).await;
    general.vanish();
    create.error().await;

    let mut of_aws = broker_tests::kind(version, kind);
    of_aws.provider = "aws".to_owned();
    let aws = broker.driver_with(Hello { kinds: vec![of_aws], ..hello("aws") }).await;
    let mut back = broker.driver_with(all()).await;
    let retry = controller.creating_with(request);

    back.serve_one().await;
    retry.answer().await.unwrap();
    aws.vanish();
    back.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_retry_waits_for_the_instance_that_may_still_be_at_it() {
    let broker = TestBroker::restarted(Policy::Share);
    let controller = broker.controller().await;
    let returning = |instance: &str| Hello { returning: true, ..hello(instance) };
    let mut first = broker.driver_with(returning("first")).await;
    let started = Instant::now();
    let retry = controller.creating("w");
    let mut second = broker.driver_with(returning("second")).await;
    second.still_runs("create", "w");

    let operation = second.next_operation().await;
    assert!(started.elapsed() >= Duration::from_secs(5), "{:?}", started.elapsed());
    second.answer(&operation, machine("of-the-first-execution"));
    assert_eq!(retry.answer().await.unwrap().provider_id, "of-the-first-execution");
    first.hears_nothing_for(Duration::from_secs(1)).await;
    first.vanish();
    second.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_this_broker_knows_is_given_work_at_once_when_it_is_back() {
    let broker = TestBroker::restarted(Policy::Share);
    broker.driver("a").await.vanish();
    broker.until_drivers(0).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut back = broker.driver_with(Hello { returning: true, ..hello("a") }).await;
    let create = broker.controller().await.creating("w");
    let started = Instant::now();
    back.serve_one().await;
    create.answer().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    back.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_may_answer_from_memory_while_no_other_has_changed_the_machine() {
    let broker = TestBroker::seated(Policy::Standby);
    let controller = broker.controller().await;
    let mut old = broker.driver("old").await;
    let hour = Duration::from_secs(3600);
    let recall = |operation: BrokerSide| {
        let within = operation.params.expect("an operation has params").recall_within;
        within.map_or(hour, |within| within.try_into().expect("a time"))
    };
    // Of its first request nobody knows who served the machine before.
    for (passed, expected) in [(0, 0), (10, 10), (5, 15)] {
        let passed = Duration::from_secs(passed);
        tokio::time::sleep(passed).await;
        let (created, operation) = tokio::join!(controller.create("w"), old.serve_one());
        created.unwrap();
        let within = recall(operation);
        let expected = Duration::from_secs(expected);
        assert!(within >= expected && within < expected + passed.max(Duration::from_secs(1)));
    }
    let mut new = broker.driver("new").await;
    let (deleted, operation) = tokio::join!(controller.delete("w"), new.serve_one());
    deleted.unwrap();
    assert_eq!(recall(operation), Duration::ZERO);
    new.vanish();
    broker.until_drivers(1).await;

    // It still remembers the create, and must not after its retry was lost, either.
    let create = controller.creating("w");
    assert_eq!(recall(old.next_operation().await), Duration::ZERO);
    old.vanish();
    create.error().await;
    let mut back = broker.driver("old").await;
    let (created, operation) = tokio::join!(controller.create("w"), back.serve_one());
    created.unwrap();
    assert!(recall(operation) < Duration::from_secs(1), "only what it did since");
    back.vanish();
    broker.at_rest().await;
}
