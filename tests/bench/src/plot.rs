//! Charts as SVG: a few panels side by side, both axes logarithmic. Lines of one name are told once.

use std::fmt::Write as _;

const WIDTH: f64 = 330.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
const LEGEND: f64 = 30.0;
/// Told apart with any eyes (Okabe and Ito).
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444"];

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Which of the colours: one name has the same one in every picture.
    pub(crate) colour: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// One picture of all charts, with a common legend.
pub(crate) fn svg(charts: &[Chart]) -> String {
    let (width, height) = (WIDTH * charts.len() as f64, HEIGHT + LEGEND);
    let mut out = String::new();
    put(
        &mut out,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">"
        ),
    );
    // Readable on a dark page as well.
    put(&mut out, format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>"));
    for (place, chart) in charts.iter().enumerate() {
        put(&mut out, format_args!("<g transform=\"translate({},0)\">", place as f64 * WIDTH));
        panel(&mut out, chart);
        put(&mut out, format_args!("</g>"));
    }
    let mut told: Vec<&Line> = Vec::new();
    for line in charts.iter().flat_map(|chart| &chart.lines) {
        if !told.iter().any(|other| other.name == line.name) {
            told.push(line);
        }
    }
    let mut x = LEFT;
    for line in told {
        let (y, name, colour) = (HEIGHT + 12.0, &line.name, colour(line.colour));
        put(
            &mut out,
            format_args!(
                "<path d=\"M{x} {y}h18\" stroke=\"{colour}\" stroke-width=\"2.5\"/>\
                 <text x=\"{}\" y=\"{}\">{name}</text>",
                x + 23.0,
                y + 4.0
            ),
        );
        x += 45.0 + 6.5 * name.chars().count() as f64;
    }
    out + "</svg>\n"
}

fn panel(out: &mut String, chart: &Chart) {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let (Some(across), Some(up)) =
        (Axis::over(points().map(|p| p.0)), Axis::over(points().map(|p| p.1)))
    else {
        return;
    };
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let x = |value: f64| LEFT + across.part(value) * (right - LEFT);
    let y = |value: f64| bottom - up.part(value) * (bottom - TOP);
    put(
        out,
        format_args!("<text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">{}</text>", chart.title),
    );
    for mark in across.marks() {
        let at = x(mark);
        put(
            out,
            format_args!(
                "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                short(mark)
            ),
        );
    }
    for mark in up.marks() {
        let at = y(mark);
        put(
            out,
            format_args!(
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                short(mark)
            ),
        );
    }
    let (middle_x, middle_y) = (f64::midpoint(LEFT, right), f64::midpoint(TOP, bottom));
    put(
        out,
        format_args!(
            "<text x=\"{middle_x}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(14,{middle_y}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            bottom + 34.0,
            chart.x,
            chart.unit
        ),
    );
    for line in &chart.lines {
        let colour = colour(line.colour);
        let mut path = String::new();
        for (at, (across, up)) in line.points.iter().enumerate() {
            let (x, y) = (x(*across), y(*up));
            write!(path, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' }).expect("room");
            put(
                out,
                format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{colour}\"/>"),
            );
        }
        put(
            out,
            format_args!(
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>"
            ),
        );
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string has room");
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// A logarithmic axis.
#[derive(Debug, PartialEq)]
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    /// From a mark below all values to one above. `None` if there is nothing to be shown.
    fn over(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.filter(|value| *value > 0.0 && value.is_finite()).collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        let from = scale(least, -1).filter(|mark| *mark <= least * 1.000_001).last()?;
        let to = scale(least, -1).find(|mark| *mark >= most * 0.999_999 && *mark > from)?;
        Some(Self { from, to })
    }

    /// Where a value lies, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        (value / self.from).ln() / (self.to / self.from).ln()
    }

    /// What is written beside it: all of 1, 2 and 5 on a short one, and powers of ten on a long one.
    fn marks(&self) -> Vec<f64> {
        let decades = (self.to / self.from).log10();
        let between = |mark: &f64| *mark >= self.from * 0.999 && *mark <= self.to * 1.001;
        let marks = scale(self.from, -1).take_while(|mark| *mark <= self.to * 1.001);
        let power = |mark: f64| (mark.log10() - mark.log10().round()).abs() < 1e-6;
        marks.filter(between).filter(|mark| decades < 2.5 || power(*mark)).collect()
    }
}

/// 1, 2, 5, 10, 20, … without end, from a power of ten that is `below` decades from that of `value`.
fn scale(value: f64, below: i32) -> impl Iterator<Item = f64> {
    let first = value.log10().floor() as i32 + below;
    (first..).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power))).take(300)
}

/// A mark in few letters.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value if value >= 1.0 => format!("{value:.0}"),
        value => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_spans_all_values_and_has_marks_that_one_would_choose() {
        let axis = Axis::over([1.0, 16.0, 64.0, 256.0].into_iter()).unwrap();
        assert_eq!(axis, Axis { from: 1.0, to: 500.0 });
        assert_eq!(axis.marks(), [1.0, 10.0, 100.0]);
        let axis = Axis::over([300.0, 700.0].into_iter()).unwrap();
        assert_eq!(axis.marks(), [200.0, 500.0, 1000.0]);
        assert_eq!(Axis::over([f64::NAN, 0.0].into_iter()), None);
    }

    #[test]
    fn one_value_has_an_axis_as_well() {
        let axis = Axis::over([5.0].into_iter()).unwrap();
        assert_eq!(axis, Axis { from: 5.0, to: 10.0 });
        assert_eq!(axis.part(5.0), 0.0);
        assert_eq!(axis.part(10.0), 1.0);
    }

    #[test]
    fn marks_are_short() {
        assert_eq!([0.5, 20.0, 1e3, 5e4, 2e6].map(short), ["0.5", "20", "1k", "50k", "2M"]);
    }

    #[test]
    fn a_picture_has_all_lines_and_names_each_once() {
        let points = vec![(1.0, 2.0), (4.0, 9.0)];
        let line = |name: &str| Line { name: name.to_owned(), colour: 0, points: points.clone() };
        let lines = vec![line("direct"), line("brokered")];
        let chart = Chart { title: "Throughput", x: "in flight", unit: "ops/s", lines };
        let picture = svg(&[chart.clone(), chart]);
        assert_eq!(picture.matches("stroke-width=\"1.8\"").count(), 4);
        assert_eq!(picture.matches(">direct<").count(), 1);
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    }
}
