//! How cost grows: with drivers, with kinds, with operations in flight, with the size of the catalog.

use crate::{
    house::{Drivers, House},
    how::{How, HowMuch},
    load::Path,
    plot::{Chart, Line, svg},
    report::{Report, count, figure, markdown, median},
    site::Carrier,
    way::{MACHINES, OF_A_KIND},
};

const IN_FLIGHT: usize = 64;
const PATHS: [(&str, Path); 2] = [("brokered", Path::Unary), ("submit", Path::Submit)];

/// Something that grows.
struct Growth {
    title: &'static str,
    /// What is counted.
    what: &'static str,
    points: &'static [u64],
    /// The broker and its drivers, with so many of what grows.
    house: fn(u64) -> anyhow::Result<House>,
    /// How many kinds and, at least, machines are asked for, and how many operations are in flight.
    kinds: fn(u64) -> u64,
    machines: fn(u64) -> u64,
    in_flight: fn(u64) -> usize,
}

const GROWTHS: [Growth; 5] = [
    Growth {
        title: "Kinds, each with a driver",
        what: "kinds",
        points: &[1, 10, 100, 1_000, 10_000],
        house: |kinds| {
            let drivers = Drivers::of_own_kinds(kinds).flag("connections", 4);
            House::empty(Carrier::Plain, kinds)?.with(&drivers)
        },
        kinds: |kinds| kinds,
        machines: |_| MACHINES,
        in_flight: |_| IN_FLIGHT,
    },
    Growth {
        title: "Drivers that share one kind",
        what: "drivers",
        points: &[1, 10, 100, 1_000, 10_000],
        house: |drivers| {
            let drivers = Drivers { count: drivers, kinds: 1, flags: Vec::new() };
            House::empty(Carrier::Plain, 1)?.with(&drivers.flag("connections", 4))
        },
        kinds: |_| 1,
        machines: |drivers| MACHINES.max(OF_A_KIND * drivers),
        in_flight: |_| IN_FLIGHT,
    },
    Growth {
        title: "Operations in flight",
        what: "in flight",
        points: &[1, 10, 100, 1_000, 10_000, 100_000],
        house: |_| {
            let driver = Drivers::of_own_kinds(1).flag("capacity", 100_000);
            House::empty(Carrier::Plain, 1)?.with(&driver)
        },
        kinds: |_| 1,
        machines: |_| MACHINES,
        in_flight: |in_flight| usize::try_from(in_flight).unwrap_or(usize::MAX),
    },
    Growth {
        title: "Machines of one driver",
        what: "machines",
        points: &[1_000, 10_000, 100_000, 1_000_000],
        house: |_| House::empty(Carrier::Plain, 1)?.with(&Drivers::of_own_kinds(1)),
        kinds: |_| 1,
        machines: |machines| machines,
        in_flight: |_| IN_FLIGHT,
    },
    Growth {
        title: "Classes in the catalog",
        what: "classes",
        points: &[1, 10, 100, 1_000, 10_000, 100_000],
        house: |classes| House::empty(Carrier::Plain, classes)?.with(&Drivers::of_own_kinds(1)),
        kinds: |_| 1,
        machines: |_| MACHINES,
        in_flight: |_| IN_FLIGHT,
    },
];

pub(crate) fn run(much: &HowMuch) -> anyhow::Result<()> {
    let how = &much.how;
    let mut report = Report::default();
    let mut charts = Vec::new();
    for growth in GROWTHS.iter().filter(|growth| much.wants(growth.title)) {
        let points = if how.quick { &growth.points[..3] } else { growth.points };
        // In the colours that they have beside the other paths.
        let line = |colour: usize| Line {
            name: PATHS[colour - 1].0.to_owned(),
            colour,
            points: Vec::new(),
        };
        let mut lines = [1, 2].map(line);
        for point in points {
            eprintln!("{}: {point}", growth.title);
            let house = (growth.house)(*point)?;
            let measured = measure(growth, *point, &house, how)?;
            for (line, rounds) in lines.iter_mut().zip(measured) {
                let name = format!("{}, ops/s, {} {}", line.name, count(*point), growth.what);
                report.add(&name, (growth.in_flight)(*point), &rounds);
                line.points.push((*point as f64, median(&rounds)));
            }
        }
        let (title, x) = (growth.title, growth.what);
        charts.push(Chart { title, x, unit: "operations per second", lines: lines.to_vec() });
    }
    how.draw(|| svg(&charts))?;
    how.output.tell("growth", &report, &charts.iter().map(table).collect::<Vec<_>>())
}

/// Operations per second of each path, round by round.
fn measure(
    growth: &Growth,
    point: u64,
    house: &House,
    how: &How,
) -> anyhow::Result<[Vec<f64>; PATHS.len()]> {
    let in_flight = (growth.in_flight)(point);
    let mut rates = [const { Vec::new() }; PATHS.len()];
    for _ in 0..how.rounds() {
        for (rates, (name, path)) in rates.iter_mut().zip(PATHS) {
            let way = house.way(name, path).kinds((growth.kinds)(point));
            let way = way.machines((growth.machines)(point));
            let way = way.connections(connections(in_flight));
            rates.push(way.measure(in_flight, how.timing().with(in_flight))?.rate());
        }
    }
    Ok(rates)
}

/// One connection holds so many calls; callers with more have several.
fn connections(in_flight: usize) -> usize {
    in_flight.div_ceil(10_000)
}

fn table(chart: &Chart) -> String {
    let mut rows = vec![[chart.x.to_owned(), PATHS[0].0.to_owned(), PATHS[1].0.to_owned()]];
    for (first, second) in chart.lines[0].points.iter().zip(&chart.lines[1].points) {
        rows.push([count(first.0 as u64), figure(first.1), figure(second.1)]);
    }
    format!("{}, operations per second\n\n{}", chart.title, markdown(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_has_more_calls_than_the_broker_takes() {
        assert_eq!([1, 10_000, 10_001, 100_000].map(connections), [1, 1, 2, 10]);
    }

    #[test]
    fn a_table_has_a_row_for_each_point() {
        let line = |name: &str, rate| Line {
            name: name.to_owned(),
            colour: 0,
            points: vec![(1000.0, rate)],
        };
        let lines = vec![line("brokered", 20_000.0), line("submit", 50_000.0)];
        let told = table(&Chart { title: "Kinds", x: "kinds", unit: "", lines });
        assert!(told.ends_with("| 1,000 | 20,000   | 50,000 |\n"), "{told}");
    }
}
