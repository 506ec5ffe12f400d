//! How many drivers have registered, as the audit log tells.
//!
//! That is written anyway, so that looking costs the broker nothing.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

const LINE: &str = "\"event\":\"driver_registered\"";

/// Reads the log of one broker from its beginning, once.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    file: Option<File>,
    /// A line that is not written to its end.
    rest: Vec<u8>,
    count: usize,
}

impl Registrations {
    /// How many there are by now.
    pub(crate) fn look(&mut self, log: &Path) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(log)?),
        };
        file.read_to_end(&mut self.rest)?;
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        self.count += String::from_utf8_lossy(&lines).matches(LINE).count();
        Ok(self.count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn registrations_are_counted_once_and_when_their_line_is_whole() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut registrations = Registrations::default();
        for (text, count) in [
            ("{\"event\":\"driver_registered\"}\n{\"event\":\"driver_left\"}\n", 1),
            ("{\"event\":\"driver_registered\"", 1),
            ("}\n", 2),
            ("", 2),
        ] {
            log.as_file().write_all(text.as_bytes()).unwrap();
            assert_eq!(registrations.look(log.path()).unwrap(), count, "{text}");
        }
    }
}
