//! Leaving in good order.

use std::{sync::Arc, time::Duration};

use broker_proto::{
    driving::Asked,
    v1::{self as wire, broker_side::Control, driver_side::Response as Frame},
};
use tokio::{sync::mpsc, time::Instant};

use super::{
    LONG, Running,
    broker::{Brokers, Peer, wire_duration},
    connected,
    driver::{self, Scripted},
};
use crate::{
    CancellationToken, Code, Config, Verb,
    classes::{ClassQuery, Classes},
    executor::{Ears, Executor, Heard, Round},
    fleet::Fleet,
    operation::Job,
    operations::{AddressId, Orphan, Report, Resume, Ticket},
};

async fn drain_announced(peer: &mut Peer) {
    let frame = peer.next().await.expect("the driver is there");
    assert!(matches!(frame.response, Some(Frame::Drain(_))), "{frame:?}");
}

async fn goodbye(mut peer: Peer) {
    let frame = peer.next().await.expect("it says goodbye");
    assert_eq!(frame.operation_type, "unregister");
    assert!(peer.next().await.is_none(), "the half-close");
}

#[tokio::test(start_paused = true)]
async fn a_stopping_driver_finishes_its_work_and_takes_no_more() {
    let (_broker, running, mut peer) = connected().await;
    for id in 0..10 {
        peer.ask(id, "create", &format!("held-{id}")).await;
        peer.accepted(id).await;
    }
    running.shutdown.cancel();
    drain_announced(&mut peer).await;
    // Crossed the drain frame on the wire: the broker may place it elsewhere.
    peer.ask(11, "create", "new").await;
    assert_eq!(peer.result(11).await.code, Code::Unavailable as i32);
    assert_eq!(peer.ping(1).await.in_flight.len(), 10);

    running.script.gate.add_permits(10);
    for _ in 0..10 {
        let frame = peer.next().await.expect("the driver is there");
        assert!(matches!(frame.response, Some(Frame::Result(result)) if result.code == 0));
    }
    goodbye(peer).await;
    assert_eq!(running.script.calls().len(), 10);
    running.ended().await.expect("a clean end");
}

#[tokio::test(start_paused = true)]
async fn an_idle_driver_leaves_at_once() {
    let (_broker, running, mut peer) = connected().await;
    // The welcome has been read: before that there is no session to drain.
    peer.ping(1).await;
    let begin = Instant::now();
    running.shutdown.cancel();
    drain_announced(&mut peer).await;
    goodbye(peer).await;
    running.ended().await.expect("a clean end");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_cancelled_after_the_grace_time() {
    let mut brokers = Brokers::new(1);
    let running = Running::with(&brokers, |config| config.drain_grace = Duration::from_secs(20));
    let mut peer = brokers.take().welcome().await;
    peer.ask(1, "create", "held-m").await;
    peer.accepted(1).await;
    peer.ask(2, "create", "stubborn-m").await;
    peer.accepted(2).await;
    let begin = Instant::now();
    running.shutdown.cancel();
    drain_announced(&mut peer).await;
    assert_eq!(peer.result(1).await.code, Code::Cancelled as i32);
    assert_eq!(begin.elapsed().as_secs(), 20);
    running.ended().await.expect("it stops in any case");
    assert_eq!(begin.elapsed().as_secs(), 25);
}

/// Hears the end of one operation.
struct Listening(mpsc::Sender<Report>);

impl Ears for Listening {
    fn takes_over(&self, _: Resume) {}

    fn started(&self, operation: i32) {
        assert_eq!(operation, 1);
    }

    fn goes_on(&self, operation: i32) {
        assert_eq!(operation, 1);
    }

    fn ended(&self, _: Option<i32>, report: Report) -> Heard {
        self.0.try_send(report).map_or(Heard::No, |()| Heard::Woken)
    }

    fn orphan(&self, orphan: Orphan) {
        panic!("nobody is lost: {orphan:?}");
    }
}

/// A session that is there to hear it is rare, since sessions stop as well: so without one.
#[tokio::test(start_paused = true)]
async fn what_is_broken_off_is_not_sent_again_by_itself() {
    let stop = CancellationToken::new();
    let script = Arc::new(Scripted::default());
    let driver = Arc::new(driver::Shared(script.clone()));
    let fleet = Arc::new(Fleet::new(&Config::default()));
    let executor = Arc::new(Executor::new(driver, 1, LONG, stop.clone(), fleet));
    let (ends, mut ended) = mpsc::channel(1);
    let session = executor.join(AddressId(0), Arc::new(Listening(ends)));
    let asked = Asked { machine_name: "stubborn-m", ..Default::default() };
    let query = Arc::new(ClassQuery::new(Default::default(), &Default::default()));
    let classes = Arc::new(Classes::new());
    let (now, scratch) = (Instant::now(), &mut String::new());
    let job = Job::from_wire(Verb::Create, &asked, query, classes, now, scratch);
    let job = job.expect("it is fine");
    let ticket = Ticket { address: AddressId(0), session: Some(session), operation: Some(1) };
    let round = Arc::new(Round::default());
    executor.submit(ticket, job, Instant::now(), &round);
    executor.begin(round);
    script.called(1).await;
    stop.cancel();

    let report = ended.recv().await.expect("it ends");
    let error = report.outcome().as_ref().expect_err("it did not end well");
    assert_eq!(error.code(), Code::Aborted);
    assert!(error.retry_after().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stopping_driver_dials_once_more_to_report_what_it_still_ran() {
    let (mut broker, running, mut peer) = connected().await;
    peer.ask(1, "create", "held-m").await;
    peer.accepted(1).await;
    peer.cut().await;
    let waiting = broker.dialled().await;
    running.shutdown.cancel();
    drop(waiting);
    let mut peer = broker.welcome().await;
    // Both go out at once; the order between control frames is that of their making.
    assert_eq!(peer.resumed().await.machine_name, "held-m");
    drain_announced(&mut peer).await;
    running.script.gate.add_permits(1);
    assert!(peer.resumed().await.result.is_some());
    goodbye(peer).await;
    running.ended().await.expect("a clean end");
}

#[tokio::test(start_paused = true)]
async fn without_a_broker_a_driver_stops_soon() {
    let brokers = Brokers::new(1);
    let running = Running::start(&brokers);
    running.shutdown.cancel();
    tokio::time::timeout(LONG, running.ended()).await.expect("soon").expect("a clean end");
}

#[tokio::test(start_paused = true)]
async fn a_draining_broker_is_left_when_the_work_is_done_and_dialled_again() {
    let (mut broker, running, mut peer) = connected().await;
    peer.ask(1, "create", "held-m").await;
    peer.accepted(1).await;
    let begin = Instant::now();
    let after = Some(wire_duration(Duration::from_secs(5)));
    peer.control(Control::Drain(wire::Drain { reason: "update".into(), after })).await;
    peer.ping(1).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    peer.ping(2).await;
    running.script.gate.add_permits(1);
    assert_eq!(peer.result(1).await.code, 0);
    goodbye(peer).await;
    // All was read, but by a broker that goes away: the next one may know nothing of it.
    let mut peer = broker.welcome().await;
    assert_eq!(peer.resumed().await.machine_name, "held-m");
    peer.ping(1).await;
    assert!((6..10).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
}
