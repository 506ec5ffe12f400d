//! `brokerctl status`: is all well, and if not, what is it and what to do.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use anstyle::AnsiColor;
use broker_proto::v1::{BrokerStatus, Concern, GetBrokerStatusRequest};
use serde::Serialize;

use super::{Session, ago, count, duration, rfc3339, seconds, time};
use crate::{
    Exit, Failure, age,
    output::{Look, View},
    sheet::Sheet,
    table::Cell,
};

const HELP: &str = "\
Exit codes:
  0  all is well
  1  there are concerns, or the broker refused to answer
All others are as in `brokerctl --help`.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Status {}

impl Status {
    pub(crate) async fn run(
        self,
        Session { broker, output }: &mut Session<'_, '_>,
    ) -> Result<Exit, Failure> {
        let request = broker.look(GetBrokerStatusRequest {});
        let answer = broker.registry().get_broker_status(request).await;
        let answer = answer.map_err(|status| broker.look_failed(&status))?.into_inner();
        let view = StatusView::new(broker.address().to_string(), answer);
        output.print(&view)?;
        Ok(if view.all_well { Exit::Ok } else { Exit::Failed })
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusView {
    pub(super) all_well: bool,
    pub(super) concerns: Vec<ConcernView>,
    pub(super) address: String,
    pub(super) replica_id: String,
    pub(super) version: String,
    started_at: Option<String>,
    ready: bool,
    pub(super) drivers: Drivers,
    pub(super) operations_running: u32,
    oldest_pending_seconds: Option<f64>,
    classes: u32,
    #[serde(skip)]
    pub(super) started: Option<SystemTime>,
    #[serde(skip)]
    pub(super) oldest_pending: Option<Duration>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ConcernView {
    pub(super) what: String,
    pub(super) advice: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Drivers {
    pub(super) ready: u32,
    pub(super) suspect: u32,
    pub(super) draining: u32,
}

impl StatusView {
    pub(super) fn new(address: String, status: BrokerStatus) -> Self {
        let (started, oldest_pending) = (time(status.started_at), duration(status.oldest_pending));
        let concern = |Concern { what, advice }| ConcernView { what, advice };
        let mut concerns: Vec<_> = status.concerns.into_iter().map(concern).collect();
        if !status.ready && concerns.is_empty() {
            concerns.push(ConcernView {
                what: "the broker is not ready".into(),
                advice: "it may be starting or stopping: see its log, and /readyz".into(),
            });
        }
        Self {
            all_well: concerns.is_empty(),
            concerns,
            address,
            replica_id: status.replica_id,
            version: status.version,
            started_at: started.map(rfc3339),
            ready: status.ready,
            drivers: Drivers {
                ready: status.drivers_ready,
                suspect: status.drivers_suspect,
                draining: status.drivers_draining,
            },
            operations_running: status.operations_running,
            oldest_pending_seconds: oldest_pending.map(seconds),
            classes: status.classes,
            started,
            oldest_pending,
        }
    }

    /// The verdict, in one line.
    pub(super) fn verdict(&self) -> String {
        match self.concerns.len() {
            0 => "all is well".to_owned(),
            1 => "1 concern".to_owned(),
            several => format!("{several} concerns"),
        }
    }
}

impl View for StatusView {
    fn text(&self, look: Look) -> String {
        let (colour, end) = match self.all_well {
            true => (AnsiColor::Green, "."),
            false => (AnsiColor::Red, ":"),
        };
        let verdict = Cell::styled(format!("{}{end}", self.verdict()), colour.on_default().bold());
        let mut text = verdict.show(look.colour) + "\n";
        for (number, ConcernView { what, advice }) in (1..).zip(&self.concerns) {
            let what = Cell::styled(what, AnsiColor::Red.on_default());
            write!(
                text,
                "  {number}. {}\n     {}\n",
                what.show(look.colour),
                Cell::from(advice).text()
            )
            .expect("writing to a string does not fail");
        }
        text.push('\n');
        let Drivers { ready, suspect, draining } = self.drivers;
        let oldest = self.oldest_pending.map(|age| format!(", the oldest for {}", age::human(age)));
        let suspects = match suspect {
            0 => AnsiColor::Green,
            _ => AnsiColor::Red,
        };
        let drivers = format!("{ready} ready, {suspect} suspect, {draining} draining");
        let started = self.started_at.as_ref().map(|at| format!(" (since {at})"));
        let uptime = ago(self.started, &look) + &started.unwrap_or_default();
        let operations = format!("{} running", self.operations_running);
        text + &Sheet::default()
            .field("Broker", &self.address)
            .field("Replica", &self.replica_id)
            .field("Version", &self.version)
            .field("Uptime", uptime)
            .field("Ready", if self.ready { "yes" } else { "no" })
            .field("Drivers", Cell::styled(drivers, suspects.on_default()))
            .field("Operations", operations + &oldest.unwrap_or_default())
            .field("Catalog", count(self.classes, "class", "classes"))
            .render(look.colour)
    }
}

#[cfg(test)]
mod tests {
    use prost_types::{Duration, Timestamp};

    use super::*;
    use crate::output::fitting;

    fn well() -> BrokerStatus {
        BrokerStatus {
            replica_id: "broker-0".into(),
            version: "0.1.0".into(),
            started_at: Some(Timestamp { seconds: 60, nanos: 0 }),
            ready: true,
            drivers_ready: 3,
            operations_running: 2,
            oldest_pending: Some(Duration { seconds: 12, nanos: 0 }),
            classes: 2,
            ..BrokerStatus::default()
        }
    }

    fn text(status: BrokerStatus) -> String {
        StatusView::new("127.0.0.1:5000".into(), status).text(fitting::look())
    }

    #[test]
    fn all_is_well() {
        let expected = "\
all is well.

Broker:      127.0.0.1:5000
Replica:     broker-0
Version:     0.1.0
Uptime:      59m (since 1970-01-01T00:01:00.000Z)
Ready:       yes
Drivers:     3 ready, 0 suspect, 0 draining
Operations:  2 running, the oldest for 12s
Catalog:     2 classes
";
        assert_eq!(text(well()), expected);
    }

    #[test]
    fn concerns_come_first_and_with_advice() {
        let concern =
            |what: &str, advice: &str| Concern { what: what.into(), advice: advice.into() };
        let expected = "\
2 concerns:
  1. sim-0 was not heard of for 40s
     see `brokerctl drivers describe sim-0`
  2. nobody serves AWSMachineClass
     start a driver for it
";
        let status = BrokerStatus {
            concerns: vec![
                concern("sim-0 was not heard of for 40s", "see `brokerctl drivers describe sim-0`"),
                concern("nobody serves AWSMachineClass", "start a driver for it"),
            ],
            ..well()
        };
        assert!(text(status.clone()).starts_with(expected), "{}", text(status));
    }

    #[test]
    fn a_broker_that_is_not_ready_is_a_concern() {
        let view = StatusView::new(String::new(), BrokerStatus { ready: false, ..well() });
        assert!(!view.all_well);
        assert!(
            view.text(fitting::look()).starts_with("1 concern:\n  1. the broker is not ready\n")
        );
    }
}
