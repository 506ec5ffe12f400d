//! The caller's deadline, from the `grpc-timeout` header.

use std::time::Duration;

use tonic::codegen::http::{HeaderMap, HeaderName};

use crate::dispatch::Error;

const HEADER: HeaderName = HeaderName::from_static("grpc-timeout");

/// How long the caller waits, if it said so.
///
/// A little less than it said, so that it hears from us how far its operation got, rather than from
/// its own clock that it knows nothing.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Duration>, Error> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    let timeout = value.to_str().ok().and_then(parse).ok_or_else(|| Error::Invalid {
        field: "grpc-timeout",
        problem: "must be up to 8 digits and one of H, M, S, m, u, n".to_owned(),
    })?;
    Ok(Some(timeout - margin(timeout)))
}

fn margin(timeout: Duration) -> Duration {
    (timeout / 20).min(Duration::from_millis(200))
}

fn parse(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let number: u64 = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_units_are_read() {
        assert_eq!(parse("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse("3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parse("5m"), Some(Duration::from_millis(5)));
        assert_eq!(parse("0n"), Some(Duration::ZERO));
    }

    #[test]
    fn nonsense_is_refused() {
        for value in ["", "S", "1", "-1S", "123456789S", "1x", "1S ", "é"] {
            assert_eq!(parse(value), None, "{value:?}");
        }
    }
}
