//! Shows in a cluster who is connected: a `Driver` object each, and Events.
//!
//! How it comes about:
//!
//! 1. Every second the [`Lookout`] reads from the registry what this broker sees of its drivers.
//! 2. [`plan`] compares that with the object as it is there, which may hold sessions of other brokers, and
//!    says whether a write is worth it.
//! 3. The [`Desk`] lines up what is, the most urgent first, and keeps to a pace: per object, and for all.
//! 4. A write says which version of the object it is meant for, so that of two brokers that write at once
//!    one is told so, and looks again. All write under one name, so that each may remove what another that
//!    died has left.
//!
//! Nobody waits for any of this: what cannot be written is tried again later, calmly, and what there is to
//! tell is bounded. The room does not know whose API it talks to; see [`Resources`].

mod desk;
mod fact;
mod name;
mod news;
mod pace;
mod plan;
mod resources;
mod summary;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{
    desk::{Desk, Done, Job},
    fact::{Fact, Lookout},
    news::Queue,
    pace::Bucket,
};
pub use self::{
    news::News,
    resources::{Failed, Object, Resources, Seen},
};
use crate::{
    backoff::{Backoff, Pace},
    catalog::Catalog,
    registry::{self, Registry},
};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Writes at once.
const WRITES: usize = 4;
/// Events in a second.
const NEWS_RATE: u32 = 5;
const NEWS_BURST: u32 = 50;
/// A CRD that was installed, and rights that were granted, are noticed soon; an API server that is away is
/// left in peace.
const PACE: Pace = Pace {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(15),
    well_after: Duration::from_secs(60),
};

/// Says which brokers are there, this one among them; `None` while that is not known.
pub type Live = Box<dyn Fn() -> Option<BTreeSet<Arc<str>>> + Send + Sync>;

/// What it takes.
pub struct Mirror {
    pub registry: Registry,
    pub catalog: Arc<dyn Catalog>,
    pub resources: Arc<dyn Resources>,
    /// What this broker calls itself.
    pub replica: String,
    pub live: Live,
    pub trouble: Trouble,
}

/// What is the matter with it, for operators. Cheap to clone: every clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    read: Option<String>,
    write: Option<String>,
    tell: Option<String>,
}

/// What did not work.
#[derive(Clone, Copy, Debug)]
enum Part {
    Read,
    Write,
    Tell,
}

impl Mirror {
    /// Keeps the objects up to date until `shutdown`. What is there then stays: this broker may be back in
    /// a moment, and if not, another removes it.
    pub fn run(self, shutdown: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        // What happens before this is first polled is heard as well.
        let happened = self.registry.history().follow();
        self.go(happened, shutdown)
    }

    async fn go(
        self,
        mut happened: broadcast::Receiver<registry::Event>,
        shutdown: CancellationToken,
    ) {
        let mut work = Work::new(&self);
        let mut lookout = Lookout::default();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut objects = self.resources.watch();
        let mut patience = Retry::new();
        loop {
            // Every branch is cancel safe.
            tokio::select! {
                () = shutdown.cancelled() => return,
                seen = async { sleep_until(patience.not_before).await; objects.next().await } => {
                    match seen {
                        Some(Ok(seen)) => {
                            self.trouble.over(Part::Read);
                            work.desk.see(seen);
                        }
                        Some(Err(failed)) => {
                            patience.failed();
                            if matches!(failed, Failed::Missing(_) | Failed::Forbidden(_)) {
                                work.desk.blind();
                                objects = self.resources.watch();
                            }
                            // A watch that is resumed has missed nothing.
                            if !work.desk.sees() {
                                self.trouble.note(Part::Read, &failed);
                            }
                        }
                        None => {
                            patience.failed();
                            objects = self.resources.watch();
                        }
                    }
                }
                Some(done) = work.writes.next() => work.written(done),
                Some(told) = work.telling.next() => work.told(told),
                event = happened.recv() => work.hear(event),
                _ = looks.tick() => {
                    let facts = lookout.look(&self.registry, &*self.catalog).await;
                    work.desk.line_up(facts, (self.live)()).await;
                    if work.is_well() {
                        self.trouble.over(Part::Write);
                    }
                }
            }
            work.go_on();
        }
    }
}

/// What is being written and told.
struct Work<'a> {
    mirror: &'a Mirror,
    desk: Desk,
    writes: FuturesUnordered<BoxFuture<'static, Done>>,
    write_again: Retry,
    news: Queue,
    telling: FuturesUnordered<BoxFuture<'static, (News, Result<(), Failed>)>>,
    tell_again: Retry,
    pace: Bucket,
}

impl<'a> Work<'a> {
    fn new(mirror: &'a Mirror) -> Self {
        Self {
            mirror,
            desk: Desk::new(mirror.replica.clone()),
            writes: FuturesUnordered::new(),
            write_again: Retry::new(),
            news: Queue::default(),
            telling: FuturesUnordered::new(),
            tell_again: Retry::new(),
            pace: Bucket::new(NEWS_RATE, NEWS_BURST),
        }
    }

