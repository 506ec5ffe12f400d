//! `brokerctl top`: drivers and running operations, live.
//!
//! `model` is what is known and what the keys do with it, `screen` how it looks: both are pure. Here
//! is what is not: asking the broker, the terminal, and the keys.

mod model;
mod screen;

use std::{future::pending, io, time::Duration};

use broker_proto::v1::{GetBrokerStatusRequest, ListDriversRequest, ListOperationsRequest};
use crossterm::event::{Event, EventStream, KeyEventKind};
use ratatui::DefaultTerminal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time,
};
use tokio_stream::StreamExt as _;
use tonic::Status;

use super::{Session, drivers::DriverList, operations::OperationView, status::StatusView};
use crate::{Exit, Failure, args::Format, client::Broker};
use model::{Model, Reading, Then};

const REFRESH: Duration = Duration::from_secs(1);
/// A broker that needs longer is as good as lost: the operator is to know.
const PATIENCE: Duration = Duration::from_secs(5);

const HELP: &str = "\
Keys:
  q, Esc, Ctrl-C   leave
  Tab              the other table
  Up, Down, j, k   move; PageUp, PageDown, Home and End too
  ?                help";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Top {}

impl Top {
    pub(crate) async fn run(
        self,
        Session { broker, output }: &mut Session<'_, '_>,
    ) -> Result<(), Failure> {
        if !output.terminal() || matches!(output.format(), Format::Json | Format::Yaml) {
            return Err(Failure::new(Exit::Usage, "top is for a person at a terminal")
                .advise("scripts use `brokerctl status -o json`, or `brokerctl drivers -w`"));
        }
        let mut model = Model::new(broker.address().to_string(), output.look().colour);
        // Restores the terminal on panic too.
        let mut terminal = ratatui::try_init().map_err(|error| broken(&error))?;
        let (readings, mut news) = mpsc::channel(1);
        let shown = tokio::select! {
            shown = show(&mut terminal, &mut model, &mut news) => shown,
            never = ask_forever(broker, readings) => match never {},
        };
        ratatui::restore();
        shown.map_err(|error| broken(&error))
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot use the terminal: {error}"))
}

/// Draws after everything that happens, until the operator leaves.
async fn show(
    terminal: &mut DefaultTerminal,
    model: &mut Model,
    news: &mut mpsc::Receiver<Reading>,
) -> io::Result<()> {
    let mut events = EventStream::new();
    // Ctrl-C is a key here; these come from elsewhere.
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut told_to_end = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    loop {
        terminal.draw(|frame| screen::draw(model, frame))?;
        tokio::select! {
            Some(reading) = news.recv() => model.read(reading),
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if model.press(key) == Then::Leave {
                        return Ok(());
                    }
                }
                // A new size: drawn on the next turn.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            _ = interrupted.recv() => return Ok(()),
            _ = told_to_end.recv() => return Ok(()),
            _ = hung_up.recv() => return Ok(()),
        }
    }
}

/// Reads everything once a second. The channel dials again by itself after a loss.
async fn ask_forever(broker: &Broker, readings: mpsc::Sender<Reading>) -> std::convert::Infallible {
    let mut ticks = time::interval(REFRESH);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let reading = match time::timeout(PATIENCE, ask(broker)).await {
            Err(_) => Reading::Lost(format!("no answer for {}s", PATIENCE.as_secs())),
            Ok(Ok(reading)) => reading,
            Ok(Err(status)) => Reading::Lost(broker.look_failed(&status).message().to_owned()),
        };
        if readings.send(reading).await.is_err() {
            // Nobody looks any more, and whoever did ends this too.
            pending::<()>().await;
        }
    }
}

async fn ask(broker: &Broker) -> Result<Reading, Status> {
    let (mut one, mut two, mut three) = (broker.registry(), broker.registry(), broker.registry());
    let (status, drivers, operations) = tokio::try_join!(
        one.get_broker_status(broker.look(GetBrokerStatusRequest {})),
        two.list_drivers(broker.look(ListDriversRequest::default())),
        three.list_operations(broker.look(ListOperationsRequest { finished: Some(0) })),
    )?;
    let operations = operations.into_inner().operations;
    Ok(Reading::Fresh {
        status: Box::new(StatusView::new(broker.address().to_string(), status.into_inner())),
        drivers: DriverList::new(drivers.into_inner().drivers).into_drivers(),
        operations: operations.into_iter().map(OperationView::from).collect(),
    })
}
