//! A message read field by field, where it lies: nothing is copied.

use std::str;

use prost::encoding::decode_varint;
use prost_types::Duration;

/// Whoever sent this does not speak our language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no message of this protocol")]
pub struct Unreadable;

/// The fields of a message, one after the other.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a fixed length, as none that we know is.
    Fixed,
}

impl<'a> Fields<'a> {
    // A field is a few instructions, if it is not handed over in memory.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Unreadable> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        // There is no field of number 0, and none beyond what 32 bits hold.
        if key < 8 || key > u64::from(u32::MAX) {
            return Err(Unreadable);
        }
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Unreadable),
        };
        Ok(Some((key >> 3, value)))
    }

    #[inline]
    fn take(&mut self, length: u64) -> Result<&'a [u8], Unreadable> {
        let length = usize::try_from(length).map_err(|_| Unreadable)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Unreadable)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Of one or two bytes, nearly always: the keys and lengths of what we know have no more.
    #[inline(always)]
    fn varint(&mut self) -> Result<u64, Unreadable> {
        match self.0 {
            [only @ 0..0x80, rest @ ..] => {
                self.0 = rest;
                Ok(u64::from(*only))
            }
            [low, high @ 0..0x80, rest @ ..] => {
                self.0 = rest;
                Ok(u64::from(*low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Unreadable> {
        decode_varint(&mut self.0).map_err(|_| Unreadable)
    }
}

#[inline]
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Unreadable> {
    str::from_utf8(bytes).map_err(|_| Unreadable)
}

pub(crate) fn duration(bytes: &[u8]) -> Result<Duration, Unreadable> {
    let mut duration = Duration::default();
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Number(number)) => duration.seconds = number.cast_signed(),
            (2, Value::Number(number)) => duration.nanos = number as i32,
            _ => {}
        }
    }
    Ok(duration)
}
