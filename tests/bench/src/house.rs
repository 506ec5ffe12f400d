//! A broker and its drivers.

use crate::{
    load::Path,
    process::Process,
    site::{BrokerUnderTest, Carrier, Site, Who},
    way::Way,
};

#[derive(Debug)]
pub(crate) struct House {
    pub(crate) site: Site,
    pub(crate) broker: BrokerUnderTest,
    drivers: Vec<Process>,
}

/// Drivers of one process.
#[derive(Clone, Debug)]
pub(crate) struct Drivers {
    pub(crate) count: u64,
    /// Driver number N serves kind number N modulo this.
    pub(crate) kinds: u64,
    /// Further flags of the role.
    pub(crate) flags: Vec<String>,
}

impl Drivers {
    /// So many drivers, each of a kind of its own.
    pub(crate) fn of_own_kinds(count: u64) -> Self {
        Self { count, kinds: count, flags: Vec::new() }
    }

    pub(crate) fn flag(mut self, name: &str, value: u64) -> Self {
        self.flags.push(format!("--{name}={value}"));
        self
    }
}

impl House {
    /// A broker with a class of each of so many kinds, and nobody there.
    pub(crate) fn empty(carrier: Carrier, kinds: u64) -> anyhow::Result<Self> {
        let site = Site::new(kinds)?;
        let broker = BrokerUnderTest::start(&site, "broker", carrier)?;
        Ok(Self::of(site, broker))
    }

    pub(crate) fn of(site: Site, broker: BrokerUnderTest) -> Self {
        Self { site, broker, drivers: Vec::new() }
    }

    /// The same with a process of drivers that have all registered.
    pub(crate) fn with(mut self, drivers: &Drivers) -> anyhow::Result<Self> {
        self.enter(drivers)?;
        self.broker.until_registered(&self.site, drivers.count)?;
        Ok(self)
    }

    /// Starts a process of drivers.
    pub(crate) fn enter(&mut self, drivers: &Drivers) -> anyhow::Result<()> {
        let mut role = self.site.role("driver", &self.broker, Who::Driver)?;
        role.arg(format!("--drivers={}", drivers.count));
        role.arg(format!("--kinds={}", drivers.kinds)).args(&drivers.flags);
        let name = format!("drivers-{}", self.drivers.len());
        self.drivers.push(Process::start(&name, &mut role, self.site.folder())?);
        Ok(())
    }

    /// A way to its drivers.
    pub(crate) fn way(&self, name: &'static str, path: Path) -> Way {
        let drivers: Vec<u32> = self.drivers.iter().map(Process::id).collect();
        Way::through(name, path, &self.site, &self.broker).with(&drivers)
    }

    /// Kills the broker, and starts it again where it was.
    pub(crate) fn restart_broker(self) -> anyhow::Result<Self> {
        let Self { site, broker, drivers } = self;
        let (carrier, address) = (broker.carrier, broker.address);
        drop(broker);
        let broker = BrokerUnderTest::start_at(&site, "broker", carrier, address)?;
        Ok(Self { site, broker, drivers })
    }

    /// All leave, and the broker ends in good order.
    pub(crate) fn close(self) -> anyhow::Result<Site> {
        // First, so that the broker has nothing to wait for.
        drop(self.drivers);
        self.broker.process.stop()?;
        Ok(self.site)
    }
}
