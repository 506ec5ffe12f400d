//! One way from a caller to whoever executes, and how it is measured.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::ensure;

use crate::{
    load::{self, Measured, Path},
    process::this_program,
    site::{BrokerUnderTest, Site, Who, ensure_audited},
};

/// How long a load works and measures, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) warm_up: f64,
    pub(crate) seconds: f64,
}

impl Timing {
    /// Long enough for medians of several rounds, or only to see that everything works.
    pub(crate) fn new(quick: bool) -> Self {
        if quick {
            Self { warm_up: 0.1, seconds: 0.2 }
        } else {
            Self { warm_up: 0.4, seconds: 1.0 }
        }
    }

    /// Five times as long, up to a bound.
    fn longer(self) -> anyhow::Result<Self> {
        let longer = Self { warm_up: self.warm_up * 5.0, seconds: self.seconds * 5.0 };
        ensure!(longer.seconds <= LONGEST, "no operation ended in {} s", self.seconds);
        Ok(longer)
    }

    /// Longer where one wave of all that is in flight takes longer.
    pub(crate) fn with(self, in_flight: usize) -> Self {
        // At a rate that any machine reaches, with room for a few waves.
        let wave = in_flight as f64 / 10_000.0;
        Self { warm_up: self.warm_up.max(wave), seconds: self.seconds.max(2.0 * wave) }
    }
}

/// Who has not answered by then does not work.
const LONGEST: f64 = 60.0;

/// As many machines with one driver as with a hundred: what is compared is ways, and each machine is some memory.
pub(crate) const MACHINES: u64 = 1024;
/// With more kinds there are more, so that all are asked for.
pub(crate) const OF_A_KIND: u64 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) path: Path,
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Vec<String>,
    pub(crate) connections: usize,
    pub(crate) first_kind: u64,
    pub(crate) kinds: u64,
    /// At least, for a few of each kind.
    machines: u64,
    /// Those whose CPU time counts, beside the load's own.
    pub(crate) processes: Vec<u32>,
    /// What the broker says, if there is one.
    log: Option<PathBuf>,
}

impl Way {
    /// Straight to a server.
    pub(crate) fn new(name: &'static str, path: Path, address: SocketAddr) -> Self {
        Self {
            name,
            path,
            address,
            credentials: Vec::new(),
            connections: 1,
            first_kind: 0,
            kinds: 1,
            machines: MACHINES,
            processes: Vec::new(),
            log: None,
        }
    }

    /// Through a broker.
    pub(crate) fn through(
        name: &'static str,
        path: Path,
        site: &Site,
        broker: &BrokerUnderTest,
    ) -> Self {
        let who = match path {
            Path::Class | Path::Secret => Who::Driver,
            _ => Who::Controller,
        };
        Self {
            credentials: site.credentials(broker.carrier, who),
            processes: vec![broker.process.id()],
            log: Some(broker.process.log().to_owned()),
            ..Self::new(name, path, broker.address)
        }
    }

    pub(crate) fn kinds(self, kinds: u64) -> Self {
        Self { kinds, ..self }
    }

    pub(crate) fn machines(self, machines: u64) -> Self {
        Self { machines, ..self }
    }

    pub(crate) fn first_kind(self, first_kind: u64) -> Self {
        Self { first_kind, ..self }
    }

    pub(crate) fn connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    pub(crate) fn with(mut self, processes: &[u32]) -> Self {
        self.processes.extend(processes);
        self
    }

    /// The load's own process, ready to start.
    pub(crate) fn load(
        &self,
        in_flight: usize,
        timing: Timing,
    ) -> anyhow::Result<std::process::Command> {
        let mut load = this_program()?;
        load.args(["load", &self.path.name()]);
        load.arg(format!("--address={}", self.address)).args(&self.credentials);
        for (flag, value) in [
            ("in-flight", in_flight as u64),
            ("connections", self.connections as u64),
            ("kinds", self.kinds),
            ("first-kind", self.first_kind),
            ("machines", self.machines.max(OF_A_KIND * self.kinds)),
        ] {
            load.arg(format!("--{flag}={value}"));
        }
        for (flag, value) in [("warm-up", timing.warm_up), ("seconds", timing.seconds)] {
            load.arg(format!("--{flag}={value}"));
        }
        let processes: Vec<String> = self.processes.iter().map(u32::to_string).collect();
        if !processes.is_empty() {
            load.arg(format!("--cpu-of={}", processes.join(",")));
        }
        Ok(load)
    }

    /// Measures once; for longer if that was not long enough for a single operation.
    pub(crate) fn measure(&self, in_flight: usize, timing: Timing) -> anyhow::Result<Measured> {
        let measured = load::result_of(&mut self.load(in_flight, timing)?)?;
        if let Some(log) = &self.log {
            ensure_audited(log)?;
        }
        if measured.operations > 0 {
            return Ok(measured);
        }
        let longer = timing.longer()?;
        eprintln!("  {}: no operation ended in {} s, again", self.name, timing.seconds);
        self.measure(in_flight, longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_of_many_in_flight_takes_longer() {
        let timing = Timing { warm_up: 0.5, seconds: 1.0 };
        let few = timing.with(64);
        assert_eq!((few.warm_up, few.seconds), (0.5, 1.0));
        let many = timing.with(100_000);
        assert_eq!((many.warm_up, many.seconds), (10.0, 20.0));
    }

    #[test]
    fn what_answers_nobody_is_not_waited_for_without_end() {
        let mut timing = Timing { warm_up: 0.5, seconds: 1.0 };
        let times = std::iter::from_fn(|| {
            timing = timing.longer().ok()?;
            Some(timing.seconds)
        });
        assert_eq!(times.collect::<Vec<_>>(), [5.0, 25.0]);
    }
}
