//! What the operation commands show.

use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use broker_proto::v1::{Delivery, Operation};
use serde::Serialize;

use crate::{
    commands::{ClassView, age_of, duration, rfc3339, seconds, time},
    output::{Look, View},
    sheet::Sheet,
    table::{self, Cell, Column},
    watch::Watched,
};

#[derive(Debug, Serialize)]
pub(super) struct OperationList {
    pub(super) operations: Vec<OperationView>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperationView {
    pub(crate) operation_id: String,
    pub(crate) verb: String,
    class: ClassView,
    pub(crate) machine_name: String,
    pub(crate) driver_instance: String,
    pub(super) session_id: String,
    pub(crate) delivery: &'static str,
    submitted_at: Option<String>,
    time_seconds: Option<f64>,
    pub(super) finished: bool,
    outcome: String,
    pub(crate) message: String,
    attempts: u32,
    time_left_seconds: Option<f64>,
    pub(crate) stuck: String,
    queued_for_seconds: Option<f64>,
    accepted_after_seconds: Option<f64>,
    /// Its age while it runs, all it took once it has finished.
    #[serde(skip)]
    pub(crate) time: Option<Duration>,
    #[serde(skip)]
    submitted: Option<SystemTime>,
    #[serde(skip)]
    pub(crate) time_left: Option<Duration>,
    #[serde(skip)]
    queued_for: Option<Duration>,
    #[serde(skip)]
    accepted_after: Option<Duration>,
}

impl Watched for OperationView {
    // What it took is worth knowing.
    const KEEPS_RESTLESS: bool = true;
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ID", |operation, _| (&operation.operation_id).into()),
        Column::new("VERB", |operation, _| (&operation.verb).into()),
        Column::new("MACHINE", |operation, _| (&operation.machine_name).into()),
        Column::new("CLASS", |operation, _| operation.class().into()),
        Column::new("DRIVER", |operation, _| (&operation.driver_instance).into()),
        Column::new("DELIVERY", |operation, _| operation.delivery.into()),
        Column::restless("TIME", |operation, _| age_of(operation.time).into()),
        Column::new("OUTCOME", |operation, _| operation.outcome_cell()),
        Column::wide("KIND", |operation, _| (&operation.class.kind).into()),
        Column::wide("SESSION", |operation, _| (&operation.session_id).into()),
        Column::wide("ATTEMPTS", |operation, _| operation.attempts.to_string().into()),
        Column::wide_restless("TIME LEFT", |operation, _| age_of(operation.time_left).into()),
        Column::wide("QUEUED FOR", |operation, _| age_of(operation.queued_for).into()),
        Column::wide("ACCEPTED AFTER", |operation, _| age_of(operation.accepted_after).into()),
        Column::wide("MESSAGE", |operation, _| (&operation.message).into()),
    ];

    fn id(&self) -> &str {
        &self.operation_id
    }
}

impl OperationView {
    pub(crate) fn class(&self) -> String {
        self.class.path()
    }

    pub(crate) fn outcome_cell(&self) -> Cell {
        match (self.outcome.as_str(), self.stuck.as_str()) {
            _ if !self.finished && self.stuck.is_empty() => "running".into(),
            (_, stuck) if !self.finished => {
                Cell::styled(format!("STUCK: {stuck}"), AnsiColor::Red.on_default().bold())
            }
            ("OK", _) => Cell::styled("OK", AnsiColor::Green.on_default()),
            (other, _) => Cell::styled(other, AnsiColor::Red.on_default()),
        }
    }
}

impl View for OperationList {
    fn text(&self, look: Look) -> String {
        table::of(OperationView::COLUMNS, &self.operations, look)
    }
}

/// One operation is described.
impl View for OperationView {
    fn text(&self, look: Look) -> String {
        let submitted = self.submitted.map_or(String::new(), rfc3339);
        let took = if self.finished { "Took" } else { "Age" };
        let mut sheet = Sheet::default()
            .field("Operation", &self.operation_id)
            .field("Verb", &self.verb)
            .field("Machine", &self.machine_name)
            .field("Outcome", self.outcome_cell())
            .field("Message", &self.message)
            .section("Class")
            .field("Kind", &self.class.kind)
            .field("API version", &self.class.api_version)
            .field("Class", self.class())
            .section("Driver")
            .field("Instance", &self.driver_instance)
            .field("Session", &self.session_id)
            .section("Delivery")
            .field("State", Cell::styled(self.delivery, Style::new()))
            .field("Attempts", self.attempts.to_string())
            .field("Submitted", submitted)
            .field("Queued for", age_of(self.queued_for))
            .field("Accepted after", age_of(self.accepted_after))
            .field(took, age_of(self.time));
        if !self.finished {
            sheet = sheet.field("Time left", age_of(self.time_left));
        }
        sheet.render(look.colour)
    }
}

impl From<Operation> for OperationView {
    fn from(operation: Operation) -> Self {
        let (took, time_left) = (duration(operation.age), duration(operation.time_left));
        let queued_for = duration(operation.queued_for);
        let accepted_after = duration(operation.accepted_after);
        let submitted = time(operation.submitted_at);
        Self {
            delivery: delivery(operation.delivery()),
            operation_id: operation.operation_id,
            verb: operation.verb,
            class: operation.class.unwrap_or_default().into(),
            machine_name: operation.machine_name,
            driver_instance: operation.driver_instance,
            session_id: operation.session_id,
            submitted_at: submitted.map(rfc3339),
            time_seconds: took.map(seconds),
            finished: operation.finished,
            outcome: operation.outcome,
            message: operation.message,
            attempts: operation.attempts,
            time_left_seconds: time_left.map(seconds),
            stuck: operation.stuck,
            queued_for_seconds: queued_for.map(seconds),
            accepted_after_seconds: accepted_after.map(seconds),
            time: took,
            submitted,
            time_left,
            queued_for,
            accepted_after,
        }
    }
}

/// The words of the status details, so that one can be searched for the other.
fn delivery(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Unspecified => "UNKNOWN",
        Delivery::NotSent => "NOT_SENT",
        Delivery::Sent => "SENT",
        Delivery::Accepted => "ACCEPTED",
        Delivery::Answered => "ANSWERED",
    }
}
