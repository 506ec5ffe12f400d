//! Columns as kubectl prints them: three blanks between, nothing after the last.

use std::{borrow::Cow, fmt::Write as _};

use anstyle::Style;

use crate::output::Look;

const GAP: usize = 3;

/// One text of a table, free of control characters whatever the wire brought.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self { text: printable(text.as_ref()).into_owned(), style }
    }

    /// With more text behind it, in the same style.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.text.push_str(&printable(more));
        self
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The text in its style, where there is colour.
    pub(crate) fn show(&self, colour: bool) -> String {
        let style = if colour { self.style } else { Style::new() };
        format!("{style}{}{style:#}", self.text)
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        match text.as_ref() {
            "" => Self::styled("<none>", Style::new()),
            text => Self::styled(text, Style::new()),
        }
    }
}

/// How one column shows a `T`.
pub(crate) struct Column<T> {
    pub(crate) header: &'static str,
    pub(crate) cell: fn(&T, &Look) -> Cell,
    /// Shown with `-o wide` alone.
    pub(crate) wide: bool,
    /// Changes by itself as time goes by: not worth a line when one watches.
    pub(crate) restless: bool,
}

impl<T> Column<T> {
    pub(crate) const fn new(header: &'static str, cell: fn(&T, &Look) -> Cell) -> Self {
        Self { header, cell, wide: false, restless: false }
    }

    pub(crate) const fn wide(header: &'static str, cell: fn(&T, &Look) -> Cell) -> Self {
        Self { header, cell, wide: true, restless: false }
    }

    pub(crate) const fn restless(header: &'static str, cell: fn(&T, &Look) -> Cell) -> Self {
        Self { header, cell, wide: false, restless: true }
    }

    pub(crate) const fn wide_restless(header: &'static str, cell: fn(&T, &Look) -> Cell) -> Self {
        Self { header, cell, wide: true, restless: true }
    }
}

/// The table of `items`, with the columns that the look wants.
pub(crate) fn of<'a, T: 'a>(
    columns: &[Column<T>],
    items: impl IntoIterator<Item = &'a T>,
    look: Look,
) -> String {
    let shown: Vec<_> = columns.iter().filter(|column| look.wide || !column.wide).collect();
    let mut table = Table::new(shown.iter().map(|column| column.header).collect::<Vec<_>>());
    for item in items {
        table.row(shown.iter().map(|column| (column.cell)(item, &look)).collect::<Vec<_>>());
    }
    table.render(look.headers, look.colour)
}

#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(header: impl Into<Vec<&'static str>>) -> Self {
        Self { header: header.into(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    /// A table without rows is no text at all, as in kubectl: a header alone tells nobody anything.
    pub(crate) fn render(self, headers: bool, colour: bool) -> String {
        Ledger::new(headers, colour).lines(self)
    }
}

/// Tables one after the other that stay in line: the widths that were needed once remain.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The header is still to be written.
    header: bool,
    colour: bool,
    widths: Vec<usize>,
}

impl Ledger {
    pub(crate) fn new(header: bool, colour: bool) -> Self {
        Self { header, colour, widths: Vec::new() }
    }

    pub(crate) fn lines(&mut self, table: Table) -> String {
        let mut rows = table.rows;
        if self.header && !rows.is_empty() {
            rows.insert(0, table.header.into_iter().map(Cell::from).collect());
            self.header = false;
        }
        for row in &rows {
            self.widths.resize(self.widths.len().max(row.len()), 0);
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.text.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&self.widths) {
                // Padded apart from the text, as the style's own characters take no room.
                let padding = width + GAP - cell.text.chars().count();
                write!(line, "{}{:padding$}", cell.show(self.colour), "")
                    .expect("writing to a string does not fail");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}
/// The text with its control characters escaped: a name that some driver made up must not steer
/// the operator's terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    Cow::Owned(text.chars().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use anstyle::AnsiColor;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["NAME", "STATE", "AGE"]);
        let green = AnsiColor::Green.on_default();
        table.row(["worker-zürich".into(), Cell::styled("Ready", green), "3s".into()]);
        table.row(["a".into(), "".into(), "\x1b[2J\n".into()]);
        table
    }

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let expected = "\
NAME            STATE    AGE
worker-zürich   Ready    3s
a               <none>   \\u{1b}[2J\\n
";
        assert_eq!(table().render(true, false), expected);
    }

    #[test]
    fn colour_takes_no_room() {
        let expected = "\
worker-zürich   \x1b[32mReady\x1b[0m    3s
a               <none>   \\u{1b}[2J\\n
";
        assert_eq!(table().render(false, true), expected);
    }

    #[test]
    fn tables_in_a_row_stay_in_line() {
        let row = |name: &str| {
            let mut table = Table::new(["NAME", "AGE"]);
            table.row([Cell::from(name), Cell::from("1s")]);
            table
        };
        let mut ledger = Ledger::new(true, false);
        assert_eq!(ledger.lines(row("worker-0")), "NAME       AGE\nworker-0   1s\n");
        assert_eq!(ledger.lines(row("a")), "a          1s\n");
    }

    #[test]
    fn nothing_is_printed_of_an_empty_table() {
        assert_eq!(Table::new(["NAME"]).render(true, false), "");
    }
}
