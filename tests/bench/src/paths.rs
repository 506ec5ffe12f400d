//! The ways of an operation side by side: through the broker, and what a user would pick instead.
//!
//! All of them are there at the same time and take turns, so that whatever else the machine does meets
//! them all; what counts are ratios within one round.

mod asides;
mod peers;
mod rounds;

use self::{peers::Peers, rounds::Rounds};
use crate::{
    how::HowMuch,
    load::Measured,
    plot::{Chart, Line, svg},
    report::{
        Report, figure, markdown,
        targets::{
            BROKERED, BROKERED_CPU, BROKERED_OWN, BROKERED_P50, BROKERED_P99, BROKERED_SHARED,
            Bench, MTLS, SUBMIT, SUBMIT_NATS, SUBMIT_P50, SUBMIT_SHARED,
        },
    },
};

const IN_FLIGHT: [usize; 4] = [1, 16, 64, 256];

pub(crate) fn run(much: &HowMuch) -> anyhow::Result<()> {
    let how = &much.how;
    let timing = how.timing();
    let peers = Peers::start()?;
    let mut rounds = Rounds::default();
    let mut asides = asides::Asides::default();
    for round in 1..=how.rounds() {
        eprintln!("round {round}");
        for in_flight in IN_FLIGHT {
            for way in peers.one_driver().iter().filter(|way| much.wants(way.name)) {
                rounds.measure(way, in_flight, timing)?;
            }
        }
        for way in peers.many_drivers().iter().filter(|way| much.wants(way.name)) {
            rounds.measure(way, 64, timing)?;
        }
        if much.wants(asides::NAME) {
            asides.measure(&peers, timing)?;
        }
    }
    let mut report = ratios(&rounds);
    if much.wants(asides::NAME) {
        asides.tell(&mut report);
    }
    how.draw(|| plot(&rounds))?;
    let tables = [report.table(), table(&rounds)];
    absolute(&rounds, &mut report);
    how.output.tell("paths", &report, &tables)?;
    if much.has_all_parts() { report.complete(Bench::Paths) } else { Ok(()) }
}

/// Of what was measured, if that is not all.
fn ratios(rounds: &Rounds) -> Report {
    let mut report = Report::default();
    let mut add = |name, in_flight, over: &str, under: &str, of: Figure| {
        let ratios = rounds.ratios(over, under, in_flight, of);
        if !ratios.is_empty() {
            report.add(name, in_flight, &ratios);
        }
    };
    let p50 = |measured: &Measured| measured.p50;
    let p99 = |measured: &Measured| measured.p99;
    add(BROKERED, 64, "brokered", "direct", Measured::rate);
    add(BROKERED_SHARED, 64, "brokered, 100 on 4", "direct, 4 connections", Measured::rate);
    add(BROKERED_OWN, 64, "brokered, 100 on 100", "direct, 64 connections", Measured::rate);
    add(BROKERED_CPU, 64, "brokered", "direct", Measured::cpu_per_operation);
    add(BROKERED_P50, 1, "brokered", "direct", p50);
    add(SUBMIT_P50, 1, "submit", "direct", p50);
    add(BROKERED_P99, 64, "brokered", "direct", p99);
    add(SUBMIT, 64, "submit", "direct", Measured::rate);
    add(SUBMIT, 256, "submit", "direct", Measured::rate);
    add(SUBMIT_SHARED, 64, "submit, 100 on 4", "direct, 4 connections", Measured::rate);
    add(SUBMIT_NATS, 64, "submit", "NATS", Measured::rate);
    add(SUBMIT_NATS, 256, "submit", "NATS", Measured::rate);
    add(MTLS, 64, "brokered, mTLS", "brokered", Measured::rate);
    add(
        "submit ÷ direct, CPU per operation of all processes",
        64,
        "submit",
        "direct",
        Measured::cpu_per_operation,
    );
    add("submit ÷ direct, p99", 64, "submit", "direct", p99);
    add("brokered ÷ NATS, ops/s, one driver", 64, "brokered", "NATS", Measured::rate);
    add("submit ÷ relay, ops/s, one driver", 64, "submit", "relay", Measured::rate);
    add("relay ÷ direct, p50", 1, "relay", "direct", p50);
    add("NATS ÷ direct, p50", 1, "NATS", "direct", p50);
    report
}

/// A figure of what a load took.
type Figure = fn(&Measured) -> f64;

const COLUMNS: [(&str, Figure); 4] = [
    ("ops/s", Measured::rate),
    ("p50 µs", |measured| measured.p50),
    ("p99 µs", |measured| measured.p99),
    ("CPU µs per operation", Measured::cpu_per_operation),
];

/// Every way by itself, for machines.
fn absolute(rounds: &Rounds, report: &mut Report) {
    for (way, in_flight) in rounds.ways() {
        for (what, of) in COLUMNS {
            report.add(&format!("{way}: {what}"), in_flight, &rounds.values(way, in_flight, of));
        }
    }
}

/// Every way by itself, for people: of this machine, at this time.
fn table(rounds: &Rounds) -> String {
    let mut rows = vec![
        ["path", "in flight", "ops/s", "p50 µs", "p99 µs", "CPU µs per operation"]
            .map(str::to_owned),
    ];
    for (way, in_flight) in rounds.ways() {
        let [rate, p50, p99, cpu] =
            COLUMNS.map(|(_, of)| figure(rounds.median(way, in_flight, of)));
        rows.push([way.to_owned(), in_flight.to_string(), rate, p50, p99, cpu]);
    }
    markdown(&rows)
}

fn plot(rounds: &Rounds) -> String {
    let ways = ["direct", "brokered", "submit", "NATS", "relay"];
    let lines = |of: Figure| {
        let line = |(colour, way): (usize, &&str)| {
            let at = |in_flight| (in_flight as f64, rounds.median(way, in_flight, of));
            Line { name: (*way).to_owned(), colour, points: IN_FLIGHT.map(at).to_vec() }
        };
        ways.iter().enumerate().map(line).collect()
    };
    let chart =
        |title, unit, of| Chart { title, x: "operations in flight", unit, lines: lines(of) };
    svg(&[
        chart("Throughput", "operations per second", Measured::rate),
        chart("Latency, median", "µs", |measured| measured.p50),
        chart("Latency, 99th percentile", "µs", |measured| measured.p99),
    ])
}
