//! Many drivers: what each costs the broker, and what their number does to the others.

use std::time::{Duration, Instant};

use crate::{
    house::{Drivers, House},
    how::HowMuch,
    load::Path,
    process::{cpu_time, memory},
    report::{
        Report, count, figure, markdown, median,
        targets::{
            AGAIN_MTLS, AGAIN_OWN, AGAIN_SHARED, Bench, DISPATCH, MEMORY_MTLS, MEMORY_OWN,
            MEMORY_SHARED,
        },
    },
    site::Carrier,
    way::Timing,
};

/// The fewest and the most are those that targets speak of.
const SIZES: [u64; 3] = [100, 1_000, 10_000];
const IN_FLIGHT: [usize; 2] = [1, 64];
/// The broker's default.
const PING_EVERY: Duration = Duration::from_secs(4);
/// How many rounds of heartbeats are looked at.
const HEARTBEATS: u32 = 3;

/// How drivers are connected.
struct Link {
    name: &'static str,
    carrier: Carrier,
    /// So many drivers share a connection.
    share: Option<u64>,
    memory: &'static str,
    again: &'static str,
}

const LINKS: [Link; 3] = [
    Link {
        name: "shared",
        carrier: Carrier::Plain,
        share: Some(1000),
        memory: MEMORY_SHARED,
        again: AGAIN_SHARED,
    },
    Link {
        name: "own",
        carrier: Carrier::Plain,
        share: None,
        memory: MEMORY_OWN,
        again: AGAIN_OWN,
    },
    Link {
        name: "own mTLS",
        carrier: Carrier::Mtls,
        share: None,
        memory: MEMORY_MTLS,
        again: AGAIN_MTLS,
    },
];

/// What was found of so many drivers.
struct Crowd {
    drivers: u64,
    /// KiB of the broker for each.
    memory: f64,
    /// Microseconds of CPU time of the broker for each driver in a round of heartbeats.
    heartbeat: f64,
    /// Seconds.
    registered: f64,
    /// From the broker's death until the last of them is back.
    again: f64,
    /// The same when they have worked: what they did in the last minute, they tell once more.
    after_work: f64,
    /// Microseconds, of each round, with each number in flight.
    p50: [Vec<f64>; IN_FLIGHT.len()],
}

pub(crate) fn run(much: &HowMuch) -> anyhow::Result<()> {
    let how = &much.how;
    how.draws_nothing()?;
    let sizes = if how.quick { &SIZES[..2] } else { &SIZES };
    let mut report = Report::default();
    let mut rows = vec![HEAD.map(str::to_owned)];
    for link in LINKS.iter().filter(|link| much.wants(link.name)) {
        let mut crowds = Vec::new();
        for drivers in sizes {
            eprintln!("{drivers} drivers, {} connections", link.name);
            let crowd = measure(link, *drivers, how.rounds(), how.timing())?;
            rows.push(row(link, &crowd));
            crowds.push(crowd);
        }
        tell(link, &crowds, &mut report);
    }
    how.output.tell("scale", &report, &[report.table(), markdown(&rows)])?;
    if much.is_whole() { report.complete(Bench::Scale) } else { Ok(()) }
}

fn measure(link: &Link, drivers: u64, rounds: usize, timing: Timing) -> anyhow::Result<Crowd> {
    let mut house = House::empty(link.carrier, drivers)?;
    let broker = house.broker.process.id();
    let empty = memory(broker)?;
    let mut all = Drivers::of_own_kinds(drivers);
    if let Some(share) = link.share {
        // At least the four of the other benchmarks.
        all = all.flag("connections", (drivers / share).max(4));
    }
    let began = Instant::now();
    house.enter(&all)?;
    house.broker.until_registered(&house.site, drivers)?;
    let registered = began.elapsed().as_secs_f64();
    let heartbeat = heartbeat(broker, drivers)?;
    let memory = (memory(broker)? as f64 - empty as f64) / drivers as f64;
    let (house, again) = restarted(house, drivers)?;
    let way = house.way("to a random driver", Path::Unary).kinds(drivers);
    let mut p50 = [const { Vec::new() }; IN_FLIGHT.len()];
    for _ in 0..rounds {
        for (rounds, in_flight) in p50.iter_mut().zip(IN_FLIGHT) {
            rounds.push(way.measure(in_flight, timing)?.p50);
        }
    }
    let (_, after_work) = restarted(house, drivers)?;
    Ok(Crowd { drivers, memory, heartbeat, registered, again, after_work, p50 })
}

/// Kills the broker and starts it anew. Says how long it took until all drivers were back.
fn restarted(house: House, drivers: u64) -> anyhow::Result<(House, f64)> {
    let began = Instant::now();
    let house = house.restart_broker()?;
    house.broker.until_registered(&house.site, drivers)?;
    Ok((house, began.elapsed().as_secs_f64()))
}

/// What the broker needs for a driver that does nothing but answer its pings.
fn heartbeat(broker: u32, drivers: u64) -> anyhow::Result<f64> {
    let before = cpu_time(broker)?;
    wait(PING_EVERY * HEARTBEATS);
    let used = cpu_time(broker)? - before;
    Ok(used.as_secs_f64() * 1e6 / (drivers as f64 * f64::from(HEARTBEATS)))
}

#[expect(clippy::disallowed_methods, reason = "the time is what is measured, in no runtime")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

fn tell(link: &Link, crowds: &[Crowd], report: &mut Report) {
    let (Some(few), Some(many)) = (crowds.first(), crowds.last()) else { return };
    // Targets speak of the largest number; in a quick run there is none of it.
    if many.drivers == SIZES[SIZES.len() - 1] {
        report.add(link.memory, None, &[many.memory]);
        report.add(link.again, None, &[many.again]);
        report.add(&format!("{}, after work", link.again), None, &[many.after_work]);
        for ((few, many), in_flight) in few.p50.iter().zip(&many.p50).zip(IN_FLIGHT) {
            let few = median(few);
            let ratios: Vec<f64> = many.iter().map(|many| many / few).collect();
            let name = match link.share {
                Some(_) => DISPATCH.to_owned(),
                None => format!("{DISPATCH}, {} connections", link.name),
            };
            report.add(&name, in_flight, &ratios);
        }
    }
    let heartbeat =
        format!("broker CPU µs per heartbeat of one of {}, {}", count(many.drivers), link.name);
    report.add(&heartbeat, None, &[many.heartbeat]);
}

const HEAD: [&str; 9] = [
    "connections",
    "drivers",
    "KiB per driver",
    "registered in s",
    "back after kill -9 in s",
    "after work in s",
    "CPU ms per heartbeat round",
    "p50 µs (1)",
    "p50 µs (64)",
];

fn row(link: &Link, crowd: &Crowd) -> [String; 9] {
    let [one, many] = crowd.p50.each_ref().map(|rounds| figure(median(rounds)));
    let round = crowd.heartbeat * crowd.drivers as f64 / 1e3;
    [
        link.name.to_owned(),
        count(crowd.drivers),
        figure(crowd.memory),
        figure(crowd.registered),
        figure(crowd.again),
        figure(crowd.after_work),
        figure(round),
        one,
        many,
    ]
}
