//! A driver for a cloud in a folder: the demo, the tests' partner, the driver to copy.
//!
//! `cloud` is the provider: VMs are files, so they survive any crash of the driver. `spec` is
//! what a machine class may say, faults on demand included. `driver` is the part that every
//! driver has to write: the verbs.

mod cloud;
mod driver;
mod spec;

use std::{env, path::PathBuf};

use anyhow::Context as _;
use driver_client::{Config, Kind};

pub use crate::{
    cloud::{Cloud, Owner, Vm},
    driver::Sim,
};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The folder that holds the VMs, one file each [default: a folder for temporary files]
    #[arg(long, env = "SIM_CLOUD", value_name = "DIR")]
    pub cloud: Option<PathBuf>,

    /// The kind of machine class to serve
    #[arg(long, default_value = "SimMachineClass")]
    pub kind: String,

    /// The apiVersion of that kind
    #[arg(long, default_value = "sim.machinebroker.dev/v1alpha1")]
    pub api_version: String,

    /// Serve only classes of this provider
    #[arg(long)]
    pub provider: Option<String>,

    /// How many operations to run at once
    #[arg(long, default_value_t = 16)]
    pub capacity: usize,

    /// The brokers to dial; also as BROKER_ADDRESS [default: 127.0.0.1:5000]
    #[arg(long = "broker", value_name = "ADDRESS", value_delimiter = ',')]
    pub brokers: Vec<String>,

    /// Which of several equal drivers this is; also as BROKER_INSTANCE_ID [default: host and number]
    #[arg(long)]
    pub instance_id: Option<String>,
}

/// Serves the cloud until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let folder = args.cloud.unwrap_or_else(|| env::temp_dir().join("machine-broker-sim-cloud"));
    let cloud = Cloud::open(&folder)
        .with_context(|| format!("cannot use {} as a cloud", folder.display()))?;
    let kind = Kind { provider: args.provider, ..Kind::new(args.api_version, args.kind) };
    let mut config = Config {
        name: "sim".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kinds: vec![kind],
        capacity: args.capacity,
        ..Config::from_env()
    };
    if !args.brokers.is_empty() {
        config.addresses = args.brokers;
    }
    config.instance_id = args.instance_id.or(config.instance_id);
    driver_client::run(config, Sim::new(cloud)).await?;
    Ok(())
}
