//! Several replicas of the broker: drivers find all of them, and callers may ask any.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use broker::{
    driver::DriverKey,
    replicas::{Peer, Report},
};
use broker_proto::v1::{Resumed, broker_side::Control, reject::Reason};
use broker_tests::{
    API_VERSION, Admin, Controller, Driver, Hello, KIND, TestBroker, fact,
    fleet::{LibraryDriver, Network},
    hello, machine, reason,
};
use tokio::time::{Instant, advance};
use tonic::Code;

/// Within this the issue of a change of replicas is settled.
const SOON: Duration = Duration::from_secs(30);

/// A replica as another one knows it by its Lease, with so many drivers of the sample kind.
fn present(id: &str, drivers: usize) -> Peer {
    let text = format!(r#"[{{"apiVersion":"{API_VERSION}","kind":"{KIND}","drivers":{drivers}}}]"#);
    let report = Arc::new(Report::from_text(&text));
    Peer { id: Some(id.into()), address: format!("{id}:1").into(), report }
}

/// The instances that a replica sees.
async fn instances(broker: &TestBroker) -> Vec<String> {
    let mut names: Vec<_> = broker.drivers().await.into_iter().map(|d| d.instance_id).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn drivers_follow_from_two_replicas_to_five_and_back() {
    let network = Network::default();
    let mut replicas = vec![network.start("r0", "r0:1"), network.start("r1", "r1:1")];
    network.introduce();
    // Each knows one address, and not all the same.
    let drivers = [
        LibraryDriver::start(&network, "a", &["r0:1"]),
        LibraryDriver::start(&network, "b", &["r1:1"]),
    ];
    for replica in &replicas {
        replica.until_drivers(2).await;
    }

    let begin = Instant::now();
    for number in 2..5 {
        replicas.push(network.start(&format!("r{number}"), &format!("r{number}:1")));
    }
    network.introduce();
    for replica in &replicas {
        replica.until_drivers(2).await;
        assert_eq!(instances(replica).await, ["a", "b"], "each of them once");
        replica.controller().await.create("m").await.expect("any replica serves any caller");
    }
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());

    let begin = Instant::now();
    let leaving: Vec<_> = (2..5).map(|n| network.remove(&format!("r{n}:1"))).collect();
    network.introduce();
    for replica in &leaving {
        replica.broker.stop(Duration::from_secs(5)).await;
    }
    drop(leaving);
    replicas.truncate(2);
    let dialled = |network: &Network| [2, 3, 4].map(|n| network.dialled(&format!("r{n}:1")));
    let before = dialled(&network);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    tokio::time::sleep(4 * SOON).await;
    assert_eq!(dialled(&network), before, "nobody looks for those that left");
    for replica in &replicas {
        assert_eq!(instances(replica).await, ["a", "b"]);
        let sessions = replica.drivers().await.iter().filter(|d| d.takeovers > 0).count();
        assert_eq!(sessions, 0, "no session took the place of another");
    }
    for driver in drivers {
        driver.stop().await;
    }
    for replica in &replicas {
        replica.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_create_at_two_replicas_at_once_is_executed_once() {
    let network = Network::default();
    let replicas = [network.start("r0", "r0:1"), network.start("r1", "r1:1")];
    network.introduce();
    let drivers = [
        LibraryDriver::start(&network, "a", &["r0:1"]),
        LibraryDriver::start(&network, "b", &["r0:1"]),
    ];
    let mut calls = Vec::new();
    for replica in &replicas {
        replica.until_drivers(2).await;
        calls.push(replica.controller().await.creating("held-m"));
    }
    for replica in &replicas {
        replica.until_running(1).await;
    }
    drivers.iter().for_each(|driver| driver.deeds.gate.add_permits(5));
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.answer().await.expect("it is made").provider_id);
    }
    assert_eq!(answers[0], answers[1]);
    let executions: usize = drivers.iter().map(|driver| driver.deeds.created().len()).sum();
    assert_eq!(executions, 1);
}

/// How far a create is when its replica dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Runs,
    /// It runs, and ends before anybody asks again.
    Ends,
    /// The replica has the answer, and perhaps nobody else has.
    Answered,
}

