//! Answers on stdout as table, JSON or YAML; remarks on stderr.

use std::{
    fmt::Display,
    io::{self, BufRead, Write},
    ops::ControlFlow,
    time::SystemTime,
};

use serde::Serialize;

use crate::{Failure, args::Format, failure::Exit};

/// Where the words go.
pub struct Console<'a> {
    /// Data: what a script reads.
    pub out: &'a mut dyn Write,
    /// Remarks and errors: what a person reads.
    pub remarks: &'a mut dyn Write,
    /// Colour in `out`.
    pub colour: bool,
    /// `remarks` is a terminal, where a spinner makes sense.
    pub live: bool,
    /// `out` is a terminal, which `top` may take over.
    pub terminal: bool,
    /// Where a person answers questions. Without one, nobody is asked.
    pub answers: Option<&'a mut dyn BufRead>,
}

impl Console<'_> {
    /// Says something that is not data. Nobody is left to be told when that fails.
    pub fn remark(&mut self, text: impl Display) {
        drop(writeln!(self.remarks, "{text}"));
    }
}

/// What people see beyond the data itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) headers: bool,
    pub(crate) colour: bool,
    /// All columns.
    pub(crate) wide: bool,
    pub(crate) now: SystemTime,
}

/// An answer: data for scripts, and text for people.
pub(crate) trait View: Serialize {
    /// Lines, each with its end. Pure, so that tests compare what an operator sees.
    fn text(&self, look: Look) -> String;
}

pub(crate) struct Output<'a, 'c> {
    console: &'a mut Console<'c>,
    format: Format,
    headers: bool,
}

impl<'a, 'c> Output<'a, 'c> {
    pub(crate) fn new(console: &'a mut Console<'c>, format: Format, headers: bool) -> Self {
        Self { console, format, headers }
    }

    pub(crate) fn live(&self) -> bool {
        self.console.live
    }

    /// Whether stdout is a terminal.
    pub(crate) fn terminal(&self) -> bool {
        self.console.terminal
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn look(&self) -> Look {
        Look {
            headers: self.headers,
            colour: self.console.colour,
            wide: self.format == Format::Wide,
            now: SystemTime::now(),
        }
    }

    pub(crate) fn remark(&mut self, text: impl Display) {
        self.console.remark(text);
    }

    pub(crate) fn can_ask(&self) -> bool {
        self.console.answers.is_some()
    }

    /// Whether a person says yes. Anything else is a no.
    pub(crate) fn confirms(&mut self, question: impl Display) -> bool {
        let Some(answers) = self.console.answers.as_mut() else { return false };
        let asked = write!(self.console.remarks, "{question} [y/N] ");
        let mut answer = String::new();
        asked.and_then(|()| self.console.remarks.flush()).is_ok()
            && answers.read_line(&mut answer).is_ok()
            && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    }

    pub(crate) fn print(&mut self, view: &impl View) -> Result<(), Failure> {
        let text = render(view, self.format, self.look());
        // Who has read enough got what it wanted, as in `brokerctl drivers | head -1`.
        self.write(&text).map(drop)
    }

    /// Writes lines that are part of the answer. Breaks when nobody reads them any more.
    pub(crate) fn write(&mut self, text: &str) -> Result<ControlFlow<()>, Failure> {
        let out = &mut self.console.out;
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            Err(error) => {
                Err(Failure::new(Exit::Failed, format!("cannot write the answer: {error}")))
            }
        }
    }
}

fn render(view: &impl View, format: Format, look: Look) -> String {
    // Views have string keys only, and no type with an opinion on how it is written down.
    const PLAIN: &str = "views are plain data";
    match format {
        Format::Table | Format::Wide => view.text(look),
        Format::Json => serde_json::to_string_pretty(view).expect(PLAIN) + "\n",
        Format::Yaml => serde_saphyr::to_string(view).expect(PLAIN),
    }
}

/// Tries a view on, in the tests of whoever has one.
#[cfg(test)]
pub(crate) mod fitting {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// An hour after the epoch, without colour.
    pub(crate) fn look() -> Look {
        let now = UNIX_EPOCH + Duration::from_secs(3600);
        Look { headers: true, colour: false, wide: false, now }
    }

    pub(crate) fn wide() -> Look {
        Look { wide: true, ..look() }
    }

    pub(crate) fn yaml(view: &impl View) -> String {
        render(view, Format::Yaml, look())
    }

    pub(crate) fn json(view: &impl View) -> String {
        render(view, Format::Json, look())
    }
}
