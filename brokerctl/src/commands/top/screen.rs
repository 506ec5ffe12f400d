//! How `top` looks: a pure function from the model to the screen.

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Borders, Clear, Paragraph, Row, Table, TableState},
};

use super::model::{Model, Pane};
use crate::{
    age,
    commands::{age_of, drivers::DriverView, operations::OperationView, status::StatusView},
    table::printable,
};

const KEYS: &str = " q quit   tab other table   ↑↓ move   ? help";

const HELP: &str = "\
q, Esc, Ctrl-C   leave
Tab              the other table
Up, Down, j, k   move
PageUp, PageDown, Home, End   move far
?                this help

STATE    Ready: gets work. Suspect: silent or slow.
         Draining: finishes and leaves.
STUCK    an operation that needs a look:
         `brokerctl operations describe ID`";

/// Widths are those of 80 columns; what is left goes to the last one.
const DRIVER_WIDTHS: [Constraint; 8] = [
    Constraint::Fill(3),
    Constraint::Fill(3),
    Constraint::Length(8),
    Constraint::Length(9),
    Constraint::Length(7),
    Constraint::Length(6),
    Constraint::Length(6),
    Constraint::Fill(4),
];

const OPERATION_WIDTHS: [Constraint; 8] = [
    Constraint::Length(6),
    Constraint::Length(10),
    Constraint::Fill(3),
    Constraint::Fill(3),
    Constraint::Fill(2),
    Constraint::Length(8),
    Constraint::Length(6),
    Constraint::Fill(5),
];

pub(super) fn draw(model: &Model, frame: &mut Frame<'_>) {
    // Each table takes what it needs of its half, and what the other one leaves.
    let rows = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).saturating_add(3).max(4);
    let space = frame.area().height.saturating_sub(5);
    let half = (space / 2).max(rows(0));
    let drivers =
        rows(model.drivers.len()).min(space.saturating_sub(rows(model.operations.len())).max(half));
    let [header, top, bottom, marked, footer] = frame.area().layout(&Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(drivers),
        Constraint::Min(4),
        Constraint::Length(1),
        Constraint::Length(1),
    ]));
    frame.render_widget(Paragraph::new(head(model)), header);
    draw_drivers(model, frame, top);
    draw_operations(model, frame, bottom);
    frame.render_widget(Paragraph::new(detail(model)), marked);
    frame.render_widget(Paragraph::new(foot(model)), footer);
    if model.help {
        draw_help(frame);
    }
}

fn head(model: &Model) -> Vec<Line<'static>> {
    let paint = Paint(model.colour);
    let Some(status) = &model.status else {
        return vec![Line::from(format!("machine-broker at {}", printable(&model.address)))];
    };
    let uptime = status.started.and_then(|since| model.now.duration_since(since).ok());
    let first = format!(
        "machine-broker {} {} at {}, up {}",
        printable(&status.version),
        printable(&status.replica_id),
        printable(&model.address),
        age_of(uptime)
    );
    let second = match status.concerns.first() {
        None => Line::from(Span::styled("all is well", paint.colour(Color::Green))),
        Some(concern) => {
            let text = format!("{}: {}", status.verdict(), printable(&concern.what));
            Line::from(Span::styled(text, paint.colour(Color::Red).add_modifier(Modifier::BOLD)))
        }
    };
    vec![Line::from(first), second, counts(status)]
}

fn counts(status: &StatusView) -> Line<'static> {
    let drivers = status.drivers;
    let oldest = status.oldest_pending.map(|age| format!(", oldest {}", age::human(age)));
    Line::from(format!(
        "drivers: {} ready, {} suspect, {} draining   operations: {} running{}",
        drivers.ready,
        drivers.suspect,
        drivers.draining,
        status.operations_running,
        oldest.unwrap_or_default()
    ))
}

/// What the marked line has no room for.
fn detail(model: &Model) -> Line<'static> {
    let (called, more) = match (model.focus, model.marked(model.focus)) {
        (_, None) => return Line::default(),
        (Pane::Drivers, Some(at)) => {
            let driver = &model.drivers[at];
            (driver.called(), remark(driver))
        }
        (Pane::Operations, Some(at)) => {
            let OperationView { operation_id, verb, machine_name, stuck, .. } =
                &model.operations[at];
            (format!("{operation_id} {verb} {machine_name}"), stuck.as_str())
        }
    };
    let gap = if more.is_empty() { "" } else { ": " };
    Line::from(plain(&format!("> {called}{gap}{more}")))
}