    /// Begins what may be begun.
    fn go_on(&mut self) {
        let now = Instant::now();
        while self.writes.len() < WRITES
            && now >= self.write_again.not_before
            && let Some(job) = self.desk.next()
        {
            self.writes.push(self.write(job));
        }
        // One by one, so that they are told in order.
        if self.telling.is_empty()
            && now >= self.tell_again.not_before
            && let Some(news) = self.news.next(|name| self.desk.seen(name).is_some())
        {
            if self.pace.take(now) {
                let uid = self.desk.seen(&news.about).map(|object| object.uid.as_str());
                let telling = self.mirror.resources.tell(&news, uid);
                self.telling.push(telling.map(|result| (news, result)).boxed());
            } else {
                self.news.back(news);
            }
        }
    }

    fn write(&self, job: Job) -> BoxFuture<'static, Done> {
        let Job { name, seen, driver } = job;
        let resources = &self.mirror.resources;
        match (driver, seen) {
            (Some(driver), seen) => {
                let version = seen.as_ref().map(|object| object.version.as_str());
                let writing = resources.apply(&name, version, &driver);
                writing.map(|result| Done { name, result }).boxed()
            }
            (None, Some(seen)) => {
                let removing = resources.remove(&seen);
                removing.map(|result| Done { name, result }).boxed()
            }
            (None, None) => futures::future::ready(Done { name, result: Ok(()) }).boxed(),
        }
    }

    fn written(&mut self, done: Done) {
        match self.desk.done(done) {
            Ok(()) => self.write_again.worked(),
            Err(failed) => {
                self.mirror.trouble.note(Part::Write, &failed);
                if !matches!(failed, Failed::Refused(_)) {
                    self.write_again.failed();
                }
            }
        }
    }

    /// Whether all could be written, or nothing is to be.
    fn is_well(&self) -> bool {
        !self.desk.is_held_up() && (!self.write_again.failing || self.desk.is_idle())
    }

    fn told(&mut self, (news, result): (News, Result<(), Failed>)) {
        match result {
            Ok(()) => {
                self.mirror.trouble.over(Part::Tell);
                self.tell_again.worked();
            }
            // This one is not to be told.
            Err(Failed::Conflict | Failed::Refused(_)) => {}
            Err(failed) => {
                self.mirror.trouble.note(Part::Tell, &failed);
                self.tell_again.failed();
                self.news.back(news);
            }
        }
    }

    fn hear(&mut self, event: Result<registry::Event, RecvError>) {
        match event {
            Ok(event) => {
                if let Some(news) = News::of(&event, &self.mirror.replica) {
                    self.news.push(news);
                }
            }
            // More than anybody wants to read.
            Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "events of drivers not told"),
            // The registry lives as long as we do.
            Err(RecvError::Closed) => {}
        }
    }
}

/// When something that failed may be tried again.
struct Retry {
    backoff: Backoff,
    since: Instant,
    not_before: Instant,
    failing: bool,
}

impl Retry {
    fn new() -> Self {
        let now = Instant::now();
        Self { backoff: Backoff::new(PACE), since: now, not_before: now, failing: false }
    }

    fn failed(&mut self) {
        let now = Instant::now();
        self.not_before = now + self.backoff.next(now.saturating_duration_since(self.since));
        self.since = self.not_before;
        self.failing = true;
    }

    fn worked(&mut self) {
        self.backoff = Backoff::new(PACE);
        self.failing = false;
    }
}

impl Trouble {
    /// What is the matter, if anything is.
    pub fn problems(&self) -> Vec<String> {
        let known = self.known();
        let shown = known.read.as_ref().or(known.write.as_ref());
        let shown = shown.map(|why| format!("drivers are not shown in the cluster: {why}"));
        let told = known.tell.as_ref();
        let told = told.map(|why| format!("events of drivers are not told in the cluster: {why}"));
        shown.into_iter().chain(told).collect()
    }

    fn note(&self, part: Part, failed: &Failed) {
        let why = failed.to_string();
        let before = self.known().part(part).replace(why.clone());
        if before.as_ref() != Some(&why) {
            tracing::warn!(why, ?part, "drivers cannot be shown in the cluster");
        }
    }

    fn over(&self, part: Part) {
        if self.known().part(part).take().is_some() {
            tracing::info!(?part, "drivers can be shown in the cluster again");
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn part(&mut self, part: Part) -> &mut Option<String> {
        match part {
            Part::Read => &mut self.read,
            Part::Write => &mut self.write,
            Part::Tell => &mut self.tell,
        }
    }
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").field("resources", &self.resources).finish_non_exhaustive()
    }
}
