//! One line of JSON, written field by field. By hand, since there is one for every operation: it costs
//! a fraction of what a serializer does that asks each value what it is.

use std::{
    io::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::bounded;

/// An object that is being written: each field with a comma behind it.
pub(super) struct Line<'a>(&'a mut Vec<u8>);

/// A field's name as it is written. Names are ours and need no escaping.
#[derive(Clone, Copy)]
pub(super) struct Name(pub(super) &'static str);

/// Quoted when it is compiled, so that it is written in one go.
macro_rules! name {
    ($name:literal) => {
        $crate::audit::line::Name(concat!("\"", $name, "\":"))
    };
}
pub(super) use name;

impl<'a> Line<'a> {
    pub(super) fn begin(bytes: &'a mut Vec<u8>) -> Self {
        bytes.push(b'{');
        Self(bytes)
    }

    /// There is at least one field.
    pub(super) fn end(self) {
        if let Some(last) = self.0.last_mut().filter(|last| **last == b',') {
            *last = b'}';
        }
    }

    #[inline]
    fn name(&mut self, name: Name) {
        self.0.extend_from_slice(name.0.as_bytes());
    }

    /// Anybody's words, cut where they are too long.
    #[inline]
    pub(super) fn text(&mut self, name: Name, text: &str) {
        self.name(name);
        quoted(self.0, bounded(text));
        self.0.push(b',');
    }

    pub(super) fn texts(&mut self, name: Name, texts: &[String]) {
        self.name(name);
        self.0.push(b'[');
        for (at, text) in texts.iter().enumerate() {
            if at > 0 {
                self.0.push(b',');
            }
            quoted(self.0, bounded(text));
        }
        self.0.extend_from_slice(b"],");
    }

    /// Words of ours, which need neither escaping nor cutting.
    #[inline]
    pub(super) fn word(&mut self, name: Name, word: &str) {
        self.name(name);
        self.0.push(b'"');
        self.0.extend_from_slice(word.as_bytes());
        self.0.extend_from_slice(b"\",");
    }

    /// As RFC 3339 has it, with milliseconds.
    pub(super) fn time(&mut self, name: Name, time: SystemTime, clock: &mut Clock) {
        self.name(name);
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = clock.at(since.as_secs());
        self.0.push(b'"');
        self.0.extend_from_slice(second);
        self.0.push(b'.');
        self.digits(since.subsec_millis());
        self.0.extend_from_slice(b"Z\",");
    }

    /// As 16 digits.
    #[inline]
    pub(super) fn hex(&mut self, name: Name, prefix: &str, number: u64) {
        self.name(name);
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        let digit = |half: u8| DIGITS[usize::from(half % 16)];
        let digits = number.to_be_bytes().map(|byte| [digit(byte >> 4), digit(byte)]);
        self.0.push(b'"');
        self.0.extend_from_slice(prefix.as_bytes());
        self.0.extend_from_slice(digits.as_flattened());
        self.0.extend_from_slice(b"\",");
    }

    /// JSON that was made before.
    #[inline]
    pub(super) fn made(&mut self, name: Name, json: &str) {
        self.name(name);
        self.0.extend_from_slice(json.as_bytes());
        self.0.push(b',');
    }

    fn digits(&mut self, thousandths: u32) {
        let digits = [thousandths / 100, thousandths / 10 % 10, thousandths % 10];
        self.0.extend_from_slice(&digits.map(|digit| b'0' + digit as u8));
    }

    #[inline]
    pub(super) fn number(&mut self, name: Name, number: impl itoa::Integer) {
        self.name(name);
        self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.0.push(b',');
    }

    /// With three digits after the point.
    #[inline]
    pub(super) fn millis(&mut self, name: Name, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.name(name);
        self.0.extend_from_slice(itoa::Buffer::new().format(micros / 1000).as_bytes());
        self.0.push(b'.');
        self.digits((micros % 1000) as u32);
        self.0.push(b',');
    }

    /// What is so. What is not is left out.
    pub(super) fn yes(&mut self, name: Name) {
        self.name(name);
        self.0.extend_from_slice(b"true,");
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
    if is_plain(text) {
        bytes.push(b'"');
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(b'"');
    } else {
        serde_json::to_writer(bytes, text).ok();
    }
}

/// Whether nothing in it needs escaping. Eight bytes are looked at at once.
fn is_plain(text: &str) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHEST: u64 = u64::from_ne_bytes([0x80; 8]);
    // A byte below `least` borrows from its highest bit; those above 127 have it already.
    let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word & HIGHEST;
    let has = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let strange = |word: u64| below(word, b' ') | has(word, b'"') | has(word, b'\\');
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_ne_bytes(*word));
    words.fold(0, |found, word| found | strange(word)) == 0
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
            line.text(name!("text"), &text);
            line.texts(name!("texts"), &[other.clone(), text.clone()]);
            line.made(name!("made"), "[1]");
            line.hex(name!("hex"), "op-", 0xab);
            line.number(name!("number"), 7);
            line.millis(name!("millis"), Duration::from_micros(12_045));
            line.word(name!("word"), "ok");
            line.end();
            let read: Value = serde_json::from_slice(&bytes).unwrap();
            let (text, other) = (bounded(&text), bounded(&other));
            let said = json!({"text": text, "texts": [other, text], "made": [1], "number": 7,
                "hex": "op-00000000000000ab", "millis": 12.045, "word": "ok"});
            prop_assert_eq!(read, said);
        }
    }
}
