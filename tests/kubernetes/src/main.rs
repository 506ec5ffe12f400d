//! The broker in a real cluster: an etcd and a kube-apiserver of our own on loopback, the real
//! programs, and scenarios that read as stories. `cargo xtask e2e kubernetes` runs it.
//!
//! What is installed are our manifests. Brokers, drivers and controllers have the rights of the service
//! accounts in there, so that what is granted is shown to be enough.

use std::{panic::AssertUnwindSafe, path::PathBuf, process::ExitCode, time::Instant};

use clap::Parser;
use futures::FutureExt as _;

mod actors;
mod cluster;
mod home;
mod manifests;
mod pods;
mod ports;
mod scenarios;
mod token;

use cluster::Cluster;

/// Scenarios against an API server of their own
#[derive(Debug, Parser)]
struct Args {
    /// Where etcd, kube-apiserver and kubectl are
    #[arg(long)]
    tools: PathBuf,

    /// Where the CustomResourceDefinitions are that others have to install
    #[arg(long)]
    definitions: PathBuf,

    /// Only scenarios whose name contains one of these
    only: Vec<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .expect("signals can be waited for");
    // Whichever way this ends, what was started is dropped, and dropping it kills it.
    tokio::select! {
        passed = run(&args) => if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE },
        _ = stop.recv() => ExitCode::FAILURE,
        _ = tokio::signal::ctrl_c() => ExitCode::FAILURE,
    }
}

/// Runs the scenarios one after the other and says whether all passed.
async fn run(args: &Args) -> bool {
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|o| name.contains(o));
    let started = Instant::now();
    let cluster = Cluster::start(&args.tools, &args.definitions);
    println!("the API server is ready after {:.0?}", started.elapsed());
    let mut failed = Vec::new();
    for (name, scenario) in scenarios::all().into_iter().filter(|(name, _)| wanted(name)) {
        let started = Instant::now();
        let passed = AssertUnwindSafe(scenario(&cluster)).catch_unwind().await.is_ok();
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("{name} ... {verdict} ({:.0?})", started.elapsed());
        if !passed {
            failed.push(name);
        }
        // A scenario that broke off may have left it stopped.
        cluster.start_api_server();
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    failed.is_empty()
}