/// A create through a replica that dies, and the retry through another one.
async fn retried_elsewhere(progress: Progress) {
    let network = Network::default();
    let replicas = [network.start("r0", "r0:1"), network.start("r1", "r1:1")];
    network.introduce();
    // They are no longer new, and so need not ask who was here before.
    advance(Duration::from_secs(100)).await;
    let drivers = [
        LibraryDriver::start(&network, "a", &["r0:1"]),
        LibraryDriver::start(&network, "b", &["r0:1"]),
    ];
    for replica in &replicas {
        replica.until_drivers(2).await;
    }
    let open = || drivers.iter().for_each(|driver| driver.deeds.gate.add_permits(1));
    let [first, second] = replicas;
    let lost = first.controller().await.creating("held-m");
    first.until_running(1).await;
    tokio::select! {
        () = drivers[0].deeds.begun(1) => {}
        () = drivers[1].deeds.begun(1) => {}
    }
    if progress == Progress::Answered {
        open();
        first.until_running(0).await;
    }
    // Nothing is left of it.
    network.remove("r0:1");
    second.broker.replicas().list([""; 0]);
    let sessions = first.broker.clone();
    drop(first);
    sessions.stop(Duration::ZERO).await;
    if progress == Progress::Ends {
        open();
    }
    assert_eq!(lost.answer().await.is_ok(), progress == Progress::Answered);
    // The drivers have noticed by then, and said so.
    advance(Duration::from_secs(1)).await;
    second.until_drivers(2).await;
    let retry = second.controller().await.creating("held-m");
    if progress == Progress::Runs {
        second.until_running(1).await;
        open();
    }
    assert_eq!(retry.answer().await.expect("it is made").provider_id, "held-m-1");
    let executions = drivers.iter().map(|driver| driver.deeds.created().len());
    assert_eq!(executions.sum::<usize>(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_runs_when_its_replica_dies_is_joined_through_another() {
    retried_elsewhere(Progress::Runs).await;
}

#[tokio::test(start_paused = true)]
async fn a_create_that_ends_after_its_replica_died_is_answered_through_another() {
    retried_elsewhere(Progress::Ends).await;
}

#[tokio::test(start_paused = true)]
async fn a_create_that_was_answered_before_its_replica_died_is_answered_again_through_another() {
    retried_elsewhere(Progress::Answered).await;
}

#[tokio::test(start_paused = true)]
async fn what_ended_for_another_replica_and_is_told_in_a_hello_is_asked_for_where_it_was_done() {
    let network = Network::default();
    let broker = network.start("r0", "r0:1");
    let other = broker.driver("other").await.serve();
    // Half of them would go to the other one.
    let machines: Vec<String> = (0..16).map(|number| format!("m{number}")).collect();
    let created = |name: &String| Resumed {
        verb: "create".to_owned(),
        class: Some(Controller::class()),
        machine_name: name.clone(),
        result: Some(machine("it")),
        age: Duration::from_secs(1).try_into().ok(),
        elsewhere: true,
        ..Resumed::default()
    };
    let resumed = machines.iter().map(created).collect();
    let maker = broker.driver_with(Hello { resumed, ..hello("maker") }).await.serve();
    let controller = broker.controller().await;
    for machine in &machines {
        controller.create(machine).await.expect("it is there");
    }
    assert_eq!((maker.served(), other.served()), (machines, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn another_replica_at_the_address_of_one_that_is_gone_gets_the_drivers() {
    let network = Network::default();
    let first = network.start("r0", "r0:1");
    let gone = network.start("r1", "r1:1");
    network.introduce();
    let driver = LibraryDriver::start(&network, "a", &["r0:1"]);
    first.until_drivers(1).await;
    gone.until_drivers(1).await;
    drop(network.remove("r1:1"));
    let sessions = gone.broker.clone();
    drop(gone);
    let next = network.start("r1-again", "r1:1");
    network.introduce();
    sessions.stop(Duration::ZERO).await;
    next.until_drivers(1).await;
    next.controller().await.create("m").await.expect("it works for the new one");
    assert_eq!(instances(&first).await, ["a"]);
    driver.stop().await;
    next.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn two_addresses_of_one_replica_make_one_session() {
    let network = Network::default();
    let replica = network.start("r0", "pod:1");
    // A Service that leads to the same one.
    network.alias("pod:1", "service:1");
    let driver = LibraryDriver::start(&network, "a", &["pod:1", "service:1"]);
    replica.until_drivers(1).await;
    tokio::time::sleep(4 * SOON).await;
    let session = replica.drivers().await.remove(0).session_id;
    tokio::time::sleep(4 * SOON).await;
    let drivers = replica.drivers().await;
    assert_eq!(drivers.len(), 1);
    assert_eq!(drivers[0].session_id, session, "neither takes the other's place");
    driver.stop().await;
    replica.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_meets_the_same_instance_from_every_replica() {
    let machines: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    let mut seen = Vec::new();
    for order in [["a", "b", "c"], ["c", "a", "b"]] {
        // Another process with other sessions, in which drivers came in another order.
        let broker = TestBroker::start();
        let mut serving = Vec::new();
        for instance in order {
            serving.push((instance, broker.driver(instance).await.serve()));
        }
        let controller = broker.controller().await;
        for machine in &machines {
            controller.create(machine).await.expect("one of them does it");
        }
        let met: BTreeMap<String, &str> = serving
            .iter()
            .flat_map(|(instance, driver)| driver.served().into_iter().map(|m| (m, *instance)))
            .collect();
        assert_eq!(met.len(), machines.len());
        seen.push(met);
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test(start_paused = true)]
async fn a_welcome_names_the_others_and_changes_are_pushed() {
    let network = Network::default();
    let broker = network.start("r0", "r0:1");
    broker.broker.replicas().present(vec![present("r1", 0)]);
    let mut driver = Driver::dial_with(broker.channel().await, hello("a")).await;
    let (_, Control::Welcome(welcome)) = driver.next_control().await else { panic!("a welcome") };
    assert_eq!(welcome.replica_id, "r0");
    assert_eq!(welcome.peers, ["r1:1"]);
    let others = welcome.others.expect("it knows them");
    assert_eq!((others.revision, others.peers.len()), (1, 1));
    assert_eq!((&*others.peers[0].replica_id, &*others.peers[0].address), ("r1", "r1:1"));

    // What a peer says of its drivers is nothing to tell.
    broker.broker.replicas().present(vec![present("r1", 3)]);
    driver.hears_nothing_for(SOON).await;
    broker.broker.replicas().present(vec![present("r1", 3), present("r2", 0)]);
    let (_, Control::Peers(peers)) = driver.next_control().await else { panic!("peers") };
    assert_eq!((peers.revision, peers.peers.len()), (2, 2));
    broker.broker.replicas().present(Vec::new());
    let (_, Control::Peers(peers)) = driver.next_control().await else { panic!("peers") };
    assert_eq!((peers.revision, peers.peers.len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_hears_nothing_of_replicas() {
    let broker = TestBroker::start();
    let mut historic = broker.historic().await;
    broker.broker.replicas().list(["r1:1"]);
    historic.hears_nothing_for(SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_stream_of_a_driver_that_says_so_is_turned_away_and_the_first_goes_on() {
    let network = Network::default();
    let broker = network.start("r0", "r0:1");
    let again = || Hello { connected: vec!["r0".to_owned()], ..hello("a") };
    // It is wrong about that: its session is gone.
    let mut first = broker.driver_with(again()).await;
    let (reject, status) = Driver::rejected(broker.channel().await, again()).await;
    assert_eq!((reject.reason(), reject.retryable), (Reason::Connected, true));
    assert_eq!(reject.replica_id, "r0");
    assert_eq!(status.code(), Code::AlreadyExists);
    let create = broker.controller().await.creating("m");
    first.serve_one().await;
    create.answer().await.expect("the first is still there");
    // Another process of the same instance is another matter.
    let other = Hello { boot_id: "second".to_owned(), ..again() };
    let (reject, _) = Driver::rejected(broker.channel().await, other).await;
    assert_eq!(reject.reason(), Reason::Duplicate);
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_a_driver_names_those_that_have_one() {
    let network = Network::default();
    let broker = network.start("r0", "r0:1");
    let controller = broker.controller().await;
    let error = controller.create("m").await.unwrap_err();
    assert_eq!(fact(&error, "replicas"), None, "nobody has one");
    broker.broker.replicas().present(vec![present("r1", 1), present("r2", 0), present("r3", 2)]);
    for request in [
        Controller::request("m"),
        // Neither the version nor the class has to be known here.
        {
            let mut request = Controller::request("m");
            request.class.as_mut().expect("there is one").api_version = String::new();
            request.class.as_mut().expect("there is one").name = "unknown".to_owned();
            request
        },
    ] {
        let error = controller.create_with(request).await.unwrap_err();
        assert_eq!((error.code(), reason(&error).as_str()), (Code::Unavailable, "NO_DRIVER"));
        let named = "r1 (r1:1), r2 (r2:1), r3 (r3:1)";
        assert_eq!(fact(&error, "replicas").as_deref(), Some(named));
        let says = format!("these replicas have one: {named}");
        assert!(error.message().contains(&says), "{}", error.message());
    }
    let key = DriverKey { api_version: API_VERSION.into(), kind: "Other".into(), provider: None };
    assert!(broker.broker.replicas().serving(&key).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_ready_when_it_has_the_drivers_of_the_others_or_has_waited_enough() {
    let network = Network::default();
    let broker = network.start("r0", "r0:1");
    broker.drivers().await;
    let ready = async |broker: &TestBroker| Admin::of(&broker.broker).get("/readyz", &[]).await;
    broker.broker.replicas().present(vec![present("r1", 2)]);
    let answer = ready(&broker).await;
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert!(answer.text.contains("replica r1 (r1:1) has 2 drivers for"), "{}", answer.text);
    let _a = broker.driver("a").await;
    assert_eq!(ready(&broker).await.status, 503);
    let b = broker.driver("b").await;
    assert_eq!(ready(&broker).await.status, 200);
    b.vanish();
    broker.until_drivers(1).await;
    assert_eq!(ready(&broker).await.status, 200, "that was at the start");

    let late = network.start("r2", "r2:1");
    late.drivers().await;
    late.broker.replicas().present(vec![present("r1", 2)]);
    assert_eq!(ready(&late).await.status, 503);
    tokio::time::sleep(SOON).await;
    assert_eq!(ready(&late).await.status, 200, "it cannot wait for ever");
}
