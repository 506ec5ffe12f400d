//! `brokerctl drivers`: who is connected, how they are, and a word with one of them.

mod describe;
mod ping;
mod steer;
mod view;

use broker_proto::v1::{
    DriverState, ListDriversRequest, WatchDriversRequest, driver_event::Event as WireEvent,
};
use clap::{ValueEnum, builder::NonEmptyStringValueParser};
use tonic::{Code, Status};

use super::Session;
use crate::{
    Exit, Failure,
    watch::{self, Event, Fate, Journal},
};
pub(super) use view::{DriverList, DriverView};

const HELP: &str = "\
Examples:
  brokerctl drivers --state suspect -o wide
  brokerctl drivers -w
  brokerctl drivers describe sim-0 --history 50
  brokerctl drivers --state gone
  brokerctl drivers ping 5f1c -c 3
  brokerctl drivers drain sim-0 --reason 'node upgrade' --wait
  brokerctl drivers evict sim-0 --reason 'hangs in create'

A driver is named by its session id, by a unique beginning of it, or by its instance id.";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = HELP)]
pub(crate) struct Drivers {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the drivers that are connected now
    List(List),
    /// Show all that is known of a driver, also of one that has gone, and what happened to it
    Describe(describe::Describe),
    /// Find out whether a driver's loop turns, and how fast
    Ping(ping::Ping),
    /// Give a driver no new work: it finishes what it has and leaves
    Drain(steer::Drain),
    /// End a driver's session now; what it runs is reported as unknown to its callers
    Evict(steer::Evict),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only the drivers of this kind of machine class
    #[arg(long)]
    kind: Option<String>,

    /// Only the drivers in this state
    #[arg(long, value_enum)]
    state: Option<State>,

    /// Go on with a line for every change, until Ctrl-C or --timeout
    #[arg(long, short)]
    watch: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    Ready,
    Suspect,
    Draining,
    /// Not connected any more: the last session of each, as long as the broker remembers it
    Gone,
}

/// Names one driver.
#[derive(Debug, clap::Args)]
struct Name {
    /// Its session id, a unique beginning of it, or its instance id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
}

impl Drivers {
    pub(crate) async fn run(self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        match self.command {
            None => self.list.run(session).await,
            Some(Command::List(list)) => list.run(session).await,
            Some(Command::Describe(describe)) => describe.run(session).await,
            Some(Command::Ping(ping)) => ping.run(session).await,
            Some(Command::Drain(drain)) => drain.run(session).await,
            Some(Command::Evict(evict)) => evict.run(session).await,
        }
    }
}

impl List {
    async fn run(self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        let Session { broker, output } = session;
        if self.watch && matches!(self.state, Some(State::Gone)) {
            let message = "those that are gone do not change";
            return Err(Failure::new(Exit::Usage, message)
                .advise("leave --watch out, or --state: a watch tells of each that goes"));
        }
        if self.watch {
            return self.follow(session).await;
        }
        let (kind, state) = (self.kind.unwrap_or_default(), self.state);
        let wanted = state.map_or(DriverState::Unspecified, DriverState::from);
        let request = broker.look(ListDriversRequest { kind: kind.clone(), state: wanted.into() });
        let answer = broker.registry().list_drivers(request).await;
        let drivers = answer.map_err(|status| broker.look_failed(&status))?.into_inner();
        if drivers.drivers.is_empty() {
            let of = if kind.is_empty() { String::new() } else { format!(" for {kind}") };
            let address = broker.address();
            output.remark(match state {
                Some(state) => {
                    format!("no driver{of} at {address} is {}", state.word().to_lowercase())
                }
                None => format!(
                    "no driver{of} is connected to {address}\n  \
                     point a driver there, or try `machine-broker dev`, which brings one"
                ),
            });
        }
        output.print(&DriverList::new(drivers.drivers))
    }

    async fn follow(self, Session { broker, output }: &mut Session<'_, '_>) -> Result<(), Failure> {
        let kind = self.kind.unwrap_or_default();
        let state = self.state.map_or("", State::word);
        let mut journal = Journal::new(state, |driver: &DriverView, state| {
            if state.is_empty() || driver.state == state { Fate::Stays } else { Fate::Leaves }
        });
        let broker = &*broker;
        let open = async |resume_token| {
            let request = WatchDriversRequest { kind: kind.clone(), resume_token };
            broker.registry().watch_drivers(broker.watch(request)).await
        };
        watch::follow(broker, output, open, |event, output| {
            let event = match event.event {
                Some(WireEvent::Reset(_)) => Event::Reset,
                Some(WireEvent::Changed(driver)) => Event::Changed(driver.into()),
                Some(WireEvent::Removed(session)) => Event::Removed(session),
                Some(WireEvent::Synced(_)) => Event::Synced,
                // Of a broker newer than this.
                None => return Ok(std::ops::ControlFlow::Continue(())),
            };
            journal.see(event, output)
        })
        .await
    }
}

impl State {
    /// As the tables have it.
    fn word(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Suspect => "Suspect",
            Self::Draining => "Draining",
            Self::Gone => "Gone",
        }
    }
}

impl From<State> for DriverState {
    fn from(state: State) -> Self {
        match state {
            State::Ready => Self::Ready,
            State::Suspect => Self::Suspect,
            State::Draining => Self::Draining,
            State::Gone => Self::Gone,
        }
    }
}

/// Where a name means no driver or several, says how to find a better one.
fn advise(failure: Failure, status: &Status) -> Failure {
    match status.code() {
        Code::NotFound => failure
            .advise("`brokerctl drivers` shows who is connected, with --state gone who was lately"),
        Code::FailedPrecondition | Code::InvalidArgument => failure
            .advise("name one driver by more of its session id: `brokerctl drivers` shows them"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests;
