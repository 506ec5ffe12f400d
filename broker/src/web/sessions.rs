//! Who logged in with a browser. Kept in memory alone: a restart logs everybody out.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker_secret::Sensitive;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::auth::Caller;

/// However busy.
const LASTS: Duration = Duration::from_secs(12 * 3600);
/// Without a request, and without an open page.
const IDLE: Duration = Duration::from_secs(3600);
/// In all. There are no more than that even if many tokens are stolen.
const MOST: usize = 1_000;
/// Of one identity; the one that was not used for the longest time makes room.
const MOST_EACH: usize = 10;

/// Cheap to clone: every clone is the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<Key, Session>>>);

/// What a session is known by here: a digest of what the browser has, so that nothing in our memory
/// opens it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

#[derive(Debug)]
struct Session {
    caller: Caller,
    began: Instant,
    used: Instant,
}

/// There are as many as there may be.
#[derive(Debug)]
pub(super) struct Full;

impl Sessions {
    /// Returns the secret that the browser is to show from now on.
    pub(super) fn begin(&self, caller: Caller) -> Result<Sensitive, Full> {
        let now = Instant::now();
        let mut sessions = self.lock();
        sessions.retain(|_, session| session.lives(now));
        let own = sessions.iter().filter(|(_, other)| other.caller.identity == caller.identity);
        if own.clone().count() >= MOST_EACH {
            let oldest = own.min_by_key(|(_, session)| session.used).map(|(key, _)| *key);
            oldest.and_then(|key| sessions.remove(&key));
        }
        if sessions.len() >= MOST {
            return Err(Full);
        }
        let random = Zeroizing::new(rand::random::<[u8; 32]>());
        let secret = Sensitive::new(hex::encode(*random));
        sessions.insert(Key::of(secret.reveal()), Session { caller, began: now, used: now });
        Ok(secret)
    }

    /// Who logged in to get this, if that still holds. It was used now.
    pub(super) fn find(&self, key: Key) -> Option<Caller> {
        let now = Instant::now();
        let mut sessions = self.lock();
        let session = sessions.get_mut(&key)?;
        if !session.lives(now) {
            sessions.remove(&key);
            return None;
        }
        session.used = now;
        Some(session.caller.clone())
    }

    pub(super) fn end(&self, key: Key) {
        self.lock().remove(&key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn lives(&self, now: Instant) -> bool {
        now.duration_since(self.began) < LASTS && now.duration_since(self.used) < IDLE
    }
}

impl Key {
    pub(super) fn of(secret: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(secret).into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{auth::Identity, driver::ConnectionId};

    fn caller(name: &str) -> Caller {
        let mut caller = Caller::anonymous(ConnectionId(1), "memory".into());
        caller.identity = Identity::token(name);
        caller
    }

    fn found(sessions: &Sessions, secret: impl AsRef<[u8]>) -> Option<String> {
        sessions.find(Key::of(secret)).map(|caller| caller.identity.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_known_by_its_secret_alone_until_it_is_ended() {
        let sessions = Sessions::default();
        let (alice, bob) = (sessions.begin(caller("alice")), sessions.begin(caller("bob")));
        let (alice, bob) = (alice.unwrap(), bob.unwrap());
        assert_eq!(alice.len(), 64);
        assert_eq!(found(&sessions, alice.reveal()).as_deref(), Some("token:alice"));
        assert_eq!(found(&sessions, &alice.reveal()[1..]), None);
        sessions.end(Key::of(alice.reveal()));
        assert_eq!(found(&sessions, alice.reveal()), None);
        assert_eq!(found(&sessions, bob.reveal()).as_deref(), Some("token:bob"));
        let bob = bob.as_str().unwrap();
        assert!(!format!("{sessions:?}").contains(&bob[..8]));
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_it_is_not_used_for_an_hour() {
        let sessions = Sessions::default();
        let secret = sessions.begin(caller("alice")).unwrap();
        for _ in 0..3 {
            advance(IDLE - Duration::from_secs(1)).await;
            assert!(found(&sessions, secret.reveal()).is_some());
        }
        advance(IDLE).await;
        assert!(found(&sessions, secret.reveal()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_after_twelve_hours_however_busy() {
        let sessions = Sessions::default();
        let secret = sessions.begin(caller("alice")).unwrap();
        for _ in 0..23 {
            advance(IDLE / 2).await;
            assert!(found(&sessions, secret.reveal()).is_some());
        }
        advance(IDLE / 2).await;
        assert!(found(&sessions, secret.reveal()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn of_one_identity_the_session_that_was_not_used_for_longest_makes_room() {
        let sessions = Sessions::default();
        let mut secrets = Vec::new();
        for _ in 0..MOST_EACH {
            secrets.push(sessions.begin(caller("alice")).unwrap());
            advance(Duration::from_secs(1)).await;
        }
        assert!(found(&sessions, secrets[0].reveal()).is_some(), "used again");
        sessions.begin(caller("alice")).unwrap();
        assert!(found(&sessions, secrets[0].reveal()).is_some());
        assert!(found(&sessions, secrets[1].reveal()).is_none());
        assert!(found(&sessions, secrets[2].reveal()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_only_so_many_until_old_ones_are_over() {
        let sessions = Sessions::default();
        for number in 0..MOST {
            sessions.begin(caller(&number.to_string())).unwrap();
        }
        assert!(sessions.begin(caller("one-more")).is_err());
        sessions.begin(caller("7")).unwrap_err();
        advance(IDLE).await;
        sessions.begin(caller("one-more")).unwrap();
        assert_eq!(sessions.lock().len(), 1);
    }
}
