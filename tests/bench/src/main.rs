//! What an operation costs, beside what a user would pick instead.
//!
//! `cargo xtask bench` builds this and the broker, and calls it. Everything that is measured runs as a
//! process of its own on loopback: the broker as it is shipped, and this program again in the roles
//! of [`roles`] and [`load`].
//!
//! Reading order: [`workload`] is what is asked and answered, [`site`] how the broker is started,
//! [`load`] how it is measured, [`report`] what is made of it.

mod dial;
mod frames;
mod growth;
mod house;
mod how;
mod instructions;
mod load;
mod paths;
mod plot;
mod process;
mod registrations;
mod report;
mod roles;
mod scale;
mod site;
mod way;
mod workload;

use std::{io, process::ExitCode};

use clap::Parser;
use mimalloc::MiMalloc;
use tokio::runtime::Builder;

/// All roles have the allocator that the broker has: what is compared is ways, not allocators.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Debug, Parser)]
#[command(name = "broker-bench", about = "What an operation costs; see `cargo xtask bench`")]
enum Verb {
    /// The broker beside its peers
    Paths(how::HowMuch),
    /// Up to 10,000 drivers
    Scale(how::HowMuch),
    /// Throughput against drivers, kinds, operations in flight and classes
    Growth(how::HowMuch),
    Instructions(instructions::Args),
    /// The role of those who ask
    #[command(hide = true)]
    Load(load::Args),
    /// The role of drivers
    #[command(hide = true)]
    Driver(roles::driver::Args),
    /// The role of a driver that is a server
    #[command(hide = true)]
    Direct(roles::direct::Args),
    /// The role of who answers over NATS
    #[command(hide = true)]
    Nats(roles::nats::Args),
    /// The roles of a relay, and of who answers behind it
    #[command(hide = true)]
    Relay(roles::relay::Args),
}

fn main() -> ExitCode {
    let result = match Verb::parse() {
        Verb::Paths(much) => paths::run(&much),
        Verb::Scale(much) => scale::run(&much),
        Verb::Growth(much) => growth::run(&much),
        Verb::Instructions(args) => instructions::run(&args),
        // It is what measures, and should take as little as it can from what is measured.
        Verb::Load(args) => in_runtime(Builder::new_current_thread(), load::run(args)),
        Verb::Driver(args) => in_runtime(threads(), roles::driver::run(args)),
        Verb::Direct(args) => in_runtime(threads(), roles::direct::run(args)),
        Verb::Nats(args) => in_runtime(threads(), roles::nats::run(args)),
        Verb::Relay(args) => in_runtime(threads(), roles::relay::run(args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As most programs have it.
fn threads() -> Builder {
    Builder::new_multi_thread()
}

fn in_runtime<T>(mut runtime: Builder, task: impl Future<Output = T>) -> T {
    // A log at its default level, as any program has it. Where nobody listens, every span of HTTP/2 is
    // put into words for the `log` crate in vain, which makes direct calls look slow.
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).init();
    runtime
        .enable_all()
        .build()
        .expect("a runtime needs threads and file descriptors only")
        .block_on(task)
}
