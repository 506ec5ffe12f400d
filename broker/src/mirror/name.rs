//! What the object of a driver is called.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

/// As long as the name of a pod may be, so that names of events have room for more.
const LONGEST: usize = 63;
/// Between what is left of an id and the digest of all of it.
const MARK: &str = "--";
/// Bytes of the digest.
const DIGEST: usize = 5;

/// The instance id itself, if it can be a name; otherwise what is left of it, with a digest so that no
/// two drivers share a name. An id that looks like such a name gets a digest as well.
pub(super) fn object_name(instance: &str) -> Cow<'_, str> {
    if is_name(instance) && !instance.contains(MARK) {
        return Cow::Borrowed(instance);
    }
    let digest = hex::encode(&Sha256::digest(instance)[..DIGEST]);
    let room = LONGEST - MARK.len() - digest.len();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let stem: String = instance.chars().take(room).map(plain).collect();
    let stem = stem.trim_matches('-');
    let stem = if stem.is_empty() { "driver" } else { stem };
    Cow::Owned(format!("{stem}{MARK}{digest}"))
}

/// Whether Kubernetes would take it: labels of small letters, digits and dashes, separated by dots.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let within = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        label.bytes().all(within) && !label.is_empty() && label.trim_matches('-') == label
    };
    text.len() <= LONGEST && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_id_that_can_be_a_name_is_one() {
        for id in ["sim-0", "a", "aws.eu-1.example", "7d9c5b6f4-x2x4z"] {
            assert_eq!(object_name(id), id);
        }
    }

    #[test]
    fn whatever_the_id_the_name_is_valid_and_nobody_elses() {
        let long = "x".repeat(300);
        let ids = [
            "",
            "-",
            "Sim-0",
            "sim-0",
            "sim_0",
            "sim/0",
            "sim--0",
            "a..b",
            ".a",
            "a-.b",
            "sim@127.0.0.1:4711",
            "sim@127.0.0.1:4712",
            "Ü",
            "一",
            &long,
            &long[1..],
        ];
        let names: HashSet<_> = ids.iter().map(|id| object_name(id)).collect();
        assert_eq!(names.len(), ids.len(), "{names:?}");
        for name in &names {
            assert!(is_name(name), "{name}");
            // The name of one is no name of another.
            assert!(!name.contains(MARK) || object_name(name) != *name, "{name}");
        }
        assert!(object_name("sim@127.0.0.1:4711").starts_with("sim-127-0-0-1-4711--"));
    }
}
