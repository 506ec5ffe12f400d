//! Real processes under load: `chaos` kills them, `soak` troubles them for minutes.

mod chaos;
mod drivers;
mod presence;
mod soak;
mod stage;
mod verdict;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Real processes under load, killed and troubled by seed")]
enum Verb {
    Chaos(chaos::Chaos),
    Soak(soak::Soak),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let well = match Verb::parse() {
        Verb::Chaos(chaos) => chaos::run(&chaos).await?,
        Verb::Soak(soak) => soak::run(&soak).await?,
    };
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
