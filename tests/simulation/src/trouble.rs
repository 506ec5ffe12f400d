//! Makes things go wrong, one after the other and several at once.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    hosts::BROKER,
    network::{Flow, Ways},
    scenario::Trouble,
    world::{World, controller},
};

/// What ends, and when.
struct Relief {
    at: Instant,
    what: Cure,
}

enum Cure {
    Link(String),
    Speed(String),
    Reset(String),
    StartDriver(String),
    StartBroker,
}

impl World {
    /// Until the given time. What went wrong by then stays wrong, but for the processes: those are
    /// started again.
    pub(crate) async fn trouble(&mut self, until: Instant) {
        let mut reliefs: Vec<Relief> = Vec::new();
        let mut next = Instant::now();
        while Instant::now() < until {
            next += self.chance.millis(200..12_000);
            loop {
                reliefs.sort_by_key(|relief| relief.at);
                match reliefs.first() {
                    Some(relief) if relief.at <= next => {
                        sleep_until(relief.at).await;
                        let relief = reliefs.remove(0);
                        self.relieve(relief.what);
                    }
                    _ => break,
                }
            }
            sleep_until(next).await;
            self.leaving.retain(|driver| !driver.has_ended());
            let trouble = *self.chance.pick(&self.scenario.troubles);
            self.cause(trouble, &mut reliefs).await;
        }
        for relief in reliefs {
            if matches!(relief.what, Cure::StartDriver(_)) {
                self.relieve(relief.what);
            }
        }
    }

    async fn cause(&mut self, trouble: Trouble, reliefs: &mut Vec<Relief>) {
        let lasts = self.chance.millis(100..60_000);
        let mut cure = |after: Duration, what| {
            reliefs.push(Relief { at: Instant::now() + after, what });
        };
        match trouble {
            Trouble::Loss | Trouble::Stall => {
                let flow = if trouble == Trouble::Loss { Flow::Lost } else { Flow::Held };
                let ways = *self.chance.pick(&[
                    Ways { there: flow, back: flow },
                    Ways { there: flow, back: Flow::Open },
                    Ways { there: Flow::Open, back: flow },
                ]);
                let host = self.someone();
                tracing::info!(host, ?ways, ?lasts, "link fails");
                self.network.set_ways(&host, BROKER, ways);
                cure(lasts, Cure::Link(host));
            }
            Trouble::Reset => {
                let host = self.someone();
                tracing::info!(host, "connections break");
                self.network.reset(&host, BROKER);
            }
            Trouble::Storm => {
                for driver in &self.drivers {
                    for _ in 0..self.chance.among(2..15) {
                        let after = self.chance.millis(0..10_000);
                        cure(after, Cure::Reset(driver.name.clone()));
                    }
                }
            }
            Trouble::Slow => {
                let host = self.someone();
                let latency = self.chance.among(100..1_500);
                tracing::info!(host, latency, ?lasts, "link is slow");
                self.network.set_latency(&host, BROKER, Some(latency..latency * 2));
                cure(lasts, Cure::Speed(host));
            }
            Trouble::DriverKill => {
                if let Some(driver) = self.some_driver() {
                    tracing::info!(driver.name, "driver killed");
                    cure(self.chance.millis(0..8_000), Cure::StartDriver(driver.name.clone()));
                    driver.kill();
                }
            }
            Trouble::DriverRestart => {
                if let Some(driver) = self.some_driver() {
                    tracing::info!(driver.name, "driver restarts");
                    driver.drain();
                    // As a supervisor that is in a hurry does: the old one may still be at it.
                    let after = self.chance.millis(0..20_000);
                    cure(after, Cure::StartDriver(driver.name.clone()));
                    self.leaving.push(driver);
                }
            }
            Trouble::DriverReplace => {
                if let Some(driver) = self.some_driver() {
                    tracing::info!(driver.name, "driver is replaced");
                    let (family, _) = driver.name.split_once('.').unwrap_or((&driver.name, ""));
                    let name = format!("{family}.{}", self.started);
                    self.start_driver(&name);
                    sleep(self.chance.millis(0..5_000)).await;
                    driver.drain();
                    self.leaving.push(driver);
                }
            }
            Trouble::BrokerKill => {
                if let Some(broker) = self.broker.take() {
                    tracing::info!("broker killed");
                    broker.kill(&mut self.tasks);
                    cure(self.chance.millis(0..10_000), Cure::StartBroker);
                }
            }
            Trouble::BrokerRestart => {
                if let Some(broker) = self.broker.take() {
                    tracing::info!("broker restarts");
                    broker.stop(self.chance.millis(0..10_000)).await;
                    cure(self.chance.millis(0..3_000), Cure::StartBroker);
                }
            }
        }
    }

    fn relieve(&mut self, cure: Cure) {
        match cure {
            Cure::Link(host) => self.network.set_ways(&host, BROKER, Ways::OPEN),
            Cure::Speed(host) => self.network.set_latency(&host, BROKER, None),
            Cure::Reset(host) => self.network.reset(&host, BROKER),
            Cure::StartDriver(name) => {
                // An instance has one process at a time: an older one that lingers is killed.
                for lingering in self.leaving.extract_if(.., |driver| driver.name == name) {
                    lingering.kill();
                }
                tracing::info!(name, "driver starts");
                self.start_driver(&name);
            }
            Cure::StartBroker => {
                tracing::info!("broker starts");
                self.start_broker();
            }
        }
    }

    /// A host that dials the broker; mostly a driver.
    fn someone(&self) -> String {
        let drivers: Vec<_> = self.drivers.iter().map(|driver| driver.name.clone()).collect();
        if drivers.is_empty() || self.chance.percent(25) {
            return controller(self.chance.among(0..self.scenario.controllers));
        }
        self.chance.pick(&drivers).clone()
    }

    fn some_driver(&mut self) -> Option<crate::hosts::DriverHost> {
        match self.drivers.len() {
            0 => None,
            count => Some(self.drivers.remove(self.chance.among(0..count))),
        }
    }
}
