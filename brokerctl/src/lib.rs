//! `brokerctl`, the command line of operators and controllers: a client of the wire alone.
//!
//! In reading order: [`args`] is what one may type, `commands` does it with the connection that
//! `client` makes, `output` (with `table` and `age`) shows the answer, and [`failure`] says what
//! went wrong, what to do about it and with which exit code.

pub mod args;
pub mod failure;

mod age;
mod client;
mod commands;
mod output;
mod progress;
mod table;

pub use args::Args;
pub use failure::{Exit, Failure};
pub use output::Console;

use client::Broker;
use commands::Session;
use output::Output;

/// Does what `args` ask for. A failure is told on the console; the exit code is returned.
pub async fn run(args: Args, console: &mut Console<'_>) -> Exit {
    match attempt(args, console).await {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            console.remark(&failure);
            failure.exit()
        }
    }
}

async fn attempt(args: Args, console: &mut Console<'_>) -> Result<(), Failure> {
    let Args { global, command } = args;
    let broker = Broker::connect(global.broker, global.timeout).await?;
    let output = Output::new(console, global.output, !global.no_headers);
    command.run(&mut Session { broker, output }).await
}
