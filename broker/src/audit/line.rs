//! One line of JSON, written field by field. By hand, since there is one for every operation: it costs
//! a fraction of what a serializer does that asks each value what it is.

use std::{
    io::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::bounded;

/// An object that is being written. Names are ours and need no escaping.
pub(super) struct Line<'a> {
    bytes: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Line<'a> {
    pub(super) fn begin(bytes: &'a mut Vec<u8>) -> Self {
        bytes.push(b'{');
        Self { bytes, is_empty: true }
    }

    pub(super) fn end(self) {
        self.bytes.push(b'}');
    }

    fn name(&mut self, name: &'static str) {
        if !self.is_empty {
            self.bytes.push(b',');
        }
        self.is_empty = false;
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b"\":");
    }

    /// Anybody's words, cut where they are too long.
    pub(super) fn text(&mut self, name: &'static str, text: &str) {
        self.name(name);
        quoted(self.bytes, bounded(text));
    }

    pub(super) fn texts(&mut self, name: &'static str, texts: &[String]) {
        self.name(name);
        self.bytes.push(b'[');
        for (at, text) in texts.iter().enumerate() {
            if at > 0 {
                self.bytes.push(b',');
            }
            quoted(self.bytes, bounded(text));
        }
        self.bytes.push(b']');
    }

    /// Words of ours, which need neither escaping nor cutting.
    pub(super) fn word(&mut self, name: &'static str, word: &str) {
        self.name(name);
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(word.as_bytes());
        self.bytes.push(b'"');
    }

    /// As RFC 3339 has it, with milliseconds.
    pub(super) fn time(&mut self, name: &'static str, time: SystemTime, clock: &mut Clock) {
        self.name(name);
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = clock.at(since.as_secs());
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(second);
        self.bytes.push(b'.');
        self.digits(since.subsec_millis());
        self.bytes.extend_from_slice(b"Z\"");
    }

    /// As 16 digits.
    pub(super) fn hex(&mut self, name: &'static str, prefix: &str, number: u64) {
        self.name(name);
        let mut digits = [0; 16];
        hex::encode_to_slice(number.to_be_bytes(), &mut digits).expect("two for each byte");
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(prefix.as_bytes());
        self.bytes.extend_from_slice(&digits);
        self.bytes.push(b'"');
    }

    /// JSON that was made before.
    pub(super) fn made(&mut self, name: &'static str, json: &str) {
        self.name(name);
        self.bytes.extend_from_slice(json.as_bytes());
    }

    fn digits(&mut self, thousandths: u32) {
        let digits = [thousandths / 100, thousandths / 10 % 10, thousandths % 10];
        self.bytes.extend_from_slice(&digits.map(|digit| b'0' + digit as u8));
    }

    pub(super) fn number(&mut self, name: &'static str, number: impl itoa::Integer) {
        self.name(name);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// With three digits after the point.
    pub(super) fn millis(&mut self, name: &'static str, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.number(name, micros / 1000);
        self.bytes.push(b'.');
        self.digits((micros % 1000) as u32);
    }

    /// What is so. What is not is left out.
    pub(super) fn yes(&mut self, name: &'static str) {
        self.name(name);
        self.bytes.extend_from_slice(b"true");
    }
}

/// The second that was last written, as text: many lines are of the same.
#[derive(Debug, Default)]
pub(super) struct Clock {
    second: u64,
    text: Vec<u8>,
}

impl Clock {
    fn at(&mut self, second: u64) -> &[u8] {
        if self.text.is_empty() || self.second != second {
            self.text.clear();
            let time = UNIX_EPOCH + Duration::from_secs(second);
            // Memory does not refuse to be written to.
            write!(self.text, "{}", humantime::format_rfc3339_seconds(time)).ok();
            // Milliseconds come before the zone.
            self.text.pop();
            self.second = second;
        }
        &self.text
    }
}

fn quoted(bytes: &mut Vec<u8>, text: &str) {
    // Without an early end, so that many bytes are looked at at once.
    let strange = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if text.bytes().fold(false, |any, byte| any | strange(byte)) {
        serde_json::to_writer(bytes, text).ok();
    } else {
        bytes.push(b'"');
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    proptest! {
        #[test]
        fn whatever_anybody_says_is_read_back_as_it_was_said(text in ".{0,200}", other in ".{0,40}") {
            let mut bytes = Vec::new();
            let mut line = Line::begin(&mut bytes);
            line.text("text", &text);
            line.texts("texts", &[other.clone(), text.clone()]);
            line.made("made", "[1]");
            line.hex("hex", "op-", 0xab);
            line.number("number", 7);
            line.millis("millis", Duration::from_micros(12_045));
            line.word("word", "ok");
            line.end();
            let read: Value = serde_json::from_slice(&bytes).unwrap();
            let (text, other) = (bounded(&text), bounded(&other));
            let said = json!({"text": text, "texts": [other, text], "made": [1], "number": 7,
                "hex": "op-00000000000000ab", "millis": 12.045, "word": "ok"});
            prop_assert_eq!(read, said);
        }
    }
}
