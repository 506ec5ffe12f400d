//! `brokerctl operations`: what runs, and what ended lately.

use std::{num::NonZeroU32, time::Duration};

use anstyle::{AnsiColor, Style};
use broker_proto::v1::{Delivery, ListOperationsRequest, Operation};
use serde::Serialize;

use super::{ClassView, Session, duration, rfc3339, seconds, time};
use crate::{
    Failure, age,
    output::{Look, View},
    table::{Cell, Table},
};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Operations {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the operations that run, and those that ended lately
    List(List),
}

#[derive(Debug, clap::Args)]
struct List {
    /// How many of those that ended to show, newest first
    #[arg(long, value_name = "N", default_value = "100")]
    finished: NonZeroU32,
}

impl Operations {
    pub(crate) async fn run(self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        match self.command {
            None => self.list.run(session).await,
            Some(Command::List(list)) => list.run(session).await,
        }
    }
}

impl List {
    async fn run(self, Session { broker, output }: &mut Session<'_, '_>) -> Result<(), Failure> {
        let request = broker.look(ListOperationsRequest { finished: self.finished.get() });
        let answer = broker.registry().list_operations(request).await;
        let answer = answer.map_err(|status| broker.look_failed(&status))?.into_inner();
        if answer.operations.is_empty() {
            output.remark(format!("{} has run no operation yet", broker.address()));
        }
        let operations = answer.operations.into_iter().map(OperationView::from).collect();
        output.print(&OperationList { operations })
    }
}

#[derive(Debug, Serialize)]
struct OperationList {
    operations: Vec<OperationView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OperationView {
    operation_id: String,
    verb: String,
    class: ClassView,
    machine_name: String,
    driver_instance: String,
    session_id: String,
    delivery: &'static str,
    submitted_at: Option<String>,
    time_seconds: Option<f64>,
    finished: bool,
    outcome: String,
    message: String,
    /// Its age while it runs, all it took once it has finished.
    #[serde(skip)]
    time: Option<Duration>,
}

impl View for OperationList {
    fn text(&self, look: Look) -> String {
        let mut table =
            Table::new(["ID", "VERB", "MACHINE", "CLASS", "DRIVER", "DELIVERY", "TIME", "OUTCOME"]);
        for operation in &self.operations {
            table.row([
                (&operation.operation_id).into(),
                (&operation.verb).into(),
                (&operation.machine_name).into(),
                operation.class.path().into(),
                (&operation.driver_instance).into(),
                operation.delivery.into(),
                operation.time.map_or(String::new(), age::human).into(),
                outcome(operation),
            ]);
        }
        table.render(look.headers, look.colour)
    }
}

impl From<Operation> for OperationView {
    fn from(operation: Operation) -> Self {
        let took = duration(operation.age);
        Self {
            delivery: delivery(operation.delivery()),
            operation_id: operation.operation_id,
            verb: operation.verb,
            class: operation.class.unwrap_or_default().into(),
            machine_name: operation.machine_name,
            driver_instance: operation.driver_instance,
            session_id: operation.session_id,
            submitted_at: time(operation.submitted_at).map(rfc3339),
            time_seconds: took.map(seconds),
            finished: operation.finished,
            outcome: operation.outcome,
            message: operation.message,
            time: took,
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

fn outcome(operation: &OperationView) -> Cell {
    match operation.outcome.as_str() {
        _ if !operation.finished => Cell::styled("running", Style::new()),
        "OK" => Cell::styled("OK", AnsiColor::Green.on_default()),
        other => Cell::styled(other, AnsiColor::Red.on_default()),
    }
}

#[cfg(test)]
mod tests {
    use broker_proto::v1::ClassRef;
    use prost_types::{Duration, Timestamp};

    use super::*;
    use crate::output::fitting;

    fn list() -> OperationList {
        let create = Operation {
            operation_id: "op-12".into(),
            verb: "create".into(),
            class: Some(ClassRef {
                kind: "SimMachineClass".into(),
                name: "small".into(),
                ..ClassRef::default()
            }),
            machine_name: "worker-0".into(),
            driver_instance: "sim-0".into(),
            session_id: "5f1c".into(),
            delivery: Delivery::Accepted.into(),
            submitted_at: Some(Timestamp { seconds: 60, nanos: 0 }),
            age: Some(Duration { seconds: 125, nanos: 0 }),
            ..Operation::default()
        };
        let list = Operation {
            operation_id: "op-11".into(),
            verb: "list".into(),
            machine_name: String::new(),
            delivery: Delivery::Answered.into(),
            age: Some(Duration { seconds: 0, nanos: 12_000_000 }),
            finished: true,
            outcome: "RESOURCE_EXHAUSTED".into(),
            message: "slow down".into(),
            ..create.clone()
        };
        OperationList { operations: vec![create.into(), list.into()] }
    }

    #[test]
    fn operations_are_a_table() {
        let expected = "\
ID      VERB     MACHINE    CLASS           DRIVER   DELIVERY   TIME   OUTCOME
op-12   create   worker-0   default/small   sim-0    ACCEPTED   2m5s   running
op-11   list     <none>     default/small   sim-0    ANSWERED   12ms   RESOURCE_EXHAUSTED
";
        assert_eq!(list().text(fitting::look()), expected);
    }

    #[test]
    fn operations_are_data() {
        let mut list = list();
        list.operations.truncate(1);
        let expected = "\
operations:
- operationId: op-12
  verb: create
  class:
    kind: SimMachineClass
    namespace: default
    name: small
  machineName: worker-0
  driverInstance: sim-0
  sessionId: 5f1c
  delivery: ACCEPTED
  submittedAt: \"1970-01-01T00:01:00.000Z\"
  timeSeconds: 125.0
  finished: false
  outcome: \"\"
  message: \"\"
";
        assert_eq!(fitting::yaml(&list), expected);
    }
}
