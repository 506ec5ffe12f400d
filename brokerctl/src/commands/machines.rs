//! `brokerctl machines`: what a controller would ask for, by hand.

mod delete;
mod view;

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Instant,
};

use broker_proto::v1::{ClassRef, ListMachinesRequest, MachineRequest};
use broker_secret::Sensitive;
use clap::builder::NonEmptyStringValueParser;
use tokio::signal;

use super::Session;
use crate::{Exit, Failure, failure::Change, progress::Progress};
use view::{MachineList, MachineView};

const CREATE_HELP: &str = "\
Examples:
  brokerctl machines create worker-0 --kind SimMachineClass --class small
  brokerctl machines create worker-0 --kind SimMachineClass --class small --wait --timeout 10m
  brokerctl machines create worker-0 --kind SimMachineClass --class small --user-data init.yaml

With --timeout, and at Ctrl-C, the driver is told to stop. Run the same command again to make sure
that the machine exists, or delete it.";

const DELETE_HELP: &str = "\
Examples:
  brokerctl machines delete worker-0 --kind SimMachineClass --class small
  brokerctl machines delete worker-0 --kind AWSMachineClass --class test --provider-id i-0abc

Drivers of the historic protocol delete by the provider's id alone. Without --provider-id
brokerctl then looks it up in the list of the class's machines.";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Machines {
    /// Make a machine exist. Of a name that exists already, no second one is made
    #[command(after_help = CREATE_HELP)]
    Create(Create),
    /// List all machines of a class
    List(List),
    /// Ask the driver how a machine is
    Status(Status),
    /// Make a machine not exist. To delete what is not there is a success
    #[command(after_help = DELETE_HELP)]
    Delete(delete::Delete),
    /// Complete a machine that create or status reported as UNINITIALIZED
    #[command(visible_alias = "init")]
    Initialize(Initialize),
}

