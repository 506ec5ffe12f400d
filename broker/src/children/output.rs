//! Passes on what a program prints, line by line.
//!
//! The lines go to our standard error as they are, behind a prefix, and not through our log: a
//! driver's line has its own time and level, so a person would read them twice, and a filter meant
//! for our log would hide what a driver says. Where our log is JSON, so are they, in the same form: who
//! collects our lines would choke on others.

use std::{
    fmt,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::telemetry::LogFormat;

/// What is longer is cut.
const MAX_LINE: usize = 8 * 1024;

/// Where the lines go, and how. Cheap to clone: every clone is the same place.
#[derive(Clone)]
pub(super) struct Output {
    writer: Arc<Mutex<dyn Write + Send>>,
    format: LogFormat,
}

/// A line in the form of our own log. It has no level that we know, and is never hidden.
#[derive(Serialize)]
struct Logged<'a> {
    timestamp: String,
    level: &'static str,
    fields: Fields<'a>,
}

#[derive(Serialize)]
struct Fields<'a> {
    message: String,
    driver: &'a str,
}

impl Output {
    pub(super) fn stderr(format: LogFormat) -> Self {
        Self::to(io::stderr(), format)
    }

    pub(super) fn to(writer: impl Write + Send + 'static, format: LogFormat) -> Self {
        Self { writer: Arc::new(Mutex::new(writer)), format }
    }

    /// Passes the lines of a driver on until the end of `from`.
    pub(super) async fn pass_on(self, driver: String, from: impl AsyncRead + Unpin) {
        let mut from = BufReader::new(from);
        let mut line = Line::default();
        loop {
            let chunk = match from.fill_buf().await {
                Ok([]) | Err(_) => break,
                Ok(chunk) => chunk,
            };
            let end = chunk.iter().position(|byte| *byte == b'\n');
            line.take(&chunk[..end.unwrap_or(chunk.len())]);
            let used = end.map_or(chunk.len(), |end| end + 1);
            from.consume(used);
            if end.is_some() {
                self.print(&driver, &std::mem::take(&mut line));
            }
        }
        if line.length > 0 {
            self.print(&driver, &line);
        }
    }

    fn print(&self, driver: &str, line: &Line) {
        let text = match self.format {
            LogFormat::Text => format!("[{driver}] {line}\n"),
            LogFormat::Json => {
                let timestamp = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
                let fields = Fields { message: line.to_string(), driver };
                let line = Logged { timestamp, level: "INFO", fields };
                serde_json::to_string(&line).expect("plain structs become JSON") + "\n"
            }
        };
        // In one piece, so that the lines of several programs do not mix. If our standard error is
        // gone there is nobody to tell.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_all(text.as_bytes()).ok();
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

/// A line, of which only the beginning is kept.
#[derive(Default)]
struct Line {
    kept: Vec<u8>,
    length: usize,
}

impl Line {
    fn take(&mut self, bytes: &[u8]) {
        let room = MAX_LINE - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.length += bytes.len();
    }
}

/// As text, whatever the bytes are.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.kept);
        f.write_str(text.strip_suffix('\r').unwrap_or(&text))?;
        match self.length - self.kept.len() {
            0 => Ok(()),
            more => write!(f, "… ({more} bytes more)"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A place to look at afterwards.
    #[derive(Clone, Default)]
    pub(in super::super) struct Page(Arc<Mutex<Vec<u8>>>);

    impl Page {
        pub(in super::super) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn passed_on(bytes: &[u8]) -> String {
        passed_on_as(LogFormat::Text, bytes).await
    }

    async fn passed_on_as(format: LogFormat, bytes: &[u8]) -> String {
        let page = Page::default();
        Output::to(page.clone(), format).pass_on("sim".to_owned(), bytes).await;
        page.text()
    }

    #[tokio::test]
    async fn where_our_log_is_json_every_line_is() {
        let text = passed_on_as(LogFormat::Json, b"say \"hi\"\xff\n{\"a\":1}\n").await;
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let messages: Vec<_> = lines.iter().map(|line| &line["fields"]["message"]).collect();
        assert_eq!(messages, ["say \"hi\"\u{fffd}", "{\"a\":1}"]);
        for line in &lines {
            assert_eq!(
                (&line["level"], &line["fields"]["driver"]),
                (&"INFO".into(), &"sim".into())
            );
            assert!(line["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
        }
    }

    #[tokio::test]
    async fn every_line_has_the_prefix_even_without_an_end() {
        assert_eq!(passed_on(b"one\r\n\ntwo").await, "[sim] one\n[sim] \n[sim] two\n");
        assert_eq!(passed_on(b"").await, "");
    }

    #[tokio::test]
    async fn what_is_not_text_does_no_harm() {
        assert_eq!(passed_on(b"a\xff\xfeb\n").await, "[sim] a\u{fffd}\u{fffd}b\n");
    }

    #[tokio::test]
    async fn an_endless_line_is_cut() {
        let mut bytes = vec![b'x'; 100_000];
        bytes.extend(b"\nnext\n");
        let text = passed_on(&bytes).await;
        assert!(text.len() < MAX_LINE + 100);
        assert!(text.ends_with("x… (91808 bytes more)\n[sim] next\n"), "{}", &text[MAX_LINE..]);
    }
}
