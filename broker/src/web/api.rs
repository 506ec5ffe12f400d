//! The facts as JSON, one page each.

use axum::{
    extract::{Path, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{
    Web,
    facts::{Driver, Event, Operation, Status},
};
use crate::inspect::{self, Unknown};

/// How many finished operations are told.
const FINISHED: usize = 100;
/// How many drivers or operations are told; how many more there are is told as well.
const MOST: usize = 1_000;
/// How many events of a driver's history are told.
const EVENTS: usize = 100;

#[derive(Serialize)]
struct Drivers {
    drivers: Vec<Driver>,
    /// How many are not told.
    more: usize,
}

#[derive(Serialize)]
struct Operations {
    operations: Vec<Operation>,
    more: usize,
}

/// One driver with all that is known of it; its state is `gone` when its session is over.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    driver: Driver,
    history: Vec<Event>,
    more_history: u32,
    operations: Vec<Operation>,
    more_operations: u32,
}

pub(super) async fn status(State(web): State<Web>) -> Response {
    json(&Status::from(inspect::status(&web.rooms)))
}

pub(super) async fn drivers(State(web): State<Web>) -> Response {
    let (drivers, more) = first(inspect::drivers(&web.rooms, ""));
    json(&Drivers { drivers: drivers.into_iter().map(Into::into).collect(), more })
}

pub(super) async fn operations(State(web): State<Web>) -> Response {
    let (operations, more) = first(inspect::operations(&web.rooms, FINISHED));
    json(&Operations { operations: operations.into_iter().map(Into::into).collect(), more })
}

/// By session or instance, connected or gone.
pub(super) async fn driver(State(web): State<Web>, Path(name): Path<String>) -> Response {
    let rooms = &web.rooms;
    let session = match inspect::known(rooms, &name) {
        Ok(session) => session,
        Err(unknown) => return (of_unknown(&unknown), format!("{unknown}\n")).into_response(),
    };
    let details = inspect::details(rooms, &session, EVENTS);
    json(&Details {
        driver: details.driver.unwrap_or_default().into(),
        history: details.history.into_iter().map(Into::into).collect(),
        more_history: details.history_more,
        operations: details.operations.into_iter().map(Into::into).collect(),
        more_operations: details.operations_more,
    })
}

pub(super) fn of_unknown(unknown: &Unknown) -> StatusCode {
    match unknown {
        Unknown::Nobody(_) | Unknown::Rejected { .. } | Unknown::Gone { .. } => {
            StatusCode::NOT_FOUND
        }
        Unknown::Several { .. } => StatusCode::CONFLICT,
    }
}

/// The first so many, and how many more there are.
fn first<T>(mut all: Vec<T>) -> (Vec<T>, usize) {
    let more = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    (all, more)
}

pub(super) fn json(facts: &impl Serialize) -> Response {
    let text = serde_json::to_string(facts).expect("plain structs become JSON");
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}
