//! What is there, what is to be written next, and when.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, SystemTime},
};

use broker_crds::driver::Driver;
use tokio::time::Instant;

use super::{
    Failed, Object, Seen,
    fact::Facts,
    pace::{Bucket, Past},
    plan::{Here, Why},
};

/// Objects written in a second, however many drivers there are.
const RATE: u32 = 20;
const BURST: u32 = 40;
/// After so many objects others get their turn.
const AT_ONCE: usize = 250;
/// An object that the API server does not take will not be taken in a moment either.
const AFTER_REFUSAL: Duration = Duration::from_secs(5 * 60);

/// Something to write.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) name: Arc<str>,
    /// As it is there.
    pub(super) seen: Option<Object>,
    /// As it ought to be; `None` if it ought not to be.
    pub(super) driver: Option<Driver>,
}

/// What became of it.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) name: Arc<str>,
    pub(super) result: Result<(), Failed>,
}

#[derive(Debug)]
pub(super) struct Desk {
    replica: String,
    /// The brokers that are there, if that is known.
    live: Option<BTreeSet<Arc<str>>>,
    /// `None` until all were listed.
    seen: Option<HashMap<String, Object>>,
    facts: Facts,
    pasts: HashMap<Arc<str>, Past>,
    queue: VecDeque<Arc<str>>,
    /// Being written.
    busy: HashSet<Arc<str>>,
    bucket: Bucket,
}

impl Desk {
    pub(super) fn new(replica: String) -> Self {
        Self {
            replica,
            live: None,
            seen: None,
            facts: Facts::default(),
            pasts: HashMap::new(),
            queue: VecDeque::new(),
            busy: HashSet::new(),
            bucket: Bucket::new(RATE, BURST),
        }
    }

    pub(super) fn see(&mut self, seen: Seen) {
        match (seen, &mut self.seen) {
            (Seen::All(all), known) => {
                *known =
                    Some(all.into_iter().map(|object| (object.name.clone(), object)).collect());
            }
            (Seen::Changed(object), Some(known)) => {
                known.insert(object.name.clone(), *object);
            }
            (Seen::Gone(name), Some(known)) => {
                known.remove(&name);
            }
            (_, None) => {}
        }
    }

    /// Nothing is known of the objects any more.
    pub(super) fn blind(&mut self) {
        self.seen = None;
    }

    pub(super) fn seen(&self, name: &str) -> Option<&Object> {
        self.seen.as_ref()?.get(name)
    }

    /// Lines up what is to be written, the most urgent first.
    pub(super) async fn line_up(&mut self, facts: Facts, live: Option<BTreeSet<Arc<str>>>) {
        (self.facts, self.live) = (facts, live);
        self.queue.clear();
        let Some(seen) = &self.seen else { return };
        let now = Instant::now();
        self.pasts.retain(|name, past| {
            self.facts.contains_key(name) || seen.contains_key(&**name) || past.matters(now)
        });
        let others = seen.keys().filter(|name| !self.facts.contains_key(name.as_str()));
        let names = self.facts.keys().cloned().chain(others.map(|name| name.as_str().into()));
        let names: Vec<Arc<str>> = names.collect();
        let mut due = Vec::new();
        for (number, name) in names.into_iter().enumerate() {
            if number % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            if let Some(why) = self.due(&name, now) {
                due.push((why, name));
            }
        }
        due.sort_by_key(|(why, _)| *why);
        self.queue.extend(due.into_iter().map(|(_, name)| name));
    }

    /// Whether all objects were seen at some time.
    pub(super) fn sees(&self) -> bool {
        self.seen.is_some()
    }

    /// Whether nothing waits to be written.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.busy.is_empty()
    }

    /// Whether an object could not be written and is tried again later.
    pub(super) fn is_held_up(&self) -> bool {
        let now = Instant::now();
        self.pasts.values().any(|past| past.waits(now))
    }

    /// The next one, if there is one and it is time for it.
    pub(super) fn next(&mut self) -> Option<Job> {
        let now = Instant::now();
        while let Some(name) = self.queue.front().cloned() {
            // Looked at again: others write, too.
            if self.busy.contains(&name) || self.due(&name, now).is_none() {
                self.queue.pop_front();
                continue;
            }
            if !self.bucket.take(now) {
                return None;
            }
            self.queue.pop_front();
            let seen = self.seen(&name);
            let driver = here(&self.replica, &self.live).object(seen, self.facts.get(&name));
            let job = Job { seen: seen.cloned(), driver, name: Arc::clone(&name) };
            self.busy.insert(name);
            return Some(job);
        }
        None
    }

    /// Says what was wrong, if it concerns others as well.
    pub(super) fn done(&mut self, done: Done) -> Result<(), Failed> {
        let Done { name, result } = done;
        self.busy.remove(&name);
        let (now, past) = (Instant::now(), self.pasts.entry(Arc::clone(&name)).or_default());
        match result {
            // What came of it is seen like all else, in the order in which it happened.
            Ok(()) => {
                past.written(now);
                Ok(())
            }
            Err(Failed::Conflict) => {
                // Whoever was quicker is heard of in the meantime.
                past.wait(
                    now,
                    Duration::from_millis(500).mul_f64(1.0 + 2.0 * rand::random::<f64>()),
                );
                Ok(())
            }
            Err(failed) => {
                let pause =
                    if let Failed::Refused(_) = failed { AFTER_REFUSAL } else { Duration::ZERO };
                past.wait(now, pause);
                Err(failed)
            }
        }
    }

    fn due(&mut self, name: &Arc<str>, now: Instant) -> Option<Why> {
        let here = here(&self.replica, &self.live);
        let seen = self.seen.as_ref()?.get(&**name);
        let why = here.why(seen, self.facts.get(name));
        // Most need nothing and have no past.
        let past = match self.pasts.get_mut(name) {
            Some(past) => past,
            None if why.is_none() => return None,
            None => self.pasts.entry(Arc::clone(name)).or_default(),
        };
        let turn = if why == Some(Why::Leftover) { here.turn(name) } else { 0 };
        past.is_due(why, turn, now).then_some(why).flatten()
    }
}

fn here<'a>(replica: &'a str, live: &'a Option<BTreeSet<Arc<str>>>) -> Here<'a> {
    Here { replica, live: live.as_ref(), now: SystemTime::now() }
}
