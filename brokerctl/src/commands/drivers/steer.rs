//! `brokerctl drivers drain` and `evict`: what changes the life of a driver.

use std::time::Duration;

use broker_proto::v1::{
    DrainDriverRequest, EvictDriverRequest, GetDriverRequest, ListDriversRequest,
};
use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;
use tokio::time;

use super::{DriverView, Name, advise};
use crate::{
    Exit, Failure,
    client::Broker,
    commands::Session,
    failure::Change,
    output::{Look, View},
    progress::Progress,
    table::printable,
};

/// How often to look whether a driver has left.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    driver: Name,

    /// Why: told to the driver, and kept in its history
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,

    /// Wait until it has left, or for --timeout
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Evict {
    #[command(flatten)]
    driver: Name,

    /// Why: told to the driver, and kept in its history
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    reason: String,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl Drain {
    pub(super) async fn run(
        self,
        Session { broker, output }: &mut Session<'_, '_>,
    ) -> Result<(), Failure> {
        let Self { driver: Name { name }, reason, wait } = self;
        let request = broker.look(DrainDriverRequest { driver: name, reason });
        let answer = broker.registry().drain_driver(request).await;
        let failed = |status| advise(broker.change_failed(&status, Change::Drain, false), &status);
        let driver = DriverView::from(answer.map_err(failed)?.into_inner());
        if !wait {
            return output.print(&Steered { outcome: "Draining", driver });
        }
        let progress = Progress::start(output.live(), format!("waiting for {}", driver.called()));
        let gone = until_gone(broker, &driver).await;
        drop(progress);
        gone?;
        output.print(&Steered { outcome: "Drained", driver })
    }
}

async fn until_gone(broker: &Broker, driver: &DriverView) -> Result<(), Failure> {
    loop {
        let request = broker.look(ListDriversRequest::default());
        let answer = broker.registry().list_drivers(request).await;
        let answer = answer.map_err(|status| broker.look_failed(&status))?.into_inner();
        let still = answer.drivers.into_iter().find(|one| one.session_id == driver.session_id);
        let Some(still) = still else { return Ok(()) };
        if broker.time_left().is_some_and(|left| left <= LOOK_INTERVAL) {
            let (called, busy) = (driver.called(), still.in_flight + still.queued);
            let message = format!("{called} still drains, with {busy} operations to finish");
            return Err(Failure::new(Exit::OutcomeUnknown, message)
                .advise("run the same command again to wait on, or evict it"));
        }
        time::sleep(LOOK_INTERVAL).await;
    }
}

impl Evict {
    /// 1. Where nobody can be asked, --yes is needed, before anything else happens.
    /// 2. Look whom the name means, and ask.
    /// 3. Evict the very session that was shown, whoever has the name by then.
    pub(super) async fn run(
        self,
        Session { broker, output }: &mut Session<'_, '_>,
    ) -> Result<(), Failure> {
        let Self { driver: Name { name: mut driver }, reason, yes } = self;
        if !yes && !output.can_ask() {
            let message = "evict asks before it acts, and there is no terminal to ask on";
            return Err(Failure::new(Exit::Usage, message)
                .advise("nothing was done: say --yes if you mean it"));
        }
        if !yes {
            let request =
                broker.look(GetDriverRequest { driver: driver.clone(), history: Some(0) });
            let answer = broker.registry().get_driver(request).await;
            let failed = |status| advise(broker.look_failed(&status), &status);
            let found = answer.map_err(failed)?.into_inner().driver.unwrap_or_default();
            let view = DriverView::from(found);
            if view.is_gone() {
                let message = format!("{} is gone already: {}", view.called(), view.state_reason);
                return Err(Failure::new(Exit::NotFound, message)
                    .advise("`brokerctl drivers describe` tells what it did"));
            }
            if !output.confirms(question(&view)) {
                return Err(Failure::new(Exit::Failed, "not confirmed: nothing was done"));
            }
            driver = view.session_id;
        }
        let request = broker.look(EvictDriverRequest { driver, reason });
        let answer = broker.registry().evict_driver(request).await;
        let failed = |status| advise(broker.change_failed(&status, Change::Evict, false), &status);
        let driver = DriverView::from(answer.map_err(failed)?.into_inner());
        output.print(&Steered { outcome: "Evicted", driver })
    }
}

fn question(driver: &DriverView) -> String {
    let loss = match driver.in_flight {
        0 => "It runs nothing now.".to_owned(),
        1 => "The operation it runs will be reported as unknown.".to_owned(),
        several => format!("The {several} operations it runs will be reported as unknown."),
    };
    let (called, kinds) = (driver.called(), driver.kinds());
    format!("{} serves {}.\n{loss}\nEvict it?", printable(&called), printable(&kinds))
}

#[derive(Debug, Serialize)]
struct Steered {
    outcome: &'static str,
    driver: DriverView,
}

impl View for Steered {
    fn text(&self, _: Look) -> String {
        let called = self.driver.called();
        let called = printable(&called);
        match self.outcome {
            "Draining" => {
                let DriverView { in_flight, queued, .. } = self.driver;
                format!("{called} is draining: {in_flight} in flight, {queued} queued\n")
            }
            "Drained" => format!("{called} drained and left\n"),
            _ => format!("{called} evicted\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::drivers::tests::sim;

    #[test]
    fn the_question_says_what_is_at_stake() {
        let expected = "\
driver sim-0 (5f1c02aa) serves SimMachineClass.
The 3 operations it runs will be reported as unknown.
Evict it?";
        assert_eq!(question(&sim().into()), expected);
    }
}