fn foot(model: &Model) -> Line<'static> {
    match &model.lost {
        None if model.status.is_none() => Line::from(" connecting"),
        None => Line::from(KEYS),
        Some(why) => {
            let style = Paint(model.colour).colour(Color::Red).add_modifier(Modifier::BOLD);
            Line::from(Span::styled(
                format!(" connection lost, retrying: {}", printable(why)),
                style,
            ))
        }
    }
}

fn draw_drivers(model: &Model, frame: &mut Frame<'_>, area: Rect) {
    let header = ["INSTANCE", "KIND(S)", "STATE", "HEARD", "TRIP", "LOAD", "OLDEST", "REMARK"];
    let rows = model.drivers.iter().map(|driver| driver_row(driver, Paint(model.colour)));
    let title = format!(" Drivers ({}) ", model.drivers.len());
    draw_table(model, Pane::Drivers, title, header, DRIVER_WIDTHS, rows.collect(), frame, area);
}

fn driver_row(driver: &DriverView, paint: Paint) -> Row<'static> {
    let state = match driver.state {
        "Ready" => Color::Green,
        "Draining" => Color::Yellow,
        _ => Color::Red,
    };
    let instance = match driver.instance_id.as_str() {
        "" => &driver.session_id,
        instance => instance,
    };
    let queued = if driver.queued > 0 { format!("+{}", driver.queued) } else { String::new() };
    Row::new([
        plain(instance),
        plain(&driver.kinds()),
        Span::styled(driver.state, paint.colour(state)),
        plain(&driver.heard()),
        plain(&driver.trip()),
        plain(&(driver.load() + &queued)),
        plain(&age_of(driver.oldest_pending)),
        plain(remark(driver)),
    ])
}

/// Why it is as it is, or else what went wrong last.
fn remark(driver: &DriverView) -> &str {
    match driver.state_reason.as_str() {
        "" => &driver.last_error,
        reason => reason,
    }
}

fn draw_operations(model: &Model, frame: &mut Frame<'_>, area: Rect) {
    let header = ["AGE", "VERB", "MACHINE", "CLASS", "DRIVER", "DELIVERY", "LEFT", "STUCK"];
    let rows = model.operations.iter().map(|one| operation_row(one, Paint(model.colour)));
    let title = format!(" Running operations ({}) ", model.operations.len());
    let widths = OPERATION_WIDTHS;
    draw_table(model, Pane::Operations, title, header, widths, rows.collect(), frame, area);
}

fn operation_row(operation: &OperationView, paint: Paint) -> Row<'static> {
    let stuck = paint.colour(Color::Red).add_modifier(Modifier::BOLD);
    Row::new([
        plain(&age_of(operation.time)),
        plain(&operation.verb),
        plain(&operation.machine_name),
        plain(&operation.class()),
        plain(&operation.driver_instance),
        plain(operation.delivery),
        plain(&age_of(operation.time_left)),
        plain(&operation.stuck).style(stuck),
    ])
}

#[expect(clippy::too_many_arguments, reason = "both tables are the same but for all of these")]
fn draw_table(
    model: &Model,
    pane: Pane,
    title: String,
    header: [&'static str; 8],
    widths: [Constraint; 8],
    rows: Vec<Row<'static>>,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let focused = model.focus == pane;
    let strong = if focused { Modifier::BOLD } else { Modifier::empty() };
    let block = Block::new()
        .borders(Borders::TOP)
        .title(Span::styled(title, Style::new().add_modifier(strong)));
    let mark = if focused { Modifier::REVERSED } else { Modifier::empty() };
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(mark))
        .block(block);
    let mut state = TableState::new().with_selected(model.marked(pane));
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_help(frame: &mut Frame<'_>) {
    let lines: Vec<_> = HELP.lines().collect();
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let (width, height) = (width as u16 + 4, lines.len() as u16 + 2);
    let area = frame.area().centered(Constraint::Length(width), Constraint::Length(height));
    let block = Block::bordered().title(" Help ").title_alignment(Alignment::Center);
    let text: Vec<_> = lines.iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text).block(block), area);
}

/// Text as it is, but for what would steer the terminal.
fn plain(text: &str) -> Span<'static> {
    Span::raw(printable(text).into_owned())
}

/// Colour, where there is to be any.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn colour(self, colour: Color) -> Style {
        if self.0 { Style::new().fg(colour) } else { Style::new() }
    }
}

#[cfg(test)]
mod tests;
