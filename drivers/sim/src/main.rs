use clap::Parser as _;
use tracing_subscriber::EnvFilter;

/// A driver for a cloud in a folder
#[derive(clap::Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    args: sim_driver::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    sim_driver::run(cli.args).await
}
