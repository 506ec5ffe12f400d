//! What one may type. Doc comments here are the help text.

use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

use clap::{Parser, ValueEnum};
use tonic::codegen::http::uri::Authority;

use crate::commands::Command;

const DEFAULT_PORT: u16 = 5000;

const AFTER_HELP: &str = "\
Examples:
  brokerctl drivers
  brokerctl machines create worker-0 --kind SimMachineClass --class small
  brokerctl machines list --kind SimMachineClass --class small -o json
  brokerctl machines delete worker-0 --kind SimMachineClass --class small --timeout 5m
  BROKER_ADDRESS=broker.example:5000 brokerctl operations

Exit codes:
  0  it worked
  1  it failed, and that is definite: the driver's answer, or the broker's refusal
  2  the command line is wrong
  3  no broker answers
  4  the outcome is unknown: run the same command again to learn it
  5  not now: nothing was sent to a driver, run the same command again later
  6  there is no such class or machine";

/// See the drivers of a Machine Broker, and have them make machines
#[derive(Debug, Parser)]
#[command(name = "brokerctl", version, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Where the broker listens, as HOST[:PORT]
    #[arg(
        long,
        global = true,
        env = "BROKER_ADDRESS",
        value_name = "ADDR",
        default_value = "127.0.0.1:5000"
    )]
    pub(crate) broker: Address,

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

/// Where a broker listens: always a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(Authority);

impl Address {
    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = match text.split_once("://") {
            None => text,
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err("this brokerctl does not speak TLS yet".into()),
            Some((scheme, _)) => return Err(format!("scheme {scheme:?} is not known, use http")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // What people type for "here", and addresses of version 6 in their bare form.
        let full = match rest.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ if rest.starts_with(':') => format!("127.0.0.1{rest}"),
            _ => rest.to_owned(),
        };
        let expected = || "expected HOST or HOST:PORT".to_owned();
        let authority: Authority = full.parse().map_err(|_| expected())?;
        let after_host = authority.as_str().strip_prefix(authority.host());
        match (authority.host(), after_host) {
            ("", _) | (_, None) => Err(expected()),
            (host, Some("")) => {
                let full = format!("{host}:{DEFAULT_PORT}");
                Ok(Self(full.parse().map_err(|_| expected())?))
            }
            _ if authority.port_u16().is_some_and(|port| port > 0) => Ok(Self(authority)),
            _ => Err("the port is not a number from 1 to 65535".into()),
        }
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("nothing can be done in no time".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn address(text: &str) -> Result<String, String> {
        text.parse::<Address>().map(|address| address.to_string())
    }

    #[test]
    fn the_command_line_holds_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn an_address_needs_neither_scheme_nor_port() {
        for (text, expected) in [
            ("127.0.0.1:5000", "127.0.0.1:5000"),
            ("broker.example", "broker.example:5000"),
            ("http://broker.example:7000/", "broker.example:7000"),
            (":7000", "127.0.0.1:7000"),
            ("::1", "[::1]:5000"),
            ("[::1]", "[::1]:5000"),
            ("[::1]:7000", "[::1]:7000"),
        ] {
            assert_eq!(address(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_dialled_is_refused() {
        let wrong = ["", "http://", "a b", "host:", "host:0", "host:x", "host:70000", "host/path"];
        for text in wrong.into_iter().chain(["me@host:5000", "ftp://host", "https://host"]) {
            assert!(address(text).is_err(), "{text:?} gave {:?}", address(text));
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
