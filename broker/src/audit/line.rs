//! One line of JSON, written field by field. By hand, since there is one for every operation: it costs
//! a fraction of what a serializer does that asks each value what it is.

use std::{
    io::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::bounded;

/// An object that is being written: each field with a comma behind it.
///
/// What writes a field is inlined where its name is known: a name is then a few moves and no call.
pub(super) struct Line<'a>(&'a mut Vec<u8>);

/// A field's name as it is written, up to the quote that a text begins with. Names are ours and need no
/// escaping.
#[derive(Clone, Copy)]
pub(super) struct Name(pub(super) &'static str);

/// Quoted when it is compiled, so that it is written in one go.
macro_rules! name {
    ($name:literal) => {
        $crate::audit::line::Name(concat!("\"", $name, "\":\""))
    };
}
pub(super) use name;

impl Name {
    /// Before a text, with its first quote.
    #[inline]
    fn quoting(self) -> &'static [u8] {
        self.0.as_bytes()
    }

    /// Before what is not in quotes.
    #[inline]
    fn plain(self) -> &'static [u8] {
        &self.0.as_bytes()[..self.0.len() - 1]
    }
}

/// A whole field with words of ours.
macro_rules! field {
    ($name:literal, $word:literal) => {
        concat!("\"", $name, "\":\"", $word, "\",")
    };
}
pub(super) use field;

