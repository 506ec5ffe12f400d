//! One thing with all its fields, in sections, as `kubectl describe` prints it.

use std::fmt::Write as _;

use crate::table::Cell;

const GAP: usize = 2;
const INDENT: usize = 2;

/// Fields under headings. The first ones may come without a heading.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Heading(&'static str),
    Field(&'static str, Cell),
    /// Lines as they are, such as a table.
    Lines(String),
}

impl Sheet {
    pub(crate) fn section(mut self, heading: &'static str) -> Self {
        self.parts.push(Part::Heading(heading));
        self
    }

    pub(crate) fn field(mut self, name: &'static str, value: impl Into<Cell>) -> Self {
        self.parts.push(Part::Field(name, value.into()));
        self
    }

    pub(crate) fn lines(mut self, lines: impl Into<String>) -> Self {
        self.parts.push(Part::Lines(lines.into()));
        self
    }

    pub(crate) fn render(self, colour: bool) -> String {
        // All values of a sheet begin in the same column, in sections too.
        let width = |part: &Part| match part {
            Part::Field(name, _) => name.chars().count() + ":".len() + GAP,
            _ => 0,
        };
        let widest = self.parts.iter().map(width).max().unwrap_or_default();
        let sections = self.parts.iter().any(|part| matches!(part, Part::Heading(_)));
        let column = widest + if sections { INDENT } else { 0 };
        let (mut text, mut indent) = (String::new(), 0);
        for part in &self.parts {
            match part {
                Part::Heading(heading) => {
                    let blank = if text.is_empty() { "" } else { "\n" };
                    indent = INDENT;
                    writeln!(text, "{blank}{heading}:")
                }
                Part::Field(name, value) => {
                    let width = column - indent;
                    let name = format!("{name}:");
                    writeln!(text, "{:indent$}{name:width$}{}", "", value.show(colour))
                }
                Part::Lines(lines) => {
                    lines.lines().try_for_each(|line| writeln!(text, "{:indent$}{line}", ""))
                }
            }
            .expect("writing to a string does not fail");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_begin_in_one_column() {
        let sheet = Sheet::default()
            .field("Name", "sim")
            .section("Work")
            .field("In flight", "3")
            .field("Last error", "")
            .section("History")
            .lines("AGE   WHAT\n1s    left\n");
        let expected = "\
Name:          sim

Work:
  In flight:   3
  Last error:  <none>

History:
  AGE   WHAT
  1s    left
";
        assert_eq!(sheet.render(false), expected);
    }
}
