//! Columns as kubectl prints them: three blanks between, nothing after the last.

use std::{borrow::Cow, fmt::Write as _};

use anstyle::Style;

const GAP: usize = 3;

/// One text of a table, free of control characters whatever the wire brought.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self { text: printable(text.as_ref()).into_owned(), style }
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

#[derive(Debug)]
pub(crate) struct Table<const COLUMNS: usize> {
    header: [&'static str; COLUMNS],
    rows: Vec<[Cell; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(header: [&'static str; COLUMNS]) -> Self {
        Self { header, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: [Cell; COLUMNS]) {
        self.rows.push(cells);
    }

    /// A table without rows is no text at all, as in kubectl: a header alone tells nobody anything.
    pub(crate) fn render(self, headers: bool, colour: bool) -> String {
        let mut rows = self.rows;
        if headers && !rows.is_empty() {
            rows.insert(0, self.header.map(Cell::from));
        }
        let width = |column: usize| {
            rows.iter().map(|row| row[column].text.chars().count()).max().unwrap_or_default()
        };
        let widths: [usize; COLUMNS] = std::array::from_fn(width);

        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for (Cell { text, style }, width) in row.iter().zip(widths) {
                // Padded apart from the text, as the style's own characters take no room.
                let padding = width + GAP - text.chars().count();
                let style = if colour { *style } else { Style::new() };
                write!(line, "{style}{text}{style:#}{:padding$}", "")
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

    fn table() -> Table<3> {
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
    fn nothing_is_printed_of_an_empty_table() {
        assert_eq!(Table::new(["NAME"]).render(true, false), "");
    }
}
