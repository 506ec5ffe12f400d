//! `brokerctl drivers ping`: there and back through the work stream.

use std::{num::NonZeroU32, time::Duration};

use broker_proto::v1::PingDriverRequest;
use serde::Serialize;
use tokio::time;
use tonic::Code;

use super::{Name, advise, view::head};
use crate::{
    Exit, Failure, age,
    args::Format,
    commands::{Session, duration},
    failure::driver_is_silent,
    output::{Look, View},
    table::printable,
};

const INTERVAL: Duration = Duration::from_secs(1);
const SHORT: usize = 8;
const DESCRIBE: &str = "see `brokerctl drivers describe` for its state and history";

#[derive(Debug, clap::Args)]
pub(crate) struct Ping {
    #[command(flatten)]
    driver: Name,

    /// How often, once a second
    #[arg(long, short, value_name = "N", default_value = "1")]
    count: NonZeroU32,
}

impl Ping {
    pub(super) async fn run(
        self,
        Session { broker, output }: &mut Session<'_, '_>,
    ) -> Result<(), Failure> {
        let name = self.driver.name;
        let mut pings = Pings { driver: name.clone(), pings: Vec::new() };
        for number in 0..self.count.get() {
            if number > 0 {
                time::sleep(INTERVAL).await;
            }
            let request = broker.look(PingDriverRequest { driver: name.clone() });
            let ping = match broker.registry().ping_driver(request).await {
                Ok(answer) => {
                    let answer = answer.into_inner();
                    let round_trip = duration(answer.round_trip);
                    PingView { session_id: answer.session_id, ..PingView::took(round_trip) }
                }
                Err(status) if driver_is_silent(&status) && self.count.get() == 1 => {
                    return Err(Failure::new(Exit::Failed, status.message()).advise(DESCRIBE));
                }
                Err(status) if driver_is_silent(&status) => {
                    PingView { error: status.message().to_owned(), ..PingView::took(None) }
                }
                // Several pings are there to see how many are lost.
                Err(status) if self.count.get() > 1 && silent(status.code()) => PingView {
                    error: broker.look_failed(&status).message().to_owned(),
                    ..PingView::took(None)
                },
                Err(status) => return Err(advise(broker.look_failed(&status), &status)),
            };
            if matches!(output.format(), Format::Table | Format::Wide)
                && output.write(&ping.line(&name))?.is_break()
            {
                return Ok(());
            }
            pings.pings.push(ping);
        }
        if self.count.get() > 1 {
            output.remark(pings.summary());
        }
        output.print(&pings)?;
        match pings.pings.iter().filter(|ping| !ping.error.is_empty()).count() {
            0 => Ok(()),
            lost => {
                let message = format!("{lost} of {} pings were not answered", pings.pings.len());
                Err(Failure::new(Exit::Failed, message).advise(DESCRIBE))
            }
        }
    }
}

/// Whether the driver may answer the next one.
fn silent(code: Code) -> bool {
    matches!(code, Code::DeadlineExceeded | Code::Unavailable | Code::Cancelled | Code::Unknown)
}

#[derive(Debug, Serialize)]
struct Pings {
    driver: String,
    pings: Vec<PingView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PingView {
    session_id: String,
    round_trip_seconds: Option<f64>,
    error: String,
    #[serde(skip)]
    round_trip: Option<Duration>,
}

impl PingView {
    fn took(round_trip: Option<Duration>) -> Self {
        Self {
            session_id: String::new(),
            round_trip_seconds: round_trip.map(|time| time.as_secs_f64()),
            error: String::new(),
            round_trip,
        }
    }

    fn line(&self, name: &str) -> String {
        let name = printable(name);
        let session = head(&self.session_id, SHORT);
        match (self.error.as_str(), self.round_trip) {
            ("", Some(time)) => {
                format!(
                    "{name} (session {}) answered in {}\n",
                    printable(session),
                    age::precise(time)
                )
            }
            ("", None) => format!("{name} (session {}) answered\n", printable(session)),
            (error, _) => format!("{name} did not answer: {}\n", printable(error)),
        }
    }
}

impl Pings {
    fn summary(&self) -> String {
        let times: Vec<_> = self.pings.iter().filter_map(|ping| ping.round_trip).collect();
        let lost = self.pings.iter().filter(|ping| !ping.error.is_empty()).count();
        let first = format!("{} sent, {lost} lost", self.pings.len());
        let (Some(least), Some(most)) = (times.iter().min(), times.iter().max()) else {
            return first;
        };
        let mean = times.iter().sum::<Duration>().div_f64(times.len() as f64);
        let [least, mean, most] = [*least, mean, *most].map(age::precise);
        format!("{first}, round trip {least} at least, {mean} on average, {most} at most")
    }
}

impl View for Pings {
    /// Nothing: each ping had its line when it was answered.
    fn text(&self, _: Look) -> String {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_lines_and_a_summary() {
        let answered = |millis| PingView {
            session_id: "5f1c02aa-77".into(),
            ..PingView::took(Some(Duration::from_millis(millis)))
        };
        let lost = PingView { error: "no pong".into(), ..PingView::took(None) };
        let pings = Pings { driver: "sim-0".into(), pings: vec![answered(1), answered(4), lost] };
        let lines: String = pings.pings.iter().map(|ping| ping.line("sim-0")).collect();
        let expected = "\
sim-0 (session 5f1c02aa) answered in 1.0ms
sim-0 (session 5f1c02aa) answered in 4.0ms
sim-0 did not answer: no pong
";
        assert_eq!(lines, expected);
        let expected = "3 sent, 1 lost, round trip 1.0ms at least, 2.5ms on average, 4.0ms at most";
        assert_eq!(pings.summary(), expected);
    }
}
