//! All processes of the comparison, started once and idle until it is their turn.

use std::{net::SocketAddr, process::Command};

use anyhow::Context as _;

use crate::{
    house::{Drivers, House},
    load::Path,
    process::{Process, this_program},
    roles,
    site::Carrier,
    way::Way,
};

/// How many drivers are many.
const MANY: u64 = 100;
/// How many machines a list shows.
const MACHINES: u64 = 10_000;

pub(super) struct Peers {
    /// A broker with one driver.
    one: House,
    /// The same with mTLS.
    mtls: House,
    /// A broker with many drivers on four connections.
    shared: House,
    /// A broker with many drivers on connections of their own.
    own: House,
    /// A broker with many drivers and a slow one.
    beside_slow: House,
    direct: Server,
    nats: [Server; 2],
    relay: [Server; 2],
}

/// A process that others dial.
struct Server {
    process: Process,
    address: SocketAddr,
    /// Holds its log.
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(
        name: &str,
        command: &mut Command,
        address: impl Fn(&str) -> Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut process = Process::start(name, command, folder.path())?;
        let address = process.line(address)?;
        Ok(Self { process, address, _folder: folder })
    }

    fn role(role: &str, flag: &str) -> anyhow::Result<Self> {
        Self::start(role, this_program()?.arg(role).arg(flag), roles::ready)
    }

    fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Peers {
    pub(super) fn start() -> anyhow::Result<Self> {
        let machines = format!("--machines={MACHINES}");
        let nats = Server::start(
            "nats-server",
            Command::new("nats-server").args(["--addr", "127.0.0.1", "--port", "-1"]),
            nats_address,
        )
        .context("NATS is one of the peers (Debian: package nats-server)")?;
        let responder = Server::role("nats", &format!("--address={}", nats.address))?;
        let answers = Server::start("relay", this_program()?.arg("relay"), roles::ready)?;
        let relay = Server::role("relay", &format!("--to={}", answers.address))?;
        let plain = |drivers: &Drivers| House::empty(Carrier::Plain, drivers.count)?.with(drivers);
        let one = Drivers::of_own_kinds(1);
        let many = Drivers::of_own_kinds(MANY);
        Ok(Self {
            one: plain(&one.clone().flag("machines", MACHINES))?,
            mtls: House::empty(Carrier::Mtls, 1)?.with(&one)?,
            shared: plain(&many.clone().flag("connections", 4))?,
            own: plain(&many)?,
            beside_slow: beside_slow()?,
            direct: Server::role("direct", &machines)?,
            nats: [nats, responder],
            relay: [relay, answers],
        })
    }

    fn direct(&self, name: &'static str, path: Path) -> Way {
        Way::new(name, path, self.direct.address).with(&[self.direct.id()])
    }

    /// What is compared with any number in flight.
    pub(super) fn one_driver(&self) -> Vec<Way> {
        let [nats, relay] = [&self.nats, &self.relay];
        vec![
            self.direct("direct", Path::Unary),
            self.one.way("brokered", Path::Unary),
            self.one.way("submit", Path::Submit),
            Way::new("NATS", Path::Nats, nats[0].address).with(&nats.each_ref().map(Server::id)),
            Way::new("relay", Path::Relay, relay[0].address)
                .with(&relay.each_ref().map(Server::id)),
        ]
    }

    /// What is compared with 64 in flight.
    pub(super) fn many_drivers(&self) -> Vec<Way> {
        vec![
            self.mtls.way("brokered, mTLS", Path::Unary),
            self.mtls.way("submit, mTLS", Path::Submit),
            // As many connections as the drivers have, or as there are callers.
            self.direct("direct, 4 connections", Path::Unary).connections(4),
            self.shared.way("brokered, 100 on 4", Path::Unary).kinds(MANY),
            self.shared.way("submit, 100 on 4", Path::Submit).kinds(MANY),
            self.direct("direct, 64 connections", Path::Unary).connections(64),
            self.own.way("brokered, 100 on 100", Path::Unary).kinds(MANY),
            self.own.way("submit, 100 on 100", Path::Submit).kinds(MANY),
        ]
    }

    /// Lists of ten thousand machines.
    pub(super) fn lists(&self) -> [Way; 2] {
        [self.direct("list, direct", Path::List), self.one.way("list, brokered", Path::List)]
    }

    /// A driver's questions.
    pub(super) fn lookups(&self) -> [Way; 2] {
        [self.one.way("class", Path::Class), self.one.way("secret", Path::Secret)]
    }

    /// Many drivers, beside which there is a slow one.
    pub(super) fn fast(&self) -> Way {
        self.beside_slow.way("fast drivers", Path::Unary).kinds(MANY)
    }

    /// The slow one.
    pub(super) fn slow(&self) -> Way {
        self.beside_slow.way("slow driver", Path::Unary).first_kind(MANY)
    }
}

/// Many drivers on four connections, and one of a kind of its own that takes a second for everything.
fn beside_slow() -> anyhow::Result<House> {
    let fast = Drivers::of_own_kinds(MANY).flag("connections", 4);
    let mut house = House::empty(Carrier::Plain, MANY + 1)?.with(&fast)?;
    let slow = Drivers::of_own_kinds(1).flag("first-kind", MANY);
    house.enter(&slow.flag("takes", 1000).flag("capacity", 64))?;
    house.broker.until_registered(&house.site, MANY + 1)?;
    Ok(house)
}

/// Where a NATS server says that it listens.
fn nats_address(line: &str) -> Option<SocketAddr> {
    line.split_once("Listening for client connections on ")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_nats_server_is_read_from_its_log() {
        let line = "[1] 2027/01/01 [INF] Listening for client connections on 127.0.0.1:4222";
        assert_eq!(nats_address(line), Some("127.0.0.1:4222".parse().unwrap()));
        assert_eq!(nats_address("[1] [INF] Server is ready"), None);
    }
}
