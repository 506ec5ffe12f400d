//! The binary parses and prints; everything else is in the library, where tests can call it.

use std::{
    env,
    io::{self, BufRead, IsTerminal as _},
    process::ExitCode,
};

use anstream::{AutoStream, ColorChoice};
use brokerctl::{Args, Console};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::from_words(env::args_os()).unwrap_or_else(|error| error.exit());
    let (mut out, mut remarks) = (io::stdout(), io::stderr());
    let (live, asks) = (remarks.is_terminal(), io::stdin().is_terminal());
    // Not locked: a command may read its own data there.
    let mut answers = io::BufReader::new(io::stdin());
    let mut console = Console {
        // Knows of NO_COLOR, CLICOLOR_FORCE and terminals that cannot.
        colour: AutoStream::choice(&out) != ColorChoice::Never,
        live,
        terminal: out.is_terminal(),
        answers: (live && asks).then_some(&mut answers as &mut dyn BufRead),
        out: &mut out,
        remarks: &mut remarks,
    };
    brokerctl::run(args, &mut console).await.into()
}
