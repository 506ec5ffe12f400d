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
use crate::inspect::{self, Rooms};

/// How many finished operations are told.
const FINISHED: usize = 100;

#[derive(Serialize)]
struct Drivers {
    drivers: Vec<Driver>,
}

#[derive(Serialize)]
struct Operations {
    operations: Vec<Operation>,
}

/// One driver with all that is known of it; `driver` is null when its session is over.
#[derive(Serialize)]
struct Details {
    driver: Option<Driver>,
    history: Vec<Event>,
    operations: Vec<Operation>,
}

pub(super) async fn status(State(web): State<Web>) -> Response {
    json(&Status::from(inspect::status(&web.rooms)))
}

pub(super) async fn drivers(State(web): State<Web>) -> Response {
    let drivers = inspect::drivers(&web.rooms, "").into_iter().map(Into::into).collect();
    json(&Drivers { drivers })
}

pub(super) async fn operations(State(web): State<Web>) -> Response {
    let operations = operations_of(&web.rooms, |_| true);
    json(&Operations { operations })
}

pub(super) async fn driver(State(web): State<Web>, Path(session): Path<String>) -> Response {
    let rooms = &web.rooms;
    let connected = rooms.registry.sessions();
    let connected = connected.iter().find(|handle| handle.info().id.to_string() == session);
    let details = match connected {
        Some(handle) => Some(inspect::details(rooms, handle)),
        None => inspect::past(rooms, &session),
    };
    let Some(details) = details else {
        return (StatusCode::NOT_FOUND, "no such session is known\n").into_response();
    };
    json(&Details {
        driver: details.driver.map(Into::into),
        history: details.history.into_iter().map(Into::into).collect(),
        operations: operations_of(rooms, |operation| operation.session == session),
    })
}

fn operations_of(rooms: &Rooms, wanted: impl Fn(&Operation) -> bool) -> Vec<Operation> {
    let operations = inspect::operations(rooms, FINISHED).into_iter().map(Operation::from);
    operations.filter(wanted).collect()
}

fn json(facts: &impl Serialize) -> Response {
    let text = serde_json::to_string(facts).expect("plain structs become JSON");
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}
