//! The binary parses and prints; everything else is in the library, where tests can call it.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use anstream::{AutoStream, ColorChoice};
use brokerctl::{Args, Console};
use clap::Parser as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let (mut out, mut remarks) = (io::stdout(), io::stderr());
    let mut console = Console {
        // Knows of NO_COLOR, CLICOLOR_FORCE and terminals that cannot.
        colour: AutoStream::choice(&out) != ColorChoice::Never,
        live: remarks.is_terminal(),
        out: &mut out,
        remarks: &mut remarks,
    };
    brokerctl::run(args, &mut console).await.into()
}
