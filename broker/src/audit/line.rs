//! One line of JSON, written field by field. By hand, since there is one for every operation: it costs
//! a fraction of what a serializer does that asks each value what it is.

use std::{fmt::Display, io::Write as _, time::Duration};

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

    /// What prints without anything that needs escaping.
    pub(super) fn plain(&mut self, name: &'static str, value: impl Display) {
        self.name(name);
        // Memory does not refuse to be written to.
        write!(self.bytes, "\"{value}\"").ok();
    }

    pub(super) fn number(&mut self, name: &'static str, number: impl itoa::Integer) {
        self.name(name);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// With three digits after the point.
    pub(super) fn millis(&mut self, name: &'static str, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.number(name, micros / 1000);
        let rest = (micros % 1000) as u16;
        self.bytes.push(b'.');
        self.bytes.extend([rest / 100, rest / 10 % 10, rest % 10].map(|digit| b'0' + digit as u8));
    }

    /// What is so. What is not is left out.
    pub(super) fn yes(&mut self, name: &'static str) {
        self.name(name);
        self.bytes.extend_from_slice(b"true");
    }

    pub(super) fn object(&mut self, name: &'static str, fields: impl FnOnce(&mut Line<'_>)) {
        self.name(name);
        let mut object = Line::begin(self.bytes);
        fields(&mut object);
        object.end();
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
            line.object("in", |line| line.texts("texts", &[other.clone(), text.clone()]));
            line.number("number", 7);
            line.millis("millis", Duration::from_micros(12_045));
            line.word("word", "ok");
            line.end();
            let read: Value = serde_json::from_slice(&bytes).unwrap();
            let (text, other) = (bounded(&text), bounded(&other));
            let said = json!({"text": text, "in": {"texts": [other, text]}, "number": 7,
                "millis": 12.045, "word": "ok"});
            prop_assert_eq!(read, said);
        }
    }
}
