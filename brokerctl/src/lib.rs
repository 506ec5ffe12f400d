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

use std::time::Duration;

pub use args::Args;
pub use failure::{Exit, Failure};
pub use output::Console;

use args::{Credentials, Global};
use broker_tls::Tls;
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
            let file = contexts::File::find(global.config)?;
            contexts.run(file, global.credentials, &mut output)?;
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
    let Global { broker, context, config, timeout, credentials, .. } = global;
    let Credentials { ca, cert, key, server_name, token_file } = credentials;
    let given = Tls { ca, cert, key, server_name };
    let bearer = token_file.map(|file| contexts::bearer_in(&file, "the token")).transpose()?;
    if let Some(address) = broker {
        if let Some(name) = context {
            output.remark(format!(
                "context {name} is not used: --broker or BROKER_ADDRESS says {address}"
            ));
        }
        // What a context has is for its own address.
        return dial(address, given, bearer, timeout).await;
    }
    let file = contexts::File::find(config)?;
    let contexts = file.load()?;
    let Some((name, context)) = contexts.choose(context.as_deref())? else {
        return dial(args::Address::default(), given, bearer, timeout).await;
    };
    let address = context.address(name)?;
    let bearer = bearer.map_or_else(|| file.bearer(name, context), |given| Ok(Some(given)))?;
    if context.token.is_some() && file.is_open() {
        let path = file.path().display();
        output.remark(format!("others may read the tokens in {path}: run `chmod 600 {path}`"));
    }
    let own = file.tls(context);
    let tls = Tls {
        ca: given.ca.or(own.ca),
        cert: given.cert.or(own.cert),
        key: given.key.or(own.key),
        server_name: given.server_name.or(own.server_name),
    };
    dial(address, tls, bearer, timeout).await
}

async fn dial(
    address: args::Address,
    tls: Tls,
    bearer: Option<contexts::Bearer>,
    timeout: Option<Duration>,
) -> Result<Broker, Failure> {
    let tls = match (address.says_tls(), tls.is_wanted()) {
        (Some(false), true) => {
            let message = format!("http://{address} means no TLS, but there are settings of TLS");
            return Err(Failure::new(Exit::Usage, message)
                .advise("leave http:// out, or --ca, --cert, --key and --server-name"));
        }
        (Some(true), _) | (None, true) => Some(tls),
        (Some(false) | None, false) => None,
    };
    Broker::connect(address, tls, bearer, timeout).await
}