impl<'a> Line<'a> {
    /// Goes on within an object: a piece of a line.
    pub(super) fn within(bytes: &'a mut Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Begins with the time, as RFC 3339 has it, with milliseconds.
    #[inline]
    pub(super) fn at(time: SystemTime, clock: &mut Clock, bytes: &'a mut Vec<u8>) -> Self {
        bytes.extend_from_slice(clock.at(time));
        Self(bytes)
    }

    /// There is at least one field.
    #[inline]
    pub(super) fn end(self) {
        if let Some(last) = self.0.last_mut() {
            *last = b'}';
        }
        self.0.push(b'\n');
    }

    /// An object with at least one field.
    pub(super) fn object(&mut self, name: Name, write: impl FnOnce(&mut Line<'_>)) {
        self.0.extend_from_slice(name.plain());
        self.0.push(b'{');
        write(self);
        if let Some(last) = self.0.last_mut() {
            *last = b'}';
        }
        self.0.push(b',');
    }

    /// Anybody's words, cut where they are too long.
    #[inline]
    pub(super) fn text(&mut self, name: Name, text: &str) {
        self.0.extend_from_slice(name.quoting());
        escaped(self.0, bounded(text));
        self.0.extend_from_slice(b"\",");
    }

    pub(super) fn texts(&mut self, name: Name, texts: &[String]) {
        self.0.extend_from_slice(name.plain());
        self.0.push(b'[');
        for (at, text) in texts.iter().enumerate() {
            if at > 0 {
                self.0.push(b',');
            }
            self.0.push(b'"');
            escaped(self.0, bounded(text));
            self.0.push(b'"');
        }
        self.0.extend_from_slice(b"],");
    }

    /// Words of ours, which need neither escaping nor cutting.
    #[inline]
    pub(super) fn word(&mut self, name: Name, word: &str) {
        self.0.extend_from_slice(name.quoting());
        self.0.extend_from_slice(word.as_bytes());
        self.0.extend_from_slice(b"\",");
    }

    /// Whole fields, which were made before: by [`field!`], or as a piece of many lines.
    #[inline]
    pub(super) fn made(&mut self, fields: &str) {
        self.0.extend_from_slice(fields.as_bytes());
    }

    /// As 16 digits.
    #[inline]
    pub(super) fn hex(&mut self, name: Name, prefix: &str, number: u64) {
        self.0.extend_from_slice(name.quoting());
        self.0.extend_from_slice(prefix.as_bytes());
        let mut digits = [*b"\","; 9];
        for (two, byte) in digits.iter_mut().zip(number.to_be_bytes()) {
            *two = HEX[usize::from(byte)];
        }
        self.0.extend_from_slice(digits.as_flattened());
    }

    #[inline]
    pub(super) fn number(&mut self, name: Name, number: impl itoa::Integer) {
        self.0.extend_from_slice(name.plain());
        self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.0.push(b',');
    }

    /// With three digits after the point.
    #[inline]
    pub(super) fn millis(&mut self, name: Name, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let [hundreds, tens, ones] = digits((micros % 1000) as u32);
        self.0.extend_from_slice(name.plain());
        self.0.extend_from_slice(itoa::Buffer::new().format(micros / 1000).as_bytes());
        self.0.extend_from_slice(&[b'.', hundreds, tens, ones, b',']);
    }

    /// What is so. What is not is left out.
    pub(super) fn yes(&mut self, name: Name) {
        self.0.extend_from_slice(name.plain());
        self.0.extend_from_slice(b"true,");
    }
}

/// The two digits of every byte.
const HEX: [[u8; 2]; 256] = {
    let (digits, mut of, mut byte) = (b"0123456789abcdef", [[0; 2]; 256], 0);
    while byte < of.len() {
        of[byte] = [digits[byte / 16], digits[byte % 16]];
        byte += 1;
    }
    of
};

fn digits(thousandths: u32) -> [u8; 3] {
    [thousandths / 100, thousandths / 10 % 10, thousandths % 10].map(|digit| b'0' + digit as u8)
}

/// How the line that was last written begins: many are of the same second.
#[derive(Debug)]
pub(super) struct Clock {
    second: u64,
    text: [u8; 35],
}

impl Default for Clock {
    fn default() -> Self {
        Self { second: 0, text: *b"{\"time\":\"1970-01-01T00:00:00.000Z\"," }
    }
}

impl Clock {
    #[inline]
    fn at(&mut self, time: SystemTime) -> &[u8; 35] {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != since.as_secs() {
            self.turn_to(since.as_secs());
        }
        let [.., hundreds, tens, ones, _, _, _] = &mut self.text;
        [*hundreds, *tens, *ones] = digits(since.subsec_millis());
        &self.text
    }

    #[cold]
    fn turn_to(&mut self, second: u64) {
        self.second = second;
        let time = UNIX_EPOCH + Duration::from_secs(second);
        // There is room until the year 10,000.
        write!(&mut self.text[9..33], "{}", humantime::format_rfc3339_millis(time)).ok();
    }
}

/// Writes a text after its first quote.
#[inline]
fn escaped(bytes: &mut Vec<u8>, text: &str) {
    if is_plain(text) {
        bytes.extend_from_slice(text.as_bytes());
    } else {
        // It writes both quotes itself.
        bytes.pop();
        serde_json::to_writer(&mut *bytes, text).ok();
        bytes.pop();
    }
}

/// Whether nothing in it needs escaping. Eight bytes are looked at at once.
fn is_plain(text: &str) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHEST: u64 = u64::from_ne_bytes([0x80; 8]);
    // A byte below `least` borrows from its highest bit; those above 127 have it already.
    let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word & HIGHEST;
    let has = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let strange = |word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        below(word, b' ') | has(word, b'"') | has(word, b'\\')
    };
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    // Some are looked at twice, unless there are fewer than eight.
    let last = text.as_bytes().last_chunk().copied().unwrap_or_else(|| {
        let mut last = [b' '; 8];
        last[..rest.len()].copy_from_slice(rest);
        last
    });
    words.iter().fold(strange(&last), |found, word| found | strange(word)) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_line_has_its_own_time() {
        let mut clock = Clock::default();
        for millis in [7, 1_800_000_000_250, 1_800_000_000_999, 1_800_000_001_000, 0] {
            let (time, mut bytes) = (UNIX_EPOCH + Duration::from_millis(millis), Vec::new());
            Line::at(time, &mut clock, &mut bytes).end();
            let said = format!("{{\"time\":\"{}\"}}\n", humantime::format_rfc3339_millis(time));
            assert_eq!(String::from_utf8(bytes).unwrap(), said);
        }
    }

    proptest! {
        #[test]
        fn whatever_anybody_says_is_read_back_as_it_was_said(text in ".{0,200}", other in ".{0,40}") {
            let mut bytes = b"{".to_vec();
            let mut line = Line::within(&mut bytes);
            line.text(name!("text"), &text);
            line.texts(name!("texts"), &[other.clone(), text.clone()]);
            line.made("\"made\":[1],");
            line.object(name!("object"), |object| object.text(name!("text"), &other));
            line.hex(name!("hex"), "op-", 0xab);
            line.number(name!("number"), 7);
            line.millis(name!("millis"), Duration::from_micros(12_045));
            line.word(name!("word"), "ok");
            line.end();
            let read: Value = serde_json::from_slice(&bytes).unwrap();
            let (text, other) = (bounded(&text), bounded(&other));
            let said = json!({"text": text, "texts": [other, text], "made": [1],
                "object": {"text": other}, "number": 7, "hex": "op-00000000000000ab", "millis": 12.045, "word": "ok"});
            prop_assert_eq!(read, said);
        }
    }
}
