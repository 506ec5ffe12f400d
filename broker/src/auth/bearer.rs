//! A token as a caller shows it, and who can say whose it is.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use broker_secret::Sensitive;
use futures::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Caller, Identity};

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
/// costs more than all else at the entrance. Whose it is is asked for each of them; if it is still the same
/// one's, there is no need to make another [`Caller`] of it.
#[derive(Debug, Default)]
pub struct LastShown(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    token: Option<Bearer>,
    caller: Option<Arc<Caller>>,
}

impl LastShown {
    /// What a caller shows now.
    pub(super) fn or(&self, token: &[u8]) -> Bearer {
        let last = &mut self.last().token;
        let is_same =
            |last: &&Bearer| last.text.as_ref().is_some_and(|text| is_same(text.reveal(), token));
        match last.as_ref().filter(is_same) {
            Some(last) => last.clone(),
            None => last.insert(Bearer::shown(token)).clone(),
        }
    }

    /// Who shows it, and is called this.
    pub(super) fn caller(&self, at: &Caller, token: Bearer, holder: Holder) -> Arc<Caller> {
        let last = &mut self.last().caller;
        match last.as_ref().filter(|last| last.is_again(at, &token, &holder)) {
            Some(again) => {
                again.expect_much();
                Arc::clone(again)
            }
            None => Arc::clone(last.insert(Arc::new(at.clone().holding(token, holder)))),
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Bearer {
    fn eq(&self, other: &Self) -> bool {
        is_same(&self.digest, &other.digest)
    }
}

/// In the same time whatever differs, but for the length. Eight bytes at once, as it is asked for every call:
/// what differs is gathered, and looked at in the end.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let ((ones, one_rest), (others, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let words = ones.iter().zip(others);
    let different = words.fold(0, |different, (one, other)| {
        different | u64::from_ne_bytes(*one) ^ u64::from_ne_bytes(*other)
    });
    let same = different.ct_eq(&0) & one_rest.ct_eq(other_rest);
    one.len() == other.len() && bool::from(same)
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
    /// Whose token this is, if that is known here without asking anybody.
    fn knows(&self, _token: &Bearer) -> Option<Holder> {
        None
    }

    /// Whose token this is; `None` if it is not known here, or no longer.
    fn holder(&self, token: Bearer) -> BoxFuture<'_, Result<Option<Holder>, CannotTell>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::ConnectionId;

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

    #[test]
    fn a_caller_is_made_anew_only_when_something_about_it_changes() {
        let last = LastShown::default();
        let at = |number, address: &str| Caller::anonymous(ConnectionId(number), address.into());
        let holder = |name: &str, expires| Holder {
            identity: Identity::token(name),
            expires,
            by_text: false,
        };
        let (here, alice) = (at(1, "here"), holder("alice", None));
        let known = last.caller(&here, last.or(b"one"), alice.clone());
        let again = |at: &Caller, token: &[u8], holder: &Holder| {
            let before = last.caller(&here, last.or(b"one"), alice.clone());
            let now = last.caller(at, last.or(token), holder.clone());
            assert_eq!((now.connection, &now.address), (at.connection, &at.address));
            assert_eq!(now.identity, holder.identity);
            Arc::ptr_eq(&before, &now)
        };
        assert!(again(&here, b"one", &alice));
        assert!(known.in_audit().is_some(), "it comes again and again");
        assert!(!again(&here, b"two", &alice), "another token");
        assert!(!again(&here, b"one", &holder("bob", None)), "somebody else's by now");
        assert!(
            !again(&here, b"one", &holder("alice", Some(SystemTime::UNIX_EPOCH))),
            "for a time"
        );
        assert!(!again(&here, b"one", &Holder { by_text: true, ..alice.clone() }), "is to be kept");
        assert!(!again(&at(2, "here"), b"one", &alice) && !again(&at(1, "there"), b"one", &alice));
    }

    #[test]
    fn texts_are_the_same_only_to_the_last_byte() {
        let text = b"mb_0123456789abcdef";
        assert!(is_same(text, text) && is_same(b"", b""));
        for at in 0..text.len() {
            let mut other = *text;
            other[at] ^= 1;
            assert!(!is_same(text, &other) && !is_same(text, &text[..at]), "{at}");
        }
    }
}
