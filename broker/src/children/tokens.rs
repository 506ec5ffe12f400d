//! The tokens by which the broker knows the programs it started.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{FutureExt as _, future::BoxFuture};
use zeroize::Zeroizing;

use crate::auth::{Authenticator, Bearer, CannotTell, Holder, Identity};

/// The tokens of the programs that are running now. Cheap to clone: every clone is the same set.
#[derive(Clone, Default)]
pub struct Tokens {
    live: Arc<Mutex<Vec<(Bearer, Identity)>>>,
    /// How many commands are supervised.
    commands: Arc<AtomicUsize>,
}

/// The token of one start of a program, valid until this is dropped.
#[must_use = "dropping it makes the token invalid"]
pub(super) struct Issued {
    tokens: Tokens,
    token: Zeroizing<String>,
}

impl Tokens {
    /// Whose token this is, while its program runs.
    fn whose(&self, token: &Bearer) -> Option<Identity> {
        let live = self.live();
        live.iter().find(|(live, _)| live == token).map(|(_, identity)| identity.clone())
    }

    #[cfg(test)]
    pub(super) fn know(&self, token: &str) -> bool {
        self.whose(&Bearer::new(token.as_bytes())).is_some()
    }

    /// Makes a token that nobody can guess: 128 random bits, other ones for every start.
    pub(super) fn issue(&self, program: &str) -> Issued {
        let token = Zeroizing::new(format!("{:032x}", rand::random::<u128>()));
        self.live().push((Bearer::new(token.as_bytes()), Identity::child(program)));
        Issued { tokens: self.clone(), token }
    }

    /// The number of the next command, from 1.
    pub(super) fn number(&self) -> usize {
        self.commands.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn live(&self) -> MutexGuard<'_, Vec<(Bearer, Identity)>> {
        // A list of tokens is whole at every moment.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({} live)", self.live().len())
    }
}

impl Issued {
    /// For the environment of the program, and for nothing else.
    pub(super) fn reveal(&self) -> &str {
        &self.token
    }
}

impl Drop for Issued {
    fn drop(&mut self) {
        let ours = Bearer::new(self.token.as_bytes());
        self.tokens.live().retain(|(live, _)| *live != ours);
    }
}

impl Authenticator for Tokens {
    fn holder(&self, token: Bearer) -> BoxFuture<'_, Result<Option<Holder>, CannotTell>> {
        let holder = self.knows(&token);
        async { Ok(holder) }.boxed()
    }

    fn knows(&self, token: &Bearer) -> Option<Holder> {
        let of = |identity| Holder { identity, expires: None, by_text: false };
        self.whose(token).map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_while_its_program_runs_and_only_then() {
        let tokens = Tokens::default();
        let (one, two) = (tokens.issue("one"), tokens.issue("two"));
        let (first, second) = (one.reveal().to_owned(), two.reveal().to_owned());
        let whose = |token: &str| tokens.whose(&Bearer::new(token.as_bytes()));
        assert_ne!(first, second);
        assert_eq!(first.len(), 32);
        assert_eq!(whose(&first), Some(Identity::child("one")));
        assert!(whose("").is_none() && whose(&first[1..]).is_none());
        drop(one);
        assert!(whose(&first).is_none() && whose(&second).is_some());
    }

    #[test]
    fn tokens_do_not_print() {
        let tokens = Tokens::default();
        let issued = tokens.issue("sim");
        assert_eq!(format!("{tokens:?}"), "Tokens(1 live)");
        drop(issued);
    }
}
