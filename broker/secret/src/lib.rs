//! Bytes that nobody may see: credentials, user data, tokens.
//!
//! [`Sensitive`] has neither `Display` nor `Serialize`, its `Debug` tells the length and nothing else,
//! and its memory is overwritten when the last clone is dropped. The way out is [`Sensitive::reveal`],
//! easy to find in a review.

use std::fmt;

use bytes::Bytes;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// A secret. Cheap to clone: every clone is the same memory.
///
/// Equality takes the same time whatever differs.
#[derive(Clone, Default)]
pub struct Sensitive(Bytes);

impl Sensitive {
    /// Takes the bytes over, without a copy: they are wiped when the last clone is dropped.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Bytes::from_owner(Zeroizing::new(bytes.into())))
    }

    /// The bytes themselves. Whoever calls this hands a secret out.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as text, if they are text. Whoever calls this hands a secret out.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The same memory as a frame carries it, wiped when that was sent and all clones are gone.
    pub fn to_wire(&self) -> Bytes {
        self.0.clone()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A copy, for what arrived: the frame it came in belongs to the transport and cannot be wiped.
impl From<Bytes> for Sensitive {
    fn from(received: Bytes) -> Self {
        Self::new(received.to_vec())
    }
}

/// The same.
impl From<&[u8]> for Sensitive {
    fn from(received: &[u8]) -> Self {
        Self::new(received)
    }
}

impl PartialEq for Sensitive {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Sensitive {}

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} hidden bytes]", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_its_length_alone() {
        let secret = Sensitive::new("hunter2");
        assert_eq!(format!("{secret:?} {secret:#?}"), "[7 hidden bytes] [7 hidden bytes]");
        assert_eq!(secret.as_str(), Some("hunter2"));
        let panic = std::panic::catch_unwind(|| assert_eq!(secret, Sensitive::new("other")));
        let said = panic.expect_err("they differ").downcast::<String>().expect("a text");
        assert!(!said.contains("hunter2") && !said.contains("other"), "{said}");
    }

    #[test]
    fn equality_is_of_the_bytes() {
        assert_eq!(Sensitive::new("a"), Sensitive::from(Bytes::from_static(b"a")));
        assert_ne!(Sensitive::new("a"), Sensitive::new("ab"));
        assert_eq!(Sensitive::default(), Sensitive::new(""));
    }

    #[test]
    fn clones_and_frames_share_memory_so_that_there_is_one_place_to_wipe() {
        let secret = Sensitive::new("hunter2");
        assert_eq!(secret.reveal().as_ptr(), secret.clone().reveal().as_ptr());
        assert_eq!(secret.reveal().as_ptr(), secret.to_wire().as_ptr());
        // The frame outlives the secret and is whole.
        let frame = secret.to_wire();
        drop(secret);
        assert_eq!(&frame[..], b"hunter2");
    }
}
