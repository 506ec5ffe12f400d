//! Drivers that do nothing, on the real `driver-client`: one or ten thousand of them.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use driver_client::{
    Config, Dial, Driver, Error, Kind, ListedMachine, Machine, Operation, Pool, RunError,
    async_trait,
};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    dial::Dialing,
    workload::{API_VERSION, answer, kind},
};

/// So many drivers of so many kinds
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    dialing: Dialing,
    #[arg(long, default_value_t = 1)]
    drivers: u64,
    /// Driver number N serves kind number N modulo this
    #[arg(long, default_value_t = 1)]
    kinds: u64,
    /// The number of the first kind
    #[arg(long, default_value_t = 0)]
    first_kind: u64,
    /// All drivers share so many connections [default: each has its own]
    #[arg(long)]
    connections: Option<usize>,
    /// How many operations each runs at once
    #[arg(long, default_value_t = 1024)]
    capacity: usize,
    /// How many machines a list shows
    #[arg(long, default_value_t = 10)]
    machines: usize,
    /// How long a create takes, in milliseconds
    #[arg(long, default_value_t = 0)]
    takes: u64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    raise_file_limit()?;
    let pool = args.connections.map(|connections| Arc::new(Pool::new(connections)));
    let mut drivers = JoinSet::new();
    for number in 0..args.drivers {
        let mut config = Config {
            addresses: vec![args.dialing.address.clone()],
            name: "bench".to_owned(),
            kinds: vec![Kind::new(API_VERSION, kind(args.first_kind + number % args.kinds))],
            instance_id: Some(format!("bench-{}-{number}", args.first_kind)),
            capacity: args.capacity,
            token_file: args.dialing.token_file.clone(),
            tls: args.dialing.tls(),
            // They end with their process, as it is killed.
            handle_signals: false,
            ..Config::default()
        };
        if let Some(pool) = &pool {
            config.dial = Arc::clone(pool) as Arc<dyn Dial>;
        }
        let takes = Duration::from_millis(args.takes);
        drivers.spawn(driver_client::run(config, NoOp { machines: args.machines, takes }));
    }
    let ended: Result<(), RunError> = drivers.join_next().await.context("there is no driver")??;
    ended.context("a driver was rejected")?;
    anyhow::bail!("a driver ended")
}

/// As many connections as the system lets us have.
fn raise_file_limit() -> anyhow::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")
}

/// Makes no machine, and says that it did.
struct NoOp {
    machines: usize,
    takes: Duration,
}

#[async_trait]
impl Driver for NoOp {
    async fn create(&self, op: &Operation) -> Result<Machine, Error> {
        if !self.takes.is_zero() {
            sleep(self.takes).await;
        }
        let answer = answer(op.machine_name());
        Ok(Machine {
            provider_id: answer.provider_id,
            node_name: answer.node_name,
            ..Machine::default()
        })
    }

    async fn delete(&self, _: &Operation) -> Result<(), Error> {
        Ok(())
    }

    async fn list(&self, _: &Operation) -> Result<Vec<ListedMachine>, Error> {
        let listed = (0..self.machines).map(|number| {
            let answer = answer(&format!("shoot--bench--worker-{number:06}-00"));
            ListedMachine { provider_id: answer.provider_id, machine_name: answer.node_name }
        });
        Ok(listed.collect())
    }
}
