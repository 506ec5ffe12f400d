//! `brokerctl operations`: what runs, and what ended lately.

mod view;

use broker_proto::v1::{
    ListOperationsRequest, WatchOperationsRequest, operation_event::Event as WireEvent,
};
use clap::builder::NonEmptyStringValueParser;

use super::Session;
use crate::{
    Exit, Failure,
    watch::{self, Event, Fate, Journal},
};
use view::OperationList;
pub(super) use view::OperationView;

/// More ids than these would be a list, not advice.
const MOST_NAMED: usize = 5;

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
    /// Show all that is known of an operation that runs, or ended lately
    Describe(Describe),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those that run
    #[arg(long)]
    running: bool,

    /// How many of those that ended to show, newest first [default: 100]
    #[arg(long, value_name = "N", conflicts_with = "running")]
    finished: Option<u32>,

    /// Show those that run, then a line for every change, until Ctrl-C or --timeout
    #[arg(long, short, conflicts_with = "finished")]
    watch: bool,
}

#[derive(Debug, clap::Args)]
struct Describe {
    /// The operation's id, or a unique beginning or end of it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
}

impl Operations {
    pub(crate) async fn run(self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        match self.command {
            None => self.list.run(session).await,
            Some(Command::List(list)) => list.run(session).await,
            Some(Command::Describe(describe)) => describe.run(session).await,
        }
    }
}

impl List {
    async fn run(self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        if self.watch {
            return follow(session).await;
        }
        let finished = if self.running { Some(0) } else { self.finished };
        let operations = fetch(session, finished).await?;
        let Session { broker, output } = session;
        if operations.is_empty() {
            let address = broker.address();
            output.remark(match finished {
                Some(0) => format!("{address} runs no operation now"),
                _ => format!("{address} has run no operation yet"),
            });
        }
        output.print(&OperationList { operations })
    }
}

impl Describe {
    async fn run(self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        let all = fetch(session, Some(u32::MAX)).await?;
        session.output.print(&find(all, &self.id)?)
    }
}

async fn fetch(
    Session { broker, .. }: &Session<'_, '_>,
    finished: Option<u32>,
) -> Result<Vec<OperationView>, Failure> {
    let request = broker.look(ListOperationsRequest { finished });
    let answer = broker.registry().list_operations(request).await;
    let answer = answer.map_err(|status| broker.look_failed(&status))?.into_inner();
    Ok(answer.operations.into_iter().map(OperationView::from).collect())
}

/// The one operation that has the id, or else whose id alone begins or ends so.
fn find(mut all: Vec<OperationView>, id: &str) -> Result<OperationView, Failure> {
    if let Some(exact) = all.iter().position(|one| one.operation_id == id) {
        return Ok(all.swap_remove(exact));
    }
    all.retain(|one| one.operation_id.starts_with(id) || one.operation_id.ends_with(id));
    match all.len() {
        0 => Err(Failure::new(Exit::NotFound, format!("no operation {id:?} runs or ended lately"))
            .advise("`brokerctl operations` shows them; older ones are in the broker's log")),
        1 => Ok(all.swap_remove(0)),
        several => {
            let mut ids: Vec<_> = all.into_iter().map(|one| one.operation_id).collect();
            if several > MOST_NAMED {
                ids.truncate(MOST_NAMED);
                ids.push("…".into());
            }
            let message = format!("{several} operations are meant by {id:?}");
            Err(Failure::new(Exit::Failed, message)
                .advise(format!("say more of the id: {}", ids.join(", "))))
        }
    }
}

async fn follow(Session { broker, output }: &mut Session<'_, '_>) -> Result<(), Failure> {
    let mut journal = Journal::new(
        "",
        |operation: &OperationView, _| {
            if operation.finished { Fate::Ends } else { Fate::Stays }
        },
    );
    let broker = &*broker;
    let open = async |resume_token| {
        let request = WatchOperationsRequest { resume_token };
        broker.registry().watch_operations(broker.watch(request)).await
    };
    watch::follow(broker, output, open, |event, output| {
        let event = match event.event {
            Some(WireEvent::Reset(_)) => Event::Reset,
            Some(WireEvent::Changed(operation)) => Event::Changed(operation.into()),
            Some(WireEvent::Synced(_)) => Event::Synced,
            // Of a broker newer than this.
            None => return Ok(std::ops::ControlFlow::Continue(())),
        };
        journal.see(event, output)
    })
    .await
}

#[cfg(test)]
mod tests;
