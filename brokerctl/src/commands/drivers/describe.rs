//! `brokerctl drivers describe`: one driver with all its fields, and its history.

use std::time::SystemTime;

use anstyle::AnsiColor;
use broker_proto::v1::{DriverDetails, GetDriverRequest, HistoryEntry};
use serde::Serialize;

use super::{DriverView, Name, advise, view::head};
use crate::{
    Failure,
    commands::{OperationView, Session, age_of, ago, rfc3339, time},
    output::{Look, View},
    sheet::Sheet,
    table::{self, Cell, Column, Table},
};

/// Of session ids in the history: they are all of one driver.
const SHORT: usize = 8;
/// `brokerctl operations` has the rest.
const MOST_OPERATIONS: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    driver: Name,

    /// How many events of its history to show, newest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    history: u32,
}

impl Describe {
    pub(super) async fn run(
        self,
        Session { broker, output }: &mut Session<'_, '_>,
    ) -> Result<(), Failure> {
        let request =
            broker.look(GetDriverRequest { driver: self.driver.name, history: Some(self.history) });
        let answer = broker.registry().get_driver(request).await;
        let failed = |status| advise(broker.look_failed(&status), &status);
        output.print(&Details::from(answer.map_err(failed)?.into_inner()))
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Details {
    #[serde(flatten)]
    driver: DriverView,
    operations: Vec<OperationView>,
    more_operations: u32,
    history: Vec<Entry>,
    more_history: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    at: Option<String>,
    what: String,
    details: String,
    session_id: String,
    instance_id: String,
    #[serde(skip)]
    time: Option<SystemTime>,
}

/// What tells the operations of one driver apart.
const OPERATIONS: &[Column<OperationView>] = &[
    Column::new("ID", |operation, _| (&operation.operation_id).into()),
    Column::new("VERB", |operation, _| (&operation.verb).into()),
    Column::new("MACHINE", |operation, _| (&operation.machine_name).into()),
    Column::new("DELIVERY", |operation, _| operation.delivery.into()),
    Column::new("TIME", |operation, _| age_of(operation.time).into()),
    Column::new("OUTCOME", |operation, _| operation.outcome_cell()),
    Column::wide("MESSAGE", |operation, _| (&operation.message).into()),
];

const HISTORY: &[Column<Entry>] = &[
    Column::new("AGE", |entry, look| ago(entry.time, look).into()),
    Column::new("WHAT", |entry, _| match entry.what.as_str() {
        bad @ ("suspect" | "lost" | "evicted" | "rejected") => {
            Cell::styled(bad, AnsiColor::Red.on_default())
        }
        what => what.into(),
    }),
    Column::new("SESSION", |entry, _| head(&entry.session_id, SHORT).into()),
    Column::wide("TIME", |entry, _| entry.at.as_deref().unwrap_or_default().into()),
    Column::new("DETAILS", |entry, _| (&entry.details).into()),
];

impl From<DriverDetails> for Details {
    fn from(details: DriverDetails) -> Self {
        let driver = details.driver.unwrap_or_default().into();
        let operations = details.operations.into_iter().map(OperationView::from).collect();
        let (more_operations, more_history) = (details.operations_more, details.history_more);
        let mut history: Vec<_> = details.history.into_iter().map(Entry::from).collect();
        // Newest first, whatever the wire brought. Equal times keep their order.
        history.sort_by_key(|entry| std::cmp::Reverse(entry.time));
        Self { driver, operations, more_operations, history, more_history }
    }
}

impl From<HistoryEntry> for Entry {
    fn from(entry: HistoryEntry) -> Self {
        let HistoryEntry { at, what, details, session_id, instance_id } = entry;
        let time = time(at);
        Self { at: time.map(rfc3339), what, details, session_id, instance_id, time }
    }
}

impl View for Details {
    fn text(&self, look: Look) -> String {
        let driver = &self.driver;
        let since = |at: Option<SystemTime>| match at {
            Some(time) => format!("{} ago ({})", ago(at, &look), rfc3339(time)),
            None => String::new(),
        };
        let state = match driver.state_reason.as_str() {
            "" => driver.state_cell(),
            reason => driver.state_cell().and(&format!(": {reason}")),
        };
        let mut kinds = Table::new(["KIND", "API VERSION"]);
        for kind in &driver.kinds {
            kinds.row([Cell::from(kind.called()), Cell::from(&kind.api_version)]);
        }
        let last_error = match driver.last_error.as_str() {
            "" => Cell::from(""),
            error => {
                let ago = ago(driver.last_error_time, &look);
                let ago = if ago.is_empty() { ago } else { format!(" ({ago} ago)") };
                Cell::styled(format!("{error}{ago}"), AnsiColor::Red.on_default())
            }
        };
        let shown = &self.operations[..self.operations.len().min(MOST_OPERATIONS)];
        let hidden = u32::try_from(self.operations.len() - shown.len()).unwrap_or(u32::MAX);
        let operations = section(OPERATIONS, shown, hidden + self.more_operations, look);
        let history = section(HISTORY, &self.history, self.more_history, look);
        let mut sheet = Sheet::default()
            .field("Session", &driver.session_id)
            .field("Instance", &driver.instance_id)
            .field("Name", &driver.name)
            .field("State", state);
        if driver.is_gone() {
            sheet = sheet.field("Gone", since(driver.gone));
        }
        for condition in &driver.conditions {
            sheet = sheet.field("Condition", Cell::styled(condition, AnsiColor::Red.on_default()));
        }
        sheet
            .section("Program")
            .field("Version", &driver.driver_version)
            .field("Protocol", &driver.protocol)
            .field("Boot", &driver.boot_id)
            .field("Verbs", driver.verbs.join(", "))
            .section("Serves")
            .lines(kinds.render(false, look.colour))
            .section("Connection")
            .field("Address", &driver.address)
            .field("Identity", &driver.identity)
            .field("Connected", since(driver.connected))
            .field("Last heard", driver.heard())
            .field("Round trip", driver.trip())
            .field("Takeovers", driver.takeovers.to_string())
            .field("Odd frames", driver.odd_frames.to_string())
            .section("Work")
            .field("In flight", format!("{} of {}", driver.in_flight, driver.capacity))
            .field("Queued", driver.queued.to_string())
            .field("Oldest pending", age_of(driver.oldest_pending))
            .field("Succeeded", driver.succeeded.to_string())
            .field("Failed", driver.failed.to_string())
            .field("Error rate", driver.errors())
            .field("Last error", last_error)
            .section("Operations")
            .lines(operations)
            .section("History")
            .lines(history)
            .render(look.colour)
    }
}

/// A table that says how many more there are.
fn section<T>(columns: &[Column<T>], rows: &[T], more: u32, look: Look) -> String {
    let mut text = match rows {
        [] => "<none>\n".to_owned(),
        rows => table::of(columns, rows, look),
    };
    if more > 0 {
        text += &format!("… and {more} more\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use broker_proto::v1::{Delivery, Driver, DriverState, Operation};
    use prost_types::Timestamp;

    use super::*;
    use crate::{commands::drivers::tests::sim, output::fitting};

    #[test]
    fn a_driver_is_described_with_its_history_newest_first() {
        let entry = |seconds, what: &str, details: &str| HistoryEntry {
            at: Some(Timestamp { seconds, nanos: 0 }),
            what: what.into(),
            details: details.into(),
            session_id: "5f1c02aa-77".into(),
            instance_id: "sim-0".into(),
        };
        let details = DriverDetails {
            driver: Some(Driver { state_reason: "well again".into(), ..sim() }),
            history: vec![
                entry(3300, "registered", ""),
                entry(3480, "suspect", "not heard of for 15s"),
            ],
            history_more: 7,
            operations: vec![Operation {
                operation_id: "op-1".into(),
                verb: "create".into(),
                machine_name: "w".into(),
                delivery: Delivery::Sent.into(),
                ..Operation::default()
            }],
            operations_more: 0,
        };
        let expected = "\
Session:           5f1c02aa-77
Instance:          sim-0
Name:              sim
State:             Ready: well again

Program:
  Version:         0.1.0
  Protocol:        v1
  Boot:            b1
  Verbs:           create, delete, list

Serves:
  SimMachineClass   sim.machinebroker.dev/v1alpha1

Connection:
  Address:         127.0.0.1:40000
  Identity:        spiffe://example/sim
  Connected:       5m ago (1970-01-01T00:55:00.000Z)
  Last heard:      2s ago
  Round trip:      1.4ms
  Takeovers:       1
  Odd frames:      0

Work:
  In flight:       3 of 16
  Queued:          0
  Oldest pending:  12s
  Succeeded:       40
  Failed:          2
  Error rate:      5%
  Last error:      quota used up (100s ago)

Operations:
  ID     VERB     MACHINE   DELIVERY   TIME     OUTCOME
  op-1   create   w         SENT       <none>   running

History:
  AGE   WHAT         SESSION    DETAILS
  2m    suspect      5f1c02aa   not heard of for 15s
  5m    registered   5f1c02aa   <none>
  … and 7 more
";
        assert_eq!(Details::from(details).text(fitting::look()), expected);
    }

    #[test]
    fn of_one_that_is_gone_it_says_since_when_and_why() {
        let driver = Driver {
            state: DriverState::Gone.into(),
            state_reason: "the connection broke".into(),
            gone_at: Some(Timestamp { seconds: 3480, nanos: 0 }),
            ..sim()
        };
        let details = DriverDetails { driver: Some(driver), ..DriverDetails::default() };
        let text = Details::from(details).text(fitting::look());
        let expected = "\
State:             Gone: the connection broke
Gone:              2m ago (1970-01-01T00:58:00.000Z)
";
        assert!(text.contains(expected), "{text}");
    }
}
