//! All that a broker is started with: catalog, policy, credentials.
//!
//! Everything that costs something per operation is on: deadlines, joining and metrics always are, and
//! here so are a policy, tokens or certificates, the audit log to a file, and the log at its
//! default level.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use crate::{
    process::{Process, this_program, until},
    registrations::Registrations,
    workload::catalog,
};

const POLICY: &str = "\
rules:
- who: [token:driver, spiffe://machine-broker.dev/driver]
  driver: {kinds: [\"*\"]}
- who: [token:controller, spiffe://machine-broker.dev/controller]
  controller: {kinds: [\"*\"]}
- who: token:operator
  operator: read
";

/// Bounds against abuse that a benchmark of ten thousand drivers of one identity would meet.
const BOUNDS: [&str; 8] = [
    "--identity-share",
    "1",
    "--registration-rate",
    "20000",
    "--max-newcomers",
    "20000",
    "--queue",
    "1000000",
];

/// A site has one broker at a time, and so one audit log.
const AUDIT: &str = "audit.log";

/// Who dials in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Driver,
    Controller,
    Operator,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Driver => "driver",
            Who::Controller => "controller",
            Who::Operator => "operator",
        }
    }
}

/// What carries the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// TCP, and bearer tokens.
    Plain,
    /// TLS, with certificates of both sides.
    Mtls,
}

/// A folder with a catalog, a policy and credentials. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new(kinds: u64) -> anyhow::Result<Self> {
        let site = Self(tempfile::tempdir().context("cannot make a temporary folder")?);
        fs::create_dir(site.file("catalog"))?;
        site.fill_catalog(kinds)?;
        fs::write(site.file("policy.yaml"), POLICY)?;
        let mut tokens = "tokens:\n".to_owned();
        for who in [Who::Driver, Who::Controller, Who::Operator] {
            let made = Command::new(machine_broker()?).args(["tokens", "new", who.name()]).output();
            let made = made.context("cannot run machine-broker")?;
            ensure!(made.status.success(), "machine-broker tokens new: {}", made.status);
            fs::write(site.file(&format!("{}.token", who.name())), made.stdout)?;
            tokens += &token_entry(&String::from_utf8_lossy(&made.stderr));
        }
        fs::write(site.file("tokens.yaml"), tokens)?;
        let certs = Command::new(machine_broker()?)
            .args(["certs", "init"])
            .arg(site.file("certs"))
            .output()
            .context("cannot run machine-broker")?;
        ensure!(certs.status.success(), "machine-broker certs init: {}", certs.status);
        Ok(site)
    }

    /// Makes the catalog one of so many kinds.
    pub(crate) fn fill_catalog(&self, kinds: u64) -> anyhow::Result<()> {
        for (number, text) in catalog(kinds).enumerate() {
            let file = self.file("catalog").join(format!("{number}.yaml"));
            fs::write(file, text).context("cannot write the catalog")?;
        }
        Ok(())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn certificate(&self, name: &str) -> PathBuf {
        self.file("certs").join(name)
    }

    /// What `machine-broker` is started with.
    fn serve(&self, carrier: Carrier, listen: SocketAddr) -> Vec<String> {
        let path = |path: PathBuf| path.display().to_string();
        let mut args = vec![
            "serve".to_owned(),
            format!("--listen={listen}"),
            "--admin=127.0.0.1:0".to_owned(),
            format!("--catalog=dir:{}", path(self.file("catalog"))),
            format!("--policy={}", path(self.file("policy.yaml"))),
            format!("--tokens={}", path(self.file("tokens.yaml"))),
            format!("--audit={}", path(self.file(AUDIT))),
            // At full speed it grows by tens of megabytes a second.
            "--audit-keep=1".to_owned(),
            // A broker that has just started would have the first load wait for five seconds.
            "--settle=0s".to_owned(),
        ];
        args.extend(BOUNDS.map(str::to_owned));
        if carrier == Carrier::Mtls {
            for (flag, name) in [
                ("--tls-cert", "broker.crt"),
                ("--tls-key", "broker.key"),
                ("--client-ca", "ca.crt"),
            ] {
                args.push(format!("{flag}={}", path(self.certificate(name))));
            }
        }
        args
    }

    /// The flags with which a role shows who it is.
    pub(crate) fn credentials(&self, carrier: Carrier, who: Who) -> Vec<String> {
        let flag = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let name = who.name();
        match carrier {
            Carrier::Plain => vec![flag("token-file", self.file(&format!("{name}.token")))],
            Carrier::Mtls => vec![
                flag("ca", self.certificate("ca.crt")),
                flag("cert", self.certificate(&format!("{name}.crt"))),
                flag("key", self.certificate(&format!("{name}.key"))),
            ],
        }
    }

    /// A role of this program that dials into `broker`.
    pub(crate) fn role(
        &self,
        role: &str,
        broker: &BrokerUnderTest,
        who: Who,
    ) -> anyhow::Result<Command> {
        let mut command = this_program()?;
        command.arg(role).arg(format!("--address={}", broker.address));
        command.args(self.credentials(broker.carrier, who));
        Ok(command)
    }
}

/// The lines for the token file, of what `machine-broker tokens new` says.
fn token_entry(said: &str) -> String {
    let entry = |line: &&str| line.starts_with("- name:") || line.starts_with("  ");
    said.lines().filter(entry).map(|line| format!("{line}\n")).collect()
}

/// The broker that is measured: the one that was built beside this program.
pub(crate) fn machine_broker() -> anyhow::Result<PathBuf> {
    let this = env::current_exe().context("cannot tell where this program lies")?;
    let broker = this.with_file_name("machine-broker");
    ensure!(broker.exists(), "{} is not there: use `cargo xtask bench`", broker.display());
    Ok(broker)
}

/// A running `machine-broker serve`.
#[derive(Debug)]
pub(crate) struct BrokerUnderTest {
    pub(crate) process: Process,
    pub(crate) carrier: Carrier,
    pub(crate) address: SocketAddr,
    /// From the start of the process until it listened.
    pub(crate) started_in: Duration,
}

impl BrokerUnderTest {
    pub(crate) fn start(site: &Site, name: &str, carrier: Carrier) -> anyhow::Result<Self> {
        Self::start_at(site, name, carrier, any_port())
    }

    pub(crate) fn start_at(
        site: &Site,
        name: &str,
        carrier: Carrier,
        listen: SocketAddr,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(machine_broker()?);
        Self::start_by(&mut command, site, name, carrier, listen)
    }

    /// Starts it with a command that takes its arguments: itself, or a program that watches it.
    pub(crate) fn start_by(
        command: &mut Command,
        site: &Site,
        name: &str,
        carrier: Carrier,
        listen: SocketAddr,
    ) -> anyhow::Result<Self> {
        // Of a broker before this one.
        fs::remove_file(site.file(AUDIT)).ok();
        let began = Instant::now();
        command.args(site.serve(carrier, listen));
        let mut process = Process::start(name, command, site.folder())?;
        let address = process.line(address)?;
        Ok(Self { process, carrier, address, started_in: began.elapsed() })
    }

    /// Waits until so many drivers have registered with it.
    pub(crate) fn until_registered(&self, site: &Site, drivers: u64) -> anyhow::Result<()> {
        let (log, drivers) = (site.file(AUDIT), usize::try_from(drivers)?);
        let mut registrations = Registrations::default();
        until(|| Ok((registrations.look(&log)? >= drivers).then_some(())))
            .with_context(|| format!("of {drivers} drivers not all have registered"))
    }
}

/// Looks into a broker's log: one that loses lines of its audit log does not do all that is measured here.
pub(crate) fn ensure_audited(log: &Path) -> anyhow::Result<()> {
    let said = fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    let said = String::from_utf8_lossy(&said);
    let lost = said.lines().find(|line| line.contains("audit lines are lost"));
    ensure!(lost.is_none(), "nothing measured here counts: {}", lost.unwrap_or_default());
    Ok(())
}

pub(crate) fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Where the broker says that it listens.
fn address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(" drivers=").filter(|_| line.contains("listening"))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_a_token_is_found_among_what_is_said_around_it() {
        let said =
            "Add to the list `tokens:` …:\n\n- name: ci\n  sha256: 00ff\n\nThe token, for …:\n";
        assert_eq!(token_entry(said), "- name: ci\n  sha256: 00ff\n");
    }

    #[test]
    fn a_broker_that_does_not_write_what_it_should_is_not_measured() {
        let log = tempfile::NamedTempFile::new().unwrap();
        fs::write(log.path(), "INFO broker: listening drivers=127.0.0.1:5\n").unwrap();
        ensure_audited(log.path()).unwrap();
        let lost = "ERROR broker: audit lines are lost lines=1 in_all=1 why=\"the disk is full\"";
        fs::write(log.path(), lost).unwrap();
        let error = ensure_audited(log.path()).unwrap_err().to_string();
        assert!(error.contains("the disk is full"), "{error}");
    }

    #[test]
    fn the_address_is_read_from_the_log() {
        let line = "2027 INFO broker: listening drivers=127.0.0.1:5 admin=127.0.0.1:6 tls=false";
        assert_eq!(address(line), Some("127.0.0.1:5".parse().unwrap()));
        assert_eq!(address("policy in force rules=3"), None);
    }
}
