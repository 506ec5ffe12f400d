//! What the binary can be told to do.

mod certs;
mod dev;
mod policy;
mod serve;
mod tokens;

use std::process::ExitCode;

use crate::{children::leash, config::Options};

pub const EXAMPLES: &str = "\
Examples:
  machine-broker dev
      A working system for trying things out: a sample catalog and the sim driver.

  machine-broker serve --catalog dir:./classes
      The real thing: drivers dial in on 127.0.0.1:5000.

  machine-broker serve --catalog dir:./classes --driver-command './my-driver --verbose'
      The same, with a driver program that the broker starts and keeps running.";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Serve drivers and controllers
    Serve(Box<Options>),
    /// Start a working system with a sample catalog and the sim driver, for trying things out
    Dev(dev::Args),
    /// Check a policy file, and ask what it allows
    #[command(subcommand)]
    Policy(policy::Command),
    /// Make bearer tokens
    #[command(subcommand)]
    Tokens(tokens::Command),
    /// Make certificates, for trying things out
    Certs(certs::Args),
    /// The sim driver, as `dev` starts it
    #[command(hide = true)]
    SimDriver(sim_driver::Args),
    /// Runs a driver program and ends it when stdin closes, as it does when the broker dies
    #[command(hide = true)]
    Leash {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<std::ffi::OsString>,
    },
}

/// Runs a command to its end and says what went wrong.
pub fn main(command: Command) -> ExitCode {
    let result = match command {
        Command::Leash { program } => return leash::run(program),
        Command::Serve(options) => on_one_thread(serve::run(*options)),
        Command::Dev(args) => on_one_thread(dev::run(args)),
        Command::Policy(policy::Command::Check(check)) => match check.run() {
            Ok(code) => return code,
            Err(error) => {
                eprintln!("error: {error:#}");
                return ExitCode::from(2);
            }
        },
        Command::Tokens(command) => tokens::run(command),
        Command::Certs(args) => certs::run(args),
        Command::SimDriver(args) => in_runtime(sim_driver::main(args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// For the broker: an operation is so little work that handing it from thread to thread costs more than
/// the work itself. What blocks (files, name look-ups, the audit log) has threads of its own.
fn on_one_thread<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs file descriptors only")
        .block_on(task)
}

fn in_runtime<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime needs threads and file descriptors only")
        .block_on(task)
}
