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

use super::{Caller, Denied, Identity};

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
pub struct LastShown(Mutex<Option<Shown>>);

#[derive(Debug)]
struct Shown {
    token: Bearer,
    /// Whose it was then.
    caller: Option<Arc<Caller>>,
}

impl LastShown {
    /// What a caller shows now.
    pub(super) fn or(&self, token: &[u8]) -> Bearer {
        self.look_at(token, |shown| shown.token.clone())
    }

    /// Who shows this now, at the place where it was shown before, if there is a `holder` of it.
    pub(super) fn caller(
        &self,
        token: &[u8],
        at: impl FnOnce() -> Result<Caller, Denied>,
        holder: impl FnOnce(&Bearer) -> Option<Holder>,
    ) -> Option<Result<Arc<Caller>, Denied>> {
        self.look_at(token, |Shown { token, caller }| {
            let holder = holder(token)?;
            if let Some(caller) = caller.as_ref().filter(|caller| caller.is_of(&holder)) {
                caller.expect_much();
                return Some(Ok(Arc::clone(caller)));
            }
            let new = at().map(|at| Arc::new(at.holding(token.clone(), holder)));
            *caller = new.as_ref().ok().cloned();
            Some(new)
        })
    }

    fn look_at<T>(&self, token: &[u8], look: impl FnOnce(&mut Shown) -> T) -> T {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.take_if(|shown| !shown.is(token));
        look(last.get_or_insert_with(|| Shown { token: Bearer::shown(token), caller: None }))
    }
}

impl Shown {
    fn is(&self, token: &[u8]) -> bool {
        self.token.text.as_ref().is_some_and(|text| is_same(text.reveal(), token))
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
    /// Whose token this is, if that is known here without asking anybody. Asked for every call, and under a
    /// lock of its connection: it does not wait.
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
        let caller = |token: &[u8], holder: &Holder| {
            let at = || Ok(Caller::anonymous(ConnectionId(1), "here".into()));
            let caller = last.caller(token, at, |_| Some(holder.clone())).unwrap().unwrap();
            assert_eq!(caller.identity, holder.identity);
            caller
        };
        let holder = |name: &str, expires| Holder {
            identity: Identity::token(name),
            expires,
            by_text: false,
        };
        let alice = holder("alice", None);
        let known = caller(b"one", &alice);
        let again = |token: &[u8], holder: &Holder| {
            let before = caller(b"one", &alice);
            Arc::ptr_eq(&before, &caller(token, holder))
        };
        assert!(again(b"one", &alice) && Arc::ptr_eq(&known, &caller(b"one", &alice)));
        assert!(known.in_audit().is_some(), "it comes again and again");
        assert!(!again(b"two", &alice), "another token");
        assert!(!again(b"one", &holder("bob", None)), "somebody else's by now");
        assert!(!again(b"one", &holder("alice", Some(SystemTime::UNIX_EPOCH))), "for a time");
        assert!(!again(b"one", &Holder { by_text: true, ..alice.clone() }), "is to be kept");
        let nobody = last.caller(b"one", || panic!("nobody is asked for"), |_| None);
        assert!(nobody.is_none(), "it is known no longer");
    }

    #[test]
    fn texts_are_the_same_only_to_the_last_byte() {
        let text = b"mb_0123456789abcdef";
        assert!(is_same(text, text) && is_same(b"", b""));
        for at in 0..text.len() {
            let mut other = *text;
            other[at] ^= 1;
            assert!(!is_same(text, &other) && !is_same(text, &text[..at]), "{at}");
            // The same difference twice does not make up for itself.
            if let Some(again) = other.get_mut(at + 8) {
                *again ^= 1;
                assert!(!is_same(text, &other), "{at}");
            }
        }
    }
}
