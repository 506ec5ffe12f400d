//! The tokens by which the broker knows the programs it started.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The tokens of the programs that are running now. Cheap to clone: every clone is the same set.
#[derive(Clone, Default)]
pub struct Tokens {
    live: Arc<Mutex<Vec<String>>>,
    /// How many commands are supervised.
    commands: Arc<AtomicUsize>,
}

/// The token of one start of a program, valid until this is dropped.
#[must_use = "dropping it makes the token invalid"]
pub(super) struct Issued {
    tokens: Tokens,
    token: String,
}

impl Tokens {
    /// Whether `token` belongs to a program that is running.
    pub fn contains(&self, token: &str) -> bool {
        // All of them, and each to its end, so that the time taken tells nothing of what is right.
        self.live().iter().fold(false, |found, live| found | same(live, token))
    }

    /// Makes a token that nobody can guess: 128 random bits, other ones for every start.
    pub(super) fn issue(&self) -> Issued {
        let token = format!("{:032x}", rand::random::<u128>());
        self.live().push(token.clone());
        Issued { tokens: self.clone(), token }
    }

    /// The number of the next command, from 1.
    pub(super) fn number(&self) -> usize {
        self.commands.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn live(&self) -> MutexGuard<'_, Vec<String>> {
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
        self.tokens.live().retain(|live| *live != self.token);
    }
}

fn same(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_while_its_program_runs_and_only_then() {
        let tokens = Tokens::default();
        let (one, two) = (tokens.issue(), tokens.issue());
        let (first, second) = (one.reveal().to_owned(), two.reveal().to_owned());
        assert_ne!(first, second);
        assert_eq!(first.len(), 32);
        assert!(tokens.clone().contains(&first));
        assert!(!tokens.contains("") && !tokens.contains(&first[1..]));
        drop(one);
        assert!(!tokens.contains(&first) && tokens.contains(&second));
    }

    #[test]
    fn tokens_do_not_print() {
        let tokens = Tokens::default();
        let issued = tokens.issue();
        assert_eq!(format!("{tokens:?}"), "Tokens(1 live)");
        drop(issued);
    }
}
