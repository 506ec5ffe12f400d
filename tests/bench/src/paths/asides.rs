//! What is measured besides: lists, look-ups, a slow driver among fast ones, a cold start.

use std::process::Stdio;

use anyhow::Context as _;

use super::peers::Peers;
use crate::{
    report::Report,
    site::{BrokerUnderTest, Carrier, Site},
    way::Timing,
};

pub(super) const NAME: &str = "lists, look-ups, a slow driver, a cold start";

const IN_FLIGHT: usize = 64;

/// One value for each round.
#[derive(Debug, Default)]
pub(super) struct Asides {
    list: Vec<f64>,
    list_ratio: Vec<f64>,
    classes: Vec<f64>,
    secrets: Vec<f64>,
    beside_slow: Vec<f64>,
    cold_start: Vec<f64>,
}

impl Asides {
    pub(super) fn measure(&mut self, peers: &Peers, timing: Timing) -> anyhow::Result<()> {
        eprintln!("  {NAME}");
        let [direct, brokered] = peers.lists().map(|way| way.measure(1, timing));
        let (direct, brokered) = (direct?, brokered?);
        self.list.push(brokered.p50 / 1e3);
        self.list_ratio.push(brokered.p50 / direct.p50);
        let [classes, secrets] = peers.lookups().map(|way| way.measure(IN_FLIGHT, timing));
        self.classes.push(classes?.rate());
        self.secrets.push(secrets?.rate());
        self.beside_slow.push(beside_slow(peers, timing)?);
        self.cold_start.push(cold_start()?);
        Ok(())
    }

    pub(super) fn tell(&self, report: &mut Report) {
        report.add("list of 10,000 machines, p50 ms", 1, &self.list);
        report.add("list of 10,000 machines, brokered ÷ direct, p50", 1, &self.list_ratio);
        report.add("classes asked for by a driver, per second", IN_FLIGHT, &self.classes);
        report.add("secrets asked for by a driver, per second", IN_FLIGHT, &self.secrets);
        let slow = "p99 of 100 fast drivers, with a slow one ÷ without";
        report.add(slow, IN_FLIGHT, &self.beside_slow);
        report.add("cold start to ready, ms", None, &self.cold_start);
    }
}

/// How much a driver that takes a second for everything, with more work than it can do, slows the others.
fn beside_slow(peers: &Peers, timing: Timing) -> anyhow::Result<f64> {
    let without = peers.fast().measure(IN_FLIGHT, timing)?;
    // Begins before those who are measured, and goes on a little longer.
    let longer = Timing { warm_up: 0.0, seconds: timing.warm_up + timing.seconds + 1.0 };
    let mut busy = peers.slow().load(256, longer)?;
    let busy = busy.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let with = peers.fast().measure(IN_FLIGHT, timing)?;
    let busy = busy.wait_with_output()?;
    anyhow::ensure!(
        busy.status.success(),
        "the slow driver's load failed: {}",
        String::from_utf8_lossy(&busy.stderr)
    );
    Ok(with.p99 / without.p99)
}

/// Milliseconds from the start of the process until it listens, with a catalog of a hundred classes.
fn cold_start() -> anyhow::Result<f64> {
    let site = Site::new(100)?;
    let broker = BrokerUnderTest::start(&site, "broker", Carrier::Plain).context("a cold start")?;
    Ok(broker.started_in.as_secs_f64() * 1e3)
}
