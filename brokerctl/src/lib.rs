//! `brokerctl`, the command line of operators and controllers: a client of the wire alone.
//!
//! In reading order: [`args`] is what one may type, `contexts` where the broker is, `commands` does
//! it with the connection that `client` makes, `watch` follows what changes, `output` (with `table`,
//! `sheet` and `age`) shows the answer, and [`failure`] says what went wrong, what to do about it and
//! with which exit code.

pub mod args;
pub mod failure;

mod age;
mod client;
mod commands;
mod contexts;
mod output;
mod progress;
mod sheet;
mod table;
mod watch;

pub use args::Args;
pub use failure::{Exit, Failure};
pub use output::Console;

use args::Global;
use client::Broker;
use commands::{Command, Session};
use output::Output;

/// Does what `args` ask for. A failure is told on the console; the exit code is returned.
pub async fn run(args: Args, console: &mut Console<'_>) -> Exit {
    attempt(args, console).await.unwrap_or_else(|failure| {
        console.remark(&failure);
        failure.exit()
    })
}

async fn attempt(args: Args, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let Args { global, command, program } = args;
    let mut output = Output::new(console, global.output, !global.no_headers);
    match command {
        Command::Contexts(contexts) => {
            contexts.run(contexts::File::find(global.config)?, &mut output)?;
            Ok(Exit::Ok)
        }
        Command::Completions(completions) => {
            completions.run(program, &mut output)?;
            Ok(Exit::Ok)
        }
        Command::Online(command) => {
            let broker = connect(global, &mut output).await?;
            command.run(&mut Session { broker, output }).await
        }
    }
}

/// Finds out which broker is meant and dials it. What is named directly goes before any context.
async fn connect(global: Global, output: &mut Output<'_, '_>) -> Result<Broker, Failure> {
    let Global { broker, context, config, timeout, .. } = global;
    if let Some(address) = broker {
        if let Some(name) = context {
            output.remark(format!(
                "context {name} is not used: --broker or BROKER_ADDRESS says {address}"
            ));
        }
        // A token is for the address of its own context.
        return Broker::connect(address, None, timeout).await;
    }
    let file = contexts::File::find(config)?;
    let contexts = file.load()?;
    let Some((name, context)) = contexts.choose(context.as_deref())? else {
        return Broker::connect(args::Address::default(), None, timeout).await;
    };
    let (address, bearer) = (context.address(name)?, file.bearer(name, context)?);
    if context.token.is_some() && file.is_open() {
        let path = file.path().display();
        output.remark(format!("others may read the tokens in {path}: run `chmod 600 {path}`"));
    }
    if bearer.is_some() && !address.is_loopback() {
        output.remark(format!("the token of context {name} goes to {address} unencrypted"));
    }
    Broker::connect(address, bearer, timeout).await
}