impl Machines {
    pub(crate) async fn run(self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(session).await,
            Self::List(list) => list.run(session).await,
            Self::Status(status) => status.run(session).await,
            Self::Delete(delete) => delete.run(session).await,
            Self::Initialize(initialize) => initialize.run(session).await,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    retry: Retry,

    /// Replace the user data of the class's secret by this file's content; - is stdin
    #[arg(long, value_name = "FILE")]
    user_data: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    class: Class,
    #[command(flatten)]
    patience: Patience,

    /// Only the machine with this id
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    provider_id: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    known: Known,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Initialize {
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    known: Known,
    #[command(flatten)]
    retry: Retry,
}

/// Names one machine.
#[derive(Debug, clap::Args)]
struct Machine {
    /// The machine's name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    class: Class,
    #[command(flatten)]
    patience: Patience,
}

/// Names one class.
#[derive(Debug, clap::Args)]
struct Class {
    /// The kind of the machine class, such as SimMachineClass
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    kind: String,

    /// The name of the machine class
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    class: String,

    /// The kind's group/version. Not needed while drivers serve only one
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    api_version: String,

    /// The namespace of the machine class
    #[arg(long, short, default_value = "default")]
    namespace: String,

    /// Choose among the drivers of a shared kind
    #[arg(long, default_value = "", hide_default_value = true)]
    provider: String,
}

#[derive(Debug, clap::Args)]
struct Patience {
    /// Wait until a driver is there, instead of failing at once without one
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, clap::Args)]
struct Known {
    /// The provider's id of the machine, where it is known
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    provider_id: String,
}

#[derive(Debug, clap::Args)]
struct Retry {
    /// A name for this request: the same one returns the first answer, another executes anew
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    request_id: String,
}

impl Class {
    fn to_ref(&self) -> ClassRef {
        ClassRef {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.class.clone(),
            provider: self.provider.clone(),
        }
    }
}

impl Machine {
    fn request(&self) -> MachineRequest {
        MachineRequest {
            class: Some(self.class.to_ref()),
            machine_name: self.name.clone(),
            wait_for_driver: self.patience.wait,
            ..MachineRequest::default()
        }
    }
}

impl Create {
    async fn run(self, Session { broker, output }: &mut Session<'_, '_>) -> Result<(), Failure> {
        let Self { machine, retry, user_data } = self;
        let user_data = user_data.as_deref().map(read).transpose()?;
        let request = MachineRequest {
            user_data: user_data.as_ref().map(Sensitive::to_wire),
            request_id: retry.request_id,
            ..machine.request()
        };
        let since = Instant::now();
        let doing = format!("creating machine {}", machine.name);
        let answer = change(output.live(), doing, Change::Create, async {
            let answer = broker.machines().create_machine(broker.operation(request)).await;
            let wait = machine.patience.wait;
            answer.map_err(|status| broker.change_failed(&status, Change::Create, wait))
        })
        .await?;
        let took = since.elapsed().as_secs_f64();
        output.remark(format!("machine {} created in {took:.1}s", machine.name));
        output.print(&MachineView::new(machine.name, machine.class.to_ref(), answer.into_inner()))
    }
}

impl Initialize {
    async fn run(self, Session { broker, output }: &mut Session<'_, '_>) -> Result<(), Failure> {
        let Self { machine, known, retry } = self;
        let request = MachineRequest {
            provider_id: known.provider_id,
            request_id: retry.request_id,
            ..machine.request()
        };
        let doing = format!("initializing machine {}", machine.name);
        let answer = change(output.live(), doing, Change::Initialize, async {
            let answer = broker.machines().initialize_machine(broker.operation(request)).await;
            let wait = machine.patience.wait;
            answer.map_err(|status| broker.change_failed(&status, Change::Initialize, wait))
        })
        .await?;
        output.remark(format!("machine {} initialized", machine.name));
        output.print(&MachineView::new(machine.name, machine.class.to_ref(), answer.into_inner()))
    }
}

impl Status {
    async fn run(self, Session { broker, output }: &mut Session<'_, '_>) -> Result<(), Failure> {
        let Self { machine, known } = self;
        let request = MachineRequest { provider_id: known.provider_id, ..machine.request() };
        let answer = broker.machines().get_machine_status(broker.operation(request)).await;
        let answer =
            answer.map_err(|status| broker.question_failed(&status, machine.patience.wait))?;
        output.print(&MachineView::new(machine.name, machine.class.to_ref(), answer.into_inner()))
    }
}

impl List {
    async fn run(self, Session { broker, output }: &mut Session<'_, '_>) -> Result<(), Failure> {
        let Self { class, patience: Patience { wait }, provider_id } = self;
        let class = class.to_ref();
        let request =
            ListMachinesRequest { class: Some(class.clone()), provider_id, wait_for_driver: wait };
        let answer = broker.machines().list_machines(broker.operation(request)).await;
        let answer = answer.map_err(|status| broker.question_failed(&status, wait))?.into_inner();
        if answer.machines.is_empty() {
            output.remark(format!("no machines of class {}/{}", class.namespace, class.name));
        }
        output.print(&MachineList::new(class, answer.machines))
    }
}

/// Runs a call that changes something: with a sign of life, and with a word on what it means to
/// leave early.
async fn change<T>(
    live: bool,
    doing: String,
    what: Change,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let progress = Progress::start(live, doing.clone());
    let answer = tokio::select! {
        answer = call => answer,
        Ok(()) = signal::ctrl_c() => Err(Failure::interrupted(&doing, what)),
    };
    drop(progress);
    answer
}

fn read(path: &Path) -> Result<Sensitive, Failure> {
    let content = if path == Path::new("-") {
        let mut content = Vec::new();
        io::stdin().read_to_end(&mut content).map(|_| content)
    } else {
        fs::read(path)
    };
    content.map(Sensitive::new).map_err(|error| {
        let message = format!("cannot read the user data from {}: {error}", path.display());
        Failure::new(Exit::Usage, message)
    })
}
