//! `machine-broker tokens new`: a bearer token, and what the token file must know of it.

use anyhow::anyhow;

use crate::auth::make_token;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a token; it is shown once, and only its digest belongs into the token file
    New {
        /// Whose token: the policy knows its holder as token:NAME
        name: String,
    },
}

pub(super) fn run(command: Command) -> anyhow::Result<()> {
    let Command::New { name } = command;
    let (token, entry) = make_token(&name).map_err(|problem| anyhow!("{problem}"))?;
    // The token alone goes to stdout, so that it can go straight into a file.
    eprintln!("Add to the list `tokens:` of the file that --tokens names:\n\n{entry}");
    eprintln!("The token, for a file of its holder's that nobody else can read (--token-file):\n");
    println!("{}", *token);
    Ok(())
}
