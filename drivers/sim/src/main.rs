use clap::Parser as _;

/// A driver for a cloud in a folder
#[derive(clap::Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    args: sim_driver::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    sim_driver::main(Cli::parse().args).await
}
