//! Everything the page shows, once a second, as server-sent events.
//!
//! All pages are told the same: the first to look within a second makes the text, the others share it.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use futures::{StreamExt as _, stream};
use serde::Serialize;
use tokio::{
    sync::Semaphore,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    Web,
    entrance::Visitor,
    facts::{Driver, Operation, Series, Status},
};
use crate::{
    inspect::{self, Rooms},
    operation::pace,
};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a page waits before it tries again.
const RETRY: Duration = Duration::from_secs(1);
/// How many pages may be open at once.
const MOST_PAGES: usize = 100;
/// How much of each a page is told; how many more there are it learns as well.
const MOST_DRIVERS: usize = 500;
const MOST_RUNNING: usize = 200;
const FINISHED: usize = 50;

/// What all pages share.
#[derive(Debug)]
pub(super) struct Board {
    text: Mutex<Option<(Instant, Arc<str>)>>,
    pages: Arc<Semaphore>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Snapshot {
    status: Status,
    /// Those that need a look first.
    drivers: Vec<Driver>,
    drivers_in_all: usize,
    /// Stuck ones first, then the oldest.
    running: Vec<Operation>,
    running_in_all: usize,
    finished: Vec<Operation>,
    step: u64,
    steps: u64,
    pace: Vec<Series>,
}

impl Default for Board {
    fn default() -> Self {
        Self { text: Mutex::default(), pages: Arc::new(Semaphore::new(MOST_PAGES)) }
    }
}

impl Board {
    fn text(&self, rooms: &Rooms) -> Arc<str> {
        let mut text = self.text.lock().expect("no panic while locked");
        match &*text {
            Some((at, text)) if at.elapsed() < LOOK_EVERY / 2 => Arc::clone(text),
            _ => {
                let new: Arc<str> = serde_json::to_string(&snapshot(rooms))
                    .expect("plain structs become JSON")
                    .into();
                *text = Some((Instant::now(), Arc::clone(&new)));
                new
            }
        }
    }
}

pub(super) async fn stream(
    State(web): State<Web>,
    Extension(visitor): Extension<Visitor>,
) -> Response {
    let Ok(page) = Arc::clone(&web.board.pages).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n").into_response();
    };
    let revoked = web.entrance.clone().revoked(visitor.clone());
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = stream::unfold((web, ticks, page), move |(web, mut ticks, page)| {
        let visitor = visitor.clone();
        async move {
            web.stopped.run_until_cancelled(ticks.tick()).await?;
            if !web.entrance.is_logged_in(&visitor) {
                return None;
            }
            let event = Event::default().retry(RETRY).data(web.board.text(&web.rooms));
            Some((Ok::<_, Infallible>(event), (web, ticks, page)))
        }
    });
    Sse::new(events.take_until(revoked)).into_response()
}

fn snapshot(rooms: &Rooms) -> Snapshot {
    let mut drivers: Vec<Driver> =
        inspect::drivers(rooms, "").into_iter().map(Into::into).collect();
    let drivers_in_all = drivers.len();
    drivers.sort_by_key(|driver| driver.state == "ready");
    drivers.truncate(MOST_DRIVERS);

    let operations = inspect::operations(rooms, FINISHED).into_iter().map(Operation::from);
    let (finished, mut running): (Vec<_>, Vec<_>) = operations.partition(|o| o.finished);
    let running_in_all = running.len();
    running.sort_by_key(|operation| operation.stuck.is_empty());
    running.truncate(MOST_RUNNING);

    Snapshot {
        status: inspect::status(rooms).into(),
        drivers,
        drivers_in_all,
        running,
        running_in_all,
        finished,
        step: pace::STEP.as_secs(),
        steps: pace::STEPS,
        pace: rooms.ledger.pace().into_iter().map(Into::into).collect(),
    }
}
