//! Times as kubectl shows them: two units at most, and fewer the longer it is.

use std::time::Duration;

pub(crate) fn human(age: Duration) -> String {
    let (seconds, minutes, hours) = (age.as_secs(), age.as_secs() / 60, age.as_secs() / (60 * 60));
    let (days, years) = (hours / 24, hours / (24 * 365));
    if seconds == 0 {
        return format!("{}ms", age.as_millis());
    }
    let (big, small) = match () {
        () if seconds < 120 => ((seconds, "s"), (0, "")),
        () if minutes < 10 => ((minutes, "m"), (seconds % 60, "s")),
        () if minutes < 180 => ((minutes, "m"), (0, "")),
        () if hours < 8 => ((hours, "h"), (minutes % 60, "m")),
        () if hours < 48 => ((hours, "h"), (0, "")),
        () if days < 8 => ((days, "d"), (hours % 24, "h")),
        () if years < 2 => ((days, "d"), (0, "")),
        () if years < 8 => ((years, "y"), (days % 365, "d")),
        () => ((years, "y"), (0, "")),
    };
    match small.0 {
        0 => format!("{}{}", big.0, big.1),
        _ => format!("{}{}{}{}", big.0, big.1, small.0, small.1),
    }
}

/// With a tenth of a millisecond, for times on the wire.
pub(crate) fn precise(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        return format!("{:.1}ms", time.as_secs_f64() * 1e3);
    }
    human(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_in_kubectl() {
        const HOUR: u64 = 60 * 60;
        for (seconds, expected) in [
            (1, "1s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (2 * HOUR, "120m"),
            (3 * HOUR, "3h"),
            (4 * HOUR + 120, "4h2m"),
            (30 * HOUR, "30h"),
            (50 * HOUR, "2d2h"),
            (24 * HOUR * 30, "30d"),
            (24 * HOUR * 365 * 2 + 24 * HOUR, "2y1d"),
            (24 * HOUR * 365 * 9, "9y"),
        ] {
            assert_eq!(human(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn less_than_a_second_is_still_something() {
        assert_eq!(human(Duration::from_millis(120)), "120ms");
    }

    #[test]
    fn round_trips_are_shorter_than_a_millisecond() {
        assert_eq!(precise(Duration::from_micros(420)), "0.4ms");
        assert_eq!(precise(Duration::from_secs(3)), "3s");
    }
}
