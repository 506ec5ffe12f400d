//! A token as a caller shows it, and who can say whose it is.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use broker_secret::Sensitive;
use futures::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Identity;

/// The digest of a token, and the token itself only where whoever issued it has to be asked.
///
/// Equality takes the same time whatever differs.
#[derive(Clone)]
pub struct Bearer {
    digest: [u8; 32],
    text: Option<Arc<Sensitive>>,
}

impl Bearer {
    pub fn new(token: &[u8]) -> Self {
        Self { digest: Sha256::digest(token).into(), text: None }
    }

    /// As a caller showed it, with its text.
    pub(super) fn shown(token: &[u8]) -> Self {
        Self { text: Some(Arc::new(Sensitive::new(token))), ..Self::new(token) }
    }

    /// From the `sha256` of a token in hexadecimal.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).ok()?;
        Some(Self { digest, text: None })
    }

    pub(super) fn to_hex(&self) -> String {
        hex::encode(self.digest)
    }

    /// What the token can be known by without being kept.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.digest
    }

    pub(super) fn text(&self) -> Option<&Arc<Sensitive>> {
        self.text.as_ref()
    }

    /// Where nobody needs its text any more.
    pub(super) fn without_text(self) -> Self {
        Self { text: None, ..self }
    }
}

/// The token that was last shown on a connection: nearly all of its calls show the same, and a digest
/// costs more than all else at the entrance. Whose it is is asked for each of them.
#[derive(Debug, Default)]
pub struct LastShown(Mutex<Option<Bearer>>);

impl LastShown {
    /// What a caller shows now.
    pub(super) fn or(&self, token: &[u8]) -> Bearer {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |last: &&Bearer| {
            last.text.as_ref().is_some_and(|text| bool::from(text.reveal().ct_eq(token)))
        };
        match last.as_ref().filter(is_same) {
            Some(last) => last.clone(),
            None => last.insert(Bearer::shown(token)).clone(),
        }
    }
}

impl PartialEq for Bearer {
    fn eq(&self, other: &Self) -> bool {
        self.digest.ct_eq(&other.digest).into()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

/// Whose token it is, and until when.
#[derive(Clone, Debug)]
pub struct Holder {
    pub identity: Identity,
    pub expires: Option<SystemTime>,
    /// Whether its text is needed to look again.
    pub by_text: bool,
}

/// Whether a token is known cannot be told at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotTell {
    pub why: Arc<str>,
    pub retry_after: Duration,
}

/// Somebody who knows tokens: the token file, the driver programs that we started, and in a cluster
/// the API server.
pub trait Authenticator: Send + Sync + fmt::Debug {
    /// Whose token this is; `None` if it is not known here, or no longer.
    fn holder(&self, token: Bearer) -> BoxFuture<'_, Result<Option<Holder>, CannotTell>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_that_was_last_shown_is_known_again_and_another_is_not_taken_for_it() {
        let last = LastShown::default();
        let first = last.or(b"one");
        let again = last.or(b"one");
        assert!(Arc::ptr_eq(first.text().unwrap(), again.text().unwrap()));
        let other = last.or(b"two");
        assert!(other == Bearer::new(b"two") && other != first);
        assert!(last.or(b"one") == Bearer::new(b"one"));
    }
}
