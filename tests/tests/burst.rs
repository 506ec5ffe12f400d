//! Far more is submitted at once than can be done: what it costs, and what becomes of it.

use std::{
    collections::BTreeMap,
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use broker_proto::v1::{SubmitRequest, submit_request::Operation, submit_response::Outcome};
use broker_tests::{
    Controller,
    caller::Ask,
    history::Verb,
    process::{BrokerProcess, PATIENCE},
    story::{Story, insist, stop},
    submission,
};
use futures::stream;
use prost::Message as _;
use tokio::{task::JoinSet, time::Instant};
use tonic::Code;
use tonic_types::RetryInfo;

/// More than a driver can make of a burst in any time that matters.
const SPEC: &str = "createDelay: 1s";
/// Each has ten thousand under way at once, as many as the broker reads of one stream.
const STREAMS: usize = 4;
/// As many submissions as the smaller burst has: more than are under way at any time.
const SMALLER: usize = 50_000;
/// And the larger one; the full million takes minutes, so it is asked for with
/// `BROKER_TESTS_BURST=1000000`.
const LARGER: usize = 100_000;
/// What waits in the queue gives up after it.
const TIME: Duration = Duration::from_secs(10);

/// What became of a burst.
#[derive(Debug, Default)]
struct Burst {
    answers: BTreeMap<i32, usize>,
    /// How much memory the broker had at most, in KiB.
    memory: u64,
}

/// Submits so many creates over several streams and reads every answer.
async fn burst(broker: &BrokerProcess, round: &str, submissions: usize) -> Burst {
    let memory = Arc::new(AtomicU64::new(0));
    let mut streams = JoinSet::new();
    for number in 0..STREAMS {
        let controller = Controller::new(broker.channel().await);
        let share = submissions / STREAMS;
        let prefix = format!("{round}-{number}");
        let request = move |tag: usize| {
            let create = Operation::Create(Controller::request(&format!("{prefix}-{tag}")));
            let timeout = TIME.try_into().ok();
            SubmitRequest { timeout, ..submission(tag as u64, create) }
        };
        streams.spawn(async move {
            let requests = stream::iter((0..share).map(request));
            let answers = controller.machines.clone().submit(requests).await;
            let mut answers = answers.expect("the stream opens").into_inner();
            let mut answered = vec![false; share];
            let mut codes = BTreeMap::<i32, usize>::new();
            while let Some(answer) = answers.message().await.expect("the stream stands") {
                let tag = usize::try_from(answer.tag).expect("a tag of ours");
                assert!(!std::mem::replace(&mut answered[tag], true), "{tag} is answered twice");
                let code = match answer.outcome.expect("an outcome") {
                    Outcome::Error(error) => {
                        if error.code == i32::from(Code::ResourceExhausted) {
                            assert!(has_hint(&error), "no hint when to retry: {error:?}");
                        }
                        error.code
                    }
                    _ => 0,
                };
                *codes.entry(code).or_default() += 1;
            }
            assert!(answered.iter().all(|answered| *answered), "each is answered");
            codes
        });
    }
    let mut burst = Burst::default();
    loop {
        tokio::select! {
            ended = streams.join_next() => {
                let Some(codes) = ended else { break };
                let codes = codes.unwrap_or_else(|panic| {
                    panic!("{panic}; the broker says:\n{}", broker.process.output())
                });
                for (code, count) in codes {
                    *burst.answers.entry(code).or_default() += count;
                }
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                memory.fetch_max(broker.memory(), Ordering::Relaxed);
            }
        }
    }
    burst.memory = memory.load(Ordering::Relaxed);
    burst
}

fn has_hint(error: &tonic_types::Status) -> bool {
    let hint = error.details.iter().find(|detail| detail.type_url.ends_with("RetryInfo"));
    hint.is_some_and(|hint| {
        let info = tonic_types::pb::RetryInfo::decode(hint.value.as_slice());
        info.is_ok_and(|info| {
            RetryInfo::from(info).retry_delay.is_some_and(|delay| !delay.is_zero())
        })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_answered_one_by_one_and_what_is_refused_takes_no_memory() {
    let larger = env::var("BROKER_TESTS_BURST").map_or(LARGER, |n| n.parse().expect("a number"));
    assert!(larger > SMALLER, "the larger burst is to be larger than {SMALLER}");
    let story = Story::with(SPEC);
    let broker = story.broker(&["--log", "warn,broker::server=info"]);
    let driver = story.driver(broker.drivers, "sim-0");
    broker.until_listed("there", |drivers| drivers.len() == 1).await;
    let before = broker.memory();

    let mut grown = Vec::new();
    for (round, submissions) in [("smaller", SMALLER), ("larger", larger)] {
        let began = Instant::now();
        let burst = burst(&broker, round, submissions).await;
        let answered: usize = burst.answers.values().sum();
        assert_eq!(answered, submissions / STREAMS * STREAMS);
        let refused = burst.answers.get(&i32::from(Code::ResourceExhausted));
        assert!(refused.is_some_and(|refused| *refused > 0), "{burst:?}");
        let growth = burst.memory.saturating_sub(before);
        println!(
            "{submissions} submissions in {:?}: {burst:?}, {growth} KiB more",
            began.elapsed()
        );
        grown.push(growth);
    }
    // What a submission costs that is under way, and what each one more costs that is not. If all were
    // kept it would be the same; allocators keep some.
    let at_once = grown[0] as f64 / SMALLER as f64;
    let one_more = grown[1].saturating_sub(grown[0]) as f64 / (larger - SMALLER) as f64;
    println!("{at_once:.2} KiB each of {SMALLER}, {one_more:.2} KiB each of the rest");
    assert!(one_more <= at_once / 2.0, "memory grows with the burst: {grown:?} KiB");

    // Then it is as if nothing had been.
    let caller = story.caller(broker.channel().await);
    insist(&caller, &Ask::new(Verb::Create, "after", PATIENCE).calm()).await;
    stop(driver).await;
    assert_eq!(broker.running().await, []);
    let vms = story.world.cloud().all().expect("the cloud can be read");
    let names: std::collections::BTreeSet<_> = vms.iter().map(|vm| &vm.name).collect();
    assert_eq!(names.len(), vms.len(), "no machine has two VMs");
}
