//! Streams of changes. Watchers look at a shared [`Board`] twice a second; the first to look brings it
//! up to date, so many watchers cost little more than one, and none costs nothing.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use broker_proto::v1::{self, DriverEvent, OperationEvent, driver_event, operation_event};
use futures::{Stream, StreamExt as _, stream};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tonic::Status;

use super::board::{Board, News};
use crate::inspect::{self, Rooms};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many finished operations a watcher may have missed between two looks.
const FINISHED: usize = 1_000;

/// What watchers look at.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) rooms: Arc<Rooms>,
    boards: Boards,
}

impl Watched {
    pub(super) fn new(rooms: Arc<Rooms>) -> Self {
        Self { rooms, boards: Boards::default() }
    }
}

/// The boards of drivers and operations.
#[derive(Debug)]
struct Boards {
    /// Tells the tokens of two broker processes apart.
    epoch: u32,
    drivers: Mutex<Sampled<v1::Driver>>,
    operations: Mutex<Sampled<v1::Operation>>,
}

#[derive(Debug)]
struct Sampled<T> {
    board: Board<T>,
    at: Option<Instant>,
}

impl Default for Boards {
    fn default() -> Self {
        Self {
            epoch: rand::random(),
            drivers: Mutex::new(Sampled { board: Board::default(), at: None }),
            operations: Mutex::new(Sampled { board: Board::default(), at: None }),
        }
    }
}

impl<T: Clone + PartialEq> Sampled<T> {
    /// What is new, after a fresh look unless somebody has just had one.
    fn news(&mut self, since: Option<u64>, look: impl FnOnce() -> Vec<(String, T)>) -> News<T> {
        if self.at.is_none_or(|at| at.elapsed() >= LOOK_EVERY / 2) {
            self.board.update(look());
            self.at = Some(Instant::now());
        }
        self.board.since(since)
    }
}

impl Boards {
    fn token(&self, revision: u64) -> String {
        format!("{:08x}-{revision}", self.epoch)
    }

    /// The revision in a token of this broker process; `None` for any other text.
    fn revision(&self, token: &str) -> Option<u64> {
        let (epoch, revision) = token.split_once('-')?;
        (epoch == format!("{:08x}", self.epoch)).then(|| revision.parse().ok())?
    }
}

pub(super) fn drivers(
    watched: Arc<Watched>,
    kind: String,
    token: String,
) -> impl Stream<Item = Result<DriverEvent, Status>> {
    watch(watched, token, move |watched, since| {
        let mut drivers = watched.boards.drivers.lock().expect("no panic while locked");
        let news = drivers.news(since, || {
            let drivers = inspect::drivers(&watched.rooms, "").into_iter();
            drivers.map(|driver| (driver.session_id.clone(), steady_driver(driver))).collect()
        });
        let concerns = |driver: &v1::Driver| {
            kind.is_empty() || driver.kinds.iter().any(|served| served.kind == kind)
        };
        let changed = news.changed.into_iter().filter(concerns).map(driver_event::Event::Changed);
        let gone = news.gone.into_iter().map(driver_event::Event::Removed);
        let reset = news.reset.then_some(driver_event::Event::Reset(v1::Reset {}));
        let synced = since.is_none().then_some(driver_event::Event::Synced(v1::Synced {}));
        let token = watched.boards.token(news.revision);
        let events = reset.into_iter().chain(changed).chain(gone).chain(synced);
        let event = |event| DriverEvent { event: Some(event), resume_token: token.clone() };
        (events.map(event).collect(), news.revision)
    })
}

pub(super) fn operations(
    watched: Arc<Watched>,
    token: String,
) -> impl Stream<Item = Result<OperationEvent, Status>> {
    watch(watched, token, move |watched, since| {
        let mut operations = watched.boards.operations.lock().expect("no panic while locked");
        let news = operations.news(since, || {
            let operations = inspect::operations(&watched.rooms, FINISHED).into_iter();
            operations.map(|op| (op.operation_id.clone(), steady_operation(op))).collect()
        });
        // Who begins is told what runs; what is over it can list.
        let concerns = |operation: &v1::Operation| !(news.reset && operation.finished);
        let changed = news.changed.into_iter().filter(concerns);
        let changed = changed.map(operation_event::Event::Changed);
        let reset = news.reset.then_some(operation_event::Event::Reset(v1::Reset {}));
        let synced = since.is_none().then_some(operation_event::Event::Synced(v1::Synced {}));
        let token = watched.boards.token(news.revision);
        let events = reset.into_iter().chain(changed).chain(synced);
        let event = |event| OperationEvent { event: Some(event), resume_token: token.clone() };
        (events.map(event).collect(), news.revision)
    })
}

/// Looks again and again, until the watcher leaves or the broker stops.
fn watch<E: Send + 'static>(
    watched: Arc<Watched>,
    token: String,
    look: impl Fn(&Watched, Option<u64>) -> (Vec<E>, u64) + Send + 'static,
) -> impl Stream<Item = Result<E, Status>> {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let since = watched.boards.revision(&token);
    let state = (watched, since, ticks, look);
    stream::unfold(state, |(watched, since, mut ticks, look)| async move {
        watched.rooms.closing.run_until_cancelled(ticks.tick()).await?;
        let (events, revision) = look(&watched, since);
        Some((stream::iter(events.into_iter().map(Ok)), (watched, Some(revision), ticks, look)))
    })
    .flatten()
}

/// Without what changes all the time and is news to nobody.
fn steady_driver(driver: v1::Driver) -> v1::Driver {
    v1::Driver { last_heard: None, round_trip: None, oldest_pending: None, ..driver }
}

fn steady_operation(operation: v1::Operation) -> v1::Operation {
    // What a finished operation took is settled; what a running one has so far is not.
    let age = operation.age.filter(|_| operation.finished);
    let stuck = operation.stuck.split(" for ").next().unwrap_or_default().to_owned();
    v1::Operation { age, time_left: None, stuck, ..operation }
}
