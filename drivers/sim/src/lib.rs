//! A driver for a cloud in a folder: the demo, the tests' partner, the driver to copy.
//!
//! `cloud` is the provider: VMs are files, so they survive any crash of the driver. `spec` is
//! what a machine class may say, faults on demand included. `driver` is the part that every
//! driver has to write: the verbs. `journal` is for tests that want to know what was done.

mod cloud;
mod driver;
pub mod journal;
mod spec;

use std::{
    env,
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use anyhow::Context as _;
use driver_client::{Config, Kind, Tls, otlp};
use tracing_subscriber::{
    EnvFilter, Layer as _, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

pub use crate::{
    cloud::{Cloud, Owner, Vm, VmAddress},
    driver::Sim,
    journal::Journal,
    spec::{Failure, Spec},
};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The folder that holds the VMs, one file each [default: a folder for temporary files]
    #[arg(long, env = "SIM_CLOUD", value_name = "DIR")]
    pub cloud: Option<PathBuf>,

    /// Append what is done to this file, a line each, for tests to read [default: nowhere]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

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

    #[command(flatten)]
    pub tls: TlsArgs,

    /// A file with the token that the brokers know us by; read for every session; also as
    /// BROKER_TOKEN_FILE
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Which of several equal drivers this is; also as BROKER_INSTANCE_ID [default: host and number]
    #[arg(long)]
    pub instance_id: Option<String>,

    /// Export spans to this OpenTelemetry collector, by OTLP over gRPC [default: nowhere]
    #[arg(long, env = "BROKER_OTLP_ENDPOINT", value_name = "http://HOST:PORT")]
    pub otlp_endpoint: Option<otlp::Endpoint>,
}

/// The whole program: logs what `RUST_LOG` says, exports its spans, and serves the cloud.
pub async fn main(args: Args) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = io::stderr().is_terminal();
    let log = fmt::layer().with_writer(io::stderr).with_ansi(colour).with_filter(filter);
    let subscriber = tracing_subscriber::registry().with(log);
    let Some(endpoint) = args.otlp_endpoint.clone() else {
        subscriber.init();
        return run(args).await;
    };
    let (spans, exporter) = otlp::start(endpoint, &config(&args), &["sim_driver"])?;
    subscriber.with(spans).init();
    let result = run(args).await;
    exporter.stop().await;
    result
}

/// With any of them the brokers are dialled with TLS. The files are read for every session.
#[derive(Clone, Debug, clap::Args)]
pub struct TlsArgs {
    /// The CA that signed the brokers' certificates, as PEM; also as BROKER_CA
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// Our certificate; also as BROKER_CERT
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// The key of our certificate; also as BROKER_KEY
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// The name in the brokers' certificates, if it is not the one that is dialled; also as
    /// BROKER_SERVER_NAME
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
}

/// Serves the cloud until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let config = config(&args);
    let folder = args.cloud.unwrap_or_else(|| env::temp_dir().join("machine-broker-sim-cloud"));
    let cloud = Cloud::open(&folder)
        .with_context(|| format!("cannot use {} as a cloud", folder.display()))?;
    let cloud = match &args.journal {
        None => cloud,
        Some(file) => cloud.with_journal(
            Journal::open(file)
                .with_context(|| format!("cannot write a journal to {}", file.display()))?,
        ),
    };
    driver_client::run(config, Sim::new(cloud)).await?;
    Ok(())
}

fn config(args: &Args) -> Config {
    let kind = Kind::new(&*args.api_version, &*args.kind);
    let kind = Kind { provider: args.provider.clone(), ..kind };
    let mut config = Config {
        name: "sim".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kinds: vec![kind],
        capacity: args.capacity,
        ..Config::from_env()
    };
    if !args.brokers.is_empty() {
        config.addresses.clone_from(&args.brokers);
    }
    config.instance_id = args.instance_id.clone().or(config.instance_id);
    let (given, from_env) = (args.tls.clone(), config.tls);
    config.tls = Tls {
        ca: given.ca.or(from_env.ca),
        cert: given.cert.or(from_env.cert),
        key: given.key.or(from_env.key),
        server_name: given.server_name.or(from_env.server_name),
    };
    if args.token_file.is_some() {
        (config.token, config.token_file) = (None, args.token_file.clone());
    }
    config
}
