//! Whether the API server can be reached, and since when not.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, interval, timeout};
use tracing::{info, warn};

use super::{Kubernetes, trouble};

/// How often the API server is asked for a sign of life. A watch would not show that it is away:
/// nothing may have changed.
const ASK_EVERY: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Contact(Mutex<State>);

#[derive(Debug)]
struct State {
    heard: Instant,
    last_good: Option<SystemTime>,
    /// Why it cannot be reached now.
    lost: Option<String>,
}

impl Contact {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { heard: Instant::now(), last_good: None, lost: None }))
    }

    /// Says whether that is news.
    fn heard(&self) -> bool {
        let mut state = self.state();
        let is_news = state.lost.take().is_some() || state.last_good.is_none();
        state.heard = Instant::now();
        state.last_good = Some(SystemTime::now());
        is_news
    }

    /// Says whether that is news.
    fn lost(&self, why: String) -> bool {
        self.state().lost.replace(why).is_none()
    }

    pub(super) fn last_good(&self) -> Option<SystemTime> {
        self.state().last_good
    }

    /// How long ago it was last heard, if it cannot be reached.
    pub(super) fn age(&self) -> Option<Duration> {
        let state = self.state();
        state.lost.as_ref().map(|_| state.heard.elapsed())
    }

    pub(super) fn trouble(&self) -> Option<String> {
        let state = self.state();
        let why = state.lost.as_ref()?;
        let seconds = state.heard.elapsed().as_secs();
        Some(format!("the API server cannot be reached for {seconds} s: {why}"))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kubernetes {
    /// Asks for a sign of life, again and again.
    pub(super) async fn keep_in_touch(&self) {
        let mut looks = interval(ASK_EVERY);
        loop {
            looks.tick().await;
            match timeout(ANSWER_WITHIN, self.client.apiserver_version()).await {
                Ok(Ok(version)) => {
                    if self.contact.heard() {
                        info!(version = version.git_version, "in touch with the API server");
                    }
                }
                Ok(Err(error)) => self.out_of_touch(trouble::words(&error)),
                Err(_) => self.out_of_touch(format!("no answer within {ANSWER_WITHIN:?}")),
            }
        }
    }

    fn out_of_touch(&self, why: String) {
        if self.contact.lost(why.clone()) {
            warn!(why, "the API server cannot be reached; going on with what was read before");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_known_has_an_age_only_while_the_api_server_is_away() {
        let contact = Contact::new();
        assert!(contact.heard(), "the first time is news");
        assert!(!contact.heard());
        assert_eq!(contact.age(), None);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(contact.lost("refused".to_owned()));
        assert!(!contact.lost("refused".to_owned()), "no news any more");
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(contact.age(), Some(Duration::from_secs(7)));
        let trouble = contact.trouble().unwrap();
        assert_eq!(trouble, "the API server cannot be reached for 7 s: refused");
        assert!(contact.heard());
        assert_eq!((contact.age(), contact.trouble()), (None, None));
    }
}
