//! What callers ask, in trouble and in peace.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use broker_tests::{
    caller::{Ask, Caller},
    chance::Chance,
    history::Verb,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::presence::Presence;

const VERBS: [Verb; 6] =
    [Verb::Create, Verb::Create, Verb::Create, Verb::Delete, Verb::Status, Verb::List];
const TRIES: Range<usize> = 1..8;
const CALL_MILLIS: Range<usize> = 500..25_000;
const LEAVES_MILLIS: Range<usize> = 0..3_000;
const PAUSE_MILLIS: Range<usize> = 10..300;
/// Longer than a lost operation holds its machine: its deadline and the time that drivers get on top.
const CONVERGES_WITHIN: Duration = Duration::from_secs(120);
const CALM_TIME: Duration = Duration::from_secs(30);

/// A caller and what it may expect of its way to the broker.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) caller: Caller,
    /// `None` where the way itself is in trouble.
    pub(super) presence: Option<Arc<Presence>>,
}

impl Line {
    /// Asks once. Says whether that was a success.
    async fn ask(&self, ask: &Ask) -> bool {
        let end = match &self.presence {
            Some(presence) => presence.ask(&self.caller, ask).await,
            None => self.caller.ask(ask, |_| false).await,
        };
        end.is_success()
    }
}

/// Asks this and that, retries, gives up now and then, until it is `stopped`.
pub(super) async fn troubled(
    line: Line,
    chance: Chance,
    machines: Vec<String>,
    stopped: Arc<AtomicBool>,
) {
    while !stopped.load(Ordering::Relaxed) {
        let verb = *chance.pick(&VERBS);
        let machine = match verb {
            Verb::List => "",
            _ => chance.pick(&machines).as_str(),
        };
        let mut ask = Ask::new(verb, machine, Duration::ZERO);
        ask.wait_for_driver = chance.percent(20);
        for _ in 0..chance.among(TRIES) {
            ask.time = chance.millis(CALL_MILLIS);
            ask.leaves_after = chance.percent(15).then(|| chance.millis(LEAVES_MILLIS));
            if line.ask(&ask).await || stopped.load(Ordering::Relaxed) {
                break;
            }
            sleep(chance.millis(PAUSE_MILLIS)).await;
        }
        sleep(chance.millis(PAUSE_MILLIS)).await;
    }
}

/// One more wish for each machine, until it is fulfilled. Says how many are to be there.
pub(super) async fn converge(line: &Line, chance: &Chance, machines: &[String]) -> usize {
    let mut wishes = JoinSet::new();
    let mut asked = 0;
    for machine in machines {
        let verb = *chance.pick(&[Verb::Create, Verb::Delete]);
        asked += usize::from(verb == Verb::Create);
        let (line, machine) = (line.clone(), machine.clone());
        wishes.spawn(async move { fulfil(&line, verb, &machine).await });
    }
    wishes.join_all().await;
    asked
}

/// Without a word in the history but the calls themselves.
pub(super) async fn delete(line: &Line, machines: &[String]) {
    let mut wishes = JoinSet::new();
    for machine in machines {
        let (line, machine) = (line.clone(), machine.clone());
        wishes.spawn(async move { fulfil(&line, Verb::Delete, &machine).await });
    }
    wishes.join_all().await;
}

async fn fulfil(line: &Line, verb: Verb, machine: &str) {
    let ask = Ask::new(verb, machine, CALM_TIME);
    let give_up = Instant::now() + CONVERGES_WITHIN;
    while !line.ask(&ask).await {
        if Instant::now() > give_up {
            // The history has to show it.
            line.ask(&ask.clone().calm()).await;
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// When nothing is wrong any more, everything works at the first try.
pub(super) async fn calm(line: &Line, machine: &str) {
    for verb in [Verb::Create, Verb::Create, Verb::Status, Verb::List, Verb::Delete] {
        let machine = if verb == Verb::List { "" } else { machine };
        line.ask(&Ask::new(verb, machine, CALM_TIME).calm()).await;
    }
}
