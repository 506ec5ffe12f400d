//! Where the audit log goes, as operators say it.

use std::{path::PathBuf, str::FromStr};

use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Stdout,
    File(PathBuf, Rotation),
}

/// When a file is put aside, and how many of those are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    pub max_size: u64,
    pub keep: u32,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { max_size: 100 * 1024 * 1024, keep: 5 }
    }
}

/// A number of bytes with its unit, such as `100MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit: u64 = match unit {
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(format!("{text:?} is not a size: write a number and KiB, MiB or GiB")),
        };
        let size = number.parse().ok().and_then(|number: u64| number.checked_mul(unit));
        size.map(Self).ok_or_else(|| format!("{text:?} is not a size that can be"))
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!("64KiB".parse(), Ok(Size(65_536)));
        assert_eq!("100MiB".parse(), Ok(Size(104_857_600)));
        assert_eq!("2GiB".parse(), Ok(Size(2_147_483_648)));
        for wrong in ["", "100", "MiB", "1.5MiB", "-1MiB", "10MB", "99999999999999999999GiB"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
