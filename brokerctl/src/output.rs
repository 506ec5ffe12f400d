//! Answers on stdout as table, JSON or YAML; remarks on stderr.

use std::{
    fmt::Display,
    io::{self, Write},
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

    pub(crate) fn remark(&mut self, text: impl Display) {
        self.console.remark(text);
    }

    pub(crate) fn print(&mut self, view: &impl View) -> Result<(), Failure> {
        let look =
            Look { headers: self.headers, colour: self.console.colour, now: SystemTime::now() };
        let text = render(view, self.format, look);
        let out = &mut self.console.out;
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // The reader has what it wanted, as in `brokerctl drivers | head -1`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => {
                Err(Failure::new(Exit::Failed, format!("cannot write the answer: {error}")))
            }
            Ok(()) => Ok(()),
        }
    }
}

fn render(view: &impl View, format: Format, look: Look) -> String {
    // Views have string keys only, and no type with an opinion on how it is written down.
    const PLAIN: &str = "views are plain data";
    match format {
        Format::Table => view.text(look),
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
        Look { headers: true, colour: false, now: UNIX_EPOCH + Duration::from_secs(3600) }
    }

    pub(crate) fn yaml(view: &impl View) -> String {
        render(view, Format::Yaml, look())
    }

    pub(crate) fn json(view: &impl View) -> String {
        render(view, Format::Json, look())
    }
}
