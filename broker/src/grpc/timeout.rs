//! The caller's deadline, from the `grpc-timeout` header.

use std::time::Duration;

use tonic::{
    Status,
    codegen::http::{HeaderMap, HeaderName},
};

use crate::dispatch::Error;

static HEADER: HeaderName = HeaderName::from_static("grpc-timeout");

/// How long the caller waits, if it said so.
///
/// A little less than it said, so that it hears from us how far its operation got, rather than from
/// its own clock that it knows nothing.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Duration>, Unreadable> {
    let Some(value) = headers.get(&HEADER) else { return Ok(None) };
    let timeout = parse(value.as_bytes()).ok_or(Unreadable)?;
    Ok(Some(timeout - margin(timeout)))
}

/// It is there and tells no time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unreadable;

impl From<Unreadable> for Error {
    fn from(Unreadable: Unreadable) -> Self {
        Error::invalid("grpc-timeout", "must be up to 8 digits and one of H, M, S, m, u, n")
    }
}

impl From<Unreadable> for Status {
    fn from(unreadable: Unreadable) -> Self {
        Error::from(unreadable).into()
    }
}

fn margin(timeout: Duration) -> Duration {
    const MOST: Duration = Duration::from_millis(200);
    if timeout >= 20 * MOST { MOST } else { timeout / 20 }
}

fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let number = digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| 10 * number + u64::from(digit - b'0'))
    })?;
    match unit {
        b'H' => Some(Duration::from_secs(number * 3600)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tonic::codegen::http::HeaderValue;

    use super::*;

    #[test]
    fn all_units_are_read() {
        assert_eq!(parse(b"2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse(b"3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse(b"99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parse(b"5m"), Some(Duration::from_millis(5)));
        assert_eq!(parse(b"17u"), Some(Duration::from_micros(17)));
        assert_eq!(parse(b"0n"), Some(Duration::ZERO));
    }

    #[test]
    fn we_give_up_a_little_before_the_caller_does() {
        let of = |timeout| {
            let headers =
                HeaderMap::from_iter([(HEADER.clone(), HeaderValue::from_static(timeout))]);
            of(&headers).unwrap()
        };
        assert_eq!(of("1S"), Some(Duration::from_millis(950)));
        assert_eq!(of("4S"), Some(Duration::from_millis(3_800)));
        assert_eq!(of("1M"), Some(Duration::from_millis(59_800)));
    }

    #[test]
    fn nonsense_is_refused() {
        for value in ["", "S", "1", "-1S", "123456789S", "1x", "1S ", "é"] {
            assert_eq!(parse(value.as_bytes()), None, "{value:?}");
        }
    }
}
