//! `machine-broker dev`: a working system without a single file.

use std::{env, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use broker_otlp::Endpoint;

use crate::{
    catalog::Static,
    children::DriverCommand,
    grpc::Admission,
    server::{self, Broker, Plan, Settings},
    telemetry::{self, LogControl, LogFormat, Otlp},
};

const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where drivers and controllers connect; port 0 takes any free one
    #[arg(long, env = "BROKER_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:5000")]
    listen: SocketAddr,

    /// Where operators find the page, and probes an answer
    #[arg(long, env = "BROKER_ADMIN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    admin: SocketAddr,

    /// What is logged, as in RUST_LOG
    #[arg(long, env = "BROKER_LOG", value_name = "FILTER", default_value = "info")]
    log: String,

    /// Export spans to this OpenTelemetry collector, by OTLP over gRPC [default: nowhere]
    #[arg(long, env = "BROKER_OTLP_ENDPOINT", value_name = "http://HOST:PORT")]
    otlp_endpoint: Option<Endpoint>,
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.listen.ip().is_loopback() && args.admin.ip().is_loopback(),
        "dev serves loopback addresses only; use `machine-broker serve` for others"
    );
    // Its only driver starts and ends with it: there is nobody to wait for.
    let admission = Admission { settle: Duration::ZERO, ..Admission::default() };
    let settings = Settings { admission, ..Settings::new(Static::sample()) };
    let otlp = args.otlp_endpoint.map(|endpoint| Otlp { endpoint, sample: 1.0 });
    let (filter, spans) =
        telemetry::start(&args.log, LogFormat::Text, otlp.clone(), &settings.admission.replica)?;
    let stop = server::signal()?;
    // The VMs of the demo survive the driver, not the demo.
    let cloud = tempfile::Builder::new()
        .prefix("machine-broker-dev-")
        .tempdir()
        .context("cannot make a folder for the sim cloud")?;
    let this = env::current_exe().context("cannot find this program")?;
    let sim = ["sim-driver".as_ref(), "--cloud".as_ref(), cloud.path().as_os_str()];
    let sim = DriverCommand::new(this, sim).named("sim");
    let log = Some(LogControl::new(filter, &args.log));
    let broker = Broker::new(Settings { log, ..settings });
    let plan = Plan {
        listen: args.listen,
        admin: args.admin,
        driver_commands: telemetry::told(vec![sim], otlp.as_ref()),
        log_format: LogFormat::Text,
        grace: GRACE,
    };
    let result = server::run(broker, plan, stop, banner).await;
    spans.stop().await;
    result
}

fn banner(drivers: SocketAddr, admin: SocketAddr) {
    // Only an address that is not the default has to be given.
    let broker = match drivers.port() {
        5000 => String::new(),
        _ => format!(" --broker {drivers}"),
    };
    println!(
        "\
machine-broker dev is running; Ctrl-C stops it.

  drivers and controllers   {drivers}
  operators' page           http://{admin}/
  health                    http://{admin}/readyz
  machine classes           small, large (kind SimMachineClass, namespace default)
  driver                    sim, a cloud in a folder, started as a child process

Try, in another terminal:

  cargo run -p brokerctl --{broker} drivers
  cargo run -p brokerctl --{broker} machines create worker-0 --kind SimMachineClass --class small
"
    );
}
