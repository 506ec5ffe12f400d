//! What one may type. Doc comments here are the help text.

mod address;
mod program;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum, builder::Resettable};

pub use address::Address;

use crate::commands::Command;
pub(crate) use program::Program;

const AFTER_HELP: &str = "\
Examples:
  brokerctl status
  brokerctl drivers -w
  brokerctl drivers describe sim-0
  brokerctl operations --running -o wide
  brokerctl machines create worker-0 --kind SimMachineClass --class small
  brokerctl machines list --kind SimMachineClass --class small -o json
  brokerctl machines delete worker-0 --kind SimMachineClass --class small --timeout 5m
  brokerctl contexts set prod --address broker.example:5000 --ca ca.crt --cert me.crt --key me.key

The broker is, by the first of these that is there: --broker, BROKER_ADDRESS, the context that
--context names, the current context, 127.0.0.1:5000.

As a plugin of kubectl, `kubectl broker …`, it needs a link somewhere in PATH:
  ln -s \"$(command -v brokerctl)\" ~/.local/bin/kubectl-broker

Exit codes:
  0  it worked
  1  it failed, and that is definite: the driver's answer, or the broker's refusal;
     of status: there are concerns
  2  the command line is wrong, or the file of contexts, or one of certificates and keys
  3  no broker answers
  4  the outcome is unknown: run the same command again to learn it
  5  not now: nothing was sent to a driver, run the same command again later
  6  there is no such class, machine, driver or operation";

/// See and steer the drivers of a Machine Broker, and have them make machines
#[derive(Debug, Parser)]
#[command(name = "brokerctl", version, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
    #[arg(skip)]
    pub(crate) program: Program,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Where the broker listens, as HOST[:PORT] or with https://; goes before any context
    #[arg(long, global = true, env = "BROKER_ADDRESS", value_name = "ADDR")]
    pub(crate) broker: Option<Address>,

    /// The context to use instead of the current one: an address with its credentials
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,

    #[command(flatten)]
    pub(crate) credentials: Credentials,

    /// The file of contexts [default: ~/.config/brokerctl/contexts.yaml]
    #[arg(long, global = true, env = "BROKERCTL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// How to print the answer
    #[arg(long, short, global = true, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) output: Format,

    /// Leave the header of tables out
    #[arg(long, global = true)]
    pub(crate) no_headers: bool,

    /// Give up after this time, such as 90s or 5m; the driver is then told to stop. Without it the
    /// broker's own limits hold
    #[arg(long, global = true, value_name = "DURATION", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
}

/// Whom we trust and what we show. Each goes before what the context says of it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Credentials {
    /// The CA that signed the broker's certificate, as PEM. With this or the next ones TLS is spoken
    #[arg(long, global = true, env = "BROKER_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// Our certificate
    #[arg(long, global = true, env = "BROKER_CERT", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,

    /// The key of our certificate
    #[arg(long, global = true, env = "BROKER_KEY", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,

    /// The name in the broker's certificate, if it is not the one that is dialled
    #[arg(long, global = true, env = "BROKER_SERVER_NAME", value_name = "NAME")]
    pub(crate) server_name: Option<String>,

    /// A file with the token that the broker knows us by; it is read anew for every command
    #[arg(long, global = true, env = "BROKER_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
}

impl Args {
    /// Takes a command line apart, the name of the program first.
    pub fn from_words<W: Into<OsString>>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let program = Program::of(words.first().map(OsString::as_os_str));
        let command = Self::command().mut_args(unless_empty);
        let matches = program.name(command).try_get_matches_from(words)?;
        Ok(Self { program, ..Self::from_arg_matches(&matches)? })
    }
}

/// An empty variable counts as not set, as in most programs: `BROKER_ADDRESS= brokerctl …`.
fn unless_empty(arg: Arg) -> Arg {
    let variable = arg.get_env().and_then(std::env::var_os);
    if variable.is_some_and(|value| value.is_empty()) { arg.env(Resettable::Reset) } else { arg }
}

pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("nothing can be done in no time".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(words: &[&str]) -> String {
        Args::from_words(words.iter().copied()).expect_err("help is no command").to_string()
    }

    #[test]
    fn the_command_line_holds_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_plugin_of_kubectl_calls_itself_so() {
        let text = help(&["/bin/kubectl-broker", "--help"]);
        assert!(text.contains("Usage: kubectl broker [OPTIONS] <COMMAND>"), "{text}");
        assert!(text.contains("\n  kubectl broker drivers -w\n"), "{text}");
        let text = help(&["kubectl-broker", "machines", "create", "--help"]);
        assert!(text.contains("Usage: kubectl broker machines create"), "{text}");
        assert!(!text.contains("brokerctl machines"), "{text}");
        assert!(help(&["brokerctl", "--help"]).contains("Usage: brokerctl [OPTIONS] <COMMAND>"));
    }

    #[test]
    fn help_says_how_to_become_a_plugin() {
        for program in ["brokerctl", "kubectl-broker"] {
            let text = help(&[program, "--help"]);
            let link = "\n  ln -s \"$(command -v brokerctl)\" ~/.local/bin/kubectl-broker\n";
            assert!(text.contains(link), "{text}");
        }
    }

    #[test]
    fn a_timeout_has_a_unit_and_is_not_nothing() {
        assert_eq!(timeout("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(timeout("0s").is_err());
        assert!(timeout("30").is_err());
        assert!(timeout("-1s").is_err());
    }
}
