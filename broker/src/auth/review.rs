//! Tokens that somebody else issued and has to be asked about: those of service accounts.
//!
//! Whoever issued them must not be asked too often: thousands of drivers that come back together have
//! kept an API server busy for minutes elsewhere. So answers are kept by the digest of the token, a
//! token is asked about once however many calls show it, what is plainly not for us is not asked about
//! at all, and the rest has to keep to a pace.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use broker_secret::Sensitive;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::{Authenticator, Bearer, CannotTell, Holder, Identity};
use crate::metrics::Metrics;

/// How long a review may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A token that is not known may become so: its account may have been made a moment ago.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);
/// After a review without an answer.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// After a quiet time, so many seconds' worth at once.
const BURST: u32 = 2;
/// Answers that are kept.
const MOST: usize = 20_000;
/// Larger tokens are not for us.
const LARGEST: usize = 16 * 1024;

/// Whoever issued tokens, and can be asked.
pub trait Reviewer: Send + Sync + fmt::Debug {
    /// Whose token this is, if it is good for us; an error if that cannot be told now.
    fn review(&self, token: Arc<Sensitive>)
    -> BoxFuture<'static, Result<Option<Identity>, String>>;
}

/// Knows tokens by asking a [`Reviewer`].
pub struct Reviewed {
    reviewer: Arc<dyn Reviewer>,
    audience: String,
    /// For how long an answer is good without asking again.
    fresh: Duration,
    pace: DefaultDirectRateLimiter,
    tokens: Mutex<HashMap<[u8; 32], Entry>>,
    metrics: Metrics,
}

struct Entry {
    last: Option<Answer>,
    /// Not before that time, if there is an answer to go on with.
    ask_again: Instant,
    asking: Option<Asking>,
}

#[derive(Clone)]
struct Answer {
    at: Instant,
    holder: Option<Holder>,
}

type Asking = Shared<BoxFuture<'static, Result<Option<Identity>, Arc<str>>>>;

impl Reviewed {
    /// Tokens for `audience`. Answers are good for `fresh`, and where no new one can be had until the
    /// token expires. There are at most `rate` reviews in a second.
    pub fn new(
        reviewer: Arc<dyn Reviewer>,
        audience: String,
        fresh: Duration,
        rate: NonZeroU32,
    ) -> Self {
        let quota = Quota::per_second(rate)
            .allow_burst(rate.saturating_mul(NonZeroU32::new(BURST).expect("not zero")));
        let (pace, tokens) = (RateLimiter::direct(quota), Mutex::default());
        Self { reviewer, audience, fresh, pace, tokens, metrics: Metrics::default() }
    }

    /// The same, where it can be seen how often it asks.
    pub fn counted(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    async fn look(&self, token: Bearer) -> Result<Option<Holder>, CannotTell> {
        let Some(text) = token.text() else { return Ok(None) };
        let Some(expires) = meant_for(text.reveal(), &self.audience) else { return Ok(None) };
        if expires.is_some_and(|at| at <= SystemTime::now()) {
            self.tokens().remove(&token.digest());
            return Ok(None);
        }
        let asking = match self.known(token.digest(), text)? {
            Known::Answer(holder) => return Ok(holder),
            Known::Asking(asking) => asking,
        };
        let answer = asking
            .await
            .map(|identity| identity.map(|identity| Holder { identity, expires, by_text: true }));
        self.learn(token.digest(), answer)
    }

    /// What is known already, or who asks.
    fn known(&self, digest: [u8; 32], text: &Arc<Sensitive>) -> Result<Known, CannotTell> {
        let now = Instant::now();
        let mut tokens = self.tokens();
        if let Some(entry) = tokens.get(&digest) {
            if let Some(asking) = &entry.asking {
                self.metrics.token_reviewed("cached");
                return Ok(Known::Asking(asking.clone()));
            }
            if let Some(last) = &entry.last
                && (now < last.at + self.good_for(last) || now < entry.ask_again)
            {
                self.metrics.token_reviewed("cached");
                return Ok(Known::Answer(last.holder.clone()));
            }
        }
        let known = tokens.get(&digest).and_then(|entry| entry.last.clone());
        if self.pace.check().is_err() {
            // Better the answer of a while ago than none.
            let known = known.and_then(|last| last.holder);
            self.metrics.token_reviewed(if known.is_some() { "cached" } else { "refused" });
            return match known {
                Some(holder) => Ok(Known::Answer(Some(holder))),
                None => Err(CannotTell {
                    why: "too many new tokens at once".into(),
                    retry_after: ASK_AGAIN.mul_f64(0.5 + rand::random::<f64>()),
                }),
            };
        }
        make_room(&mut tokens, now);
        let review = self.reviewer.review(Arc::clone(text));
        let metrics = self.metrics.clone();
        let review = async move {
            let answer = match timeout(ANSWER_WITHIN, review).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(format!("no answer within {ANSWER_WITHIN:?}").into()),
            };
            metrics.token_reviewed(if answer.is_ok() { "answered" } else { "failed" });
            answer
        };
        let asking = review.boxed().shared();
        let entry = Entry { last: known, ask_again: now, asking: Some(asking.clone()) };
        tokens.insert(digest, entry);
        Ok(Known::Asking(asking))
    }

    /// Keeps an answer; where there was none, an earlier one goes on to be good.
    fn learn(
        &self,
        digest: [u8; 32],
        answer: Result<Option<Holder>, Arc<str>>,
    ) -> Result<Option<Holder>, CannotTell> {
        let now = Instant::now();
        let mut tokens = self.tokens();
        match answer {
            Ok(holder) => {
                let last = Some(Answer { at: now, holder: holder.clone() });
                tokens.insert(digest, Entry { last, ask_again: now, asking: None });
                Ok(holder)
            }
            Err(why) => {
                let entry = tokens.get_mut(&digest);
                let last = entry.and_then(|entry| {
                    entry.asking = None;
                    entry.ask_again = now + ASK_AGAIN;
                    entry.last.as_ref()?.holder.clone()
                });
                if last.is_none() {
                    tokens.remove(&digest);
                }
                match last {
                    Some(holder) => Ok(Some(holder)),
                    None => Err(CannotTell { why, retry_after: ASK_AGAIN }),
                }
            }
        }
    }

    fn good_for(&self, answer: &Answer) -> Duration {
        if answer.holder.is_some() { self.fresh } else { UNKNOWN_FOR.min(self.fresh) }
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<[u8; 32], Entry>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Known {
    Answer(Option<Holder>),
    Asking(Asking),
}

impl Authenticator for Reviewed {
    fn holder(&self, token: Bearer) -> BoxFuture<'_, Result<Option<Holder>, CannotTell>> {
        self.look(token).boxed()
    }
}

impl fmt::Debug for Reviewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.tokens().len();
        f.debug_struct("Reviewed").field("audience", &self.audience).field("kept", &kept).finish()
    }
}

/// When there are too many answers, those go that say nothing any more, and then the oldest half.
fn make_room(tokens: &mut HashMap<[u8; 32], Entry>, now: Instant) {
    if tokens.len() < MOST {
        return;
    }
    let wall = SystemTime::now();
    tokens.retain(|_, entry| {
        let holder = entry.last.as_ref().and_then(|last| last.holder.as_ref());
        let is_good = holder.is_some_and(|holder| holder.expires.is_none_or(|at| at > wall));
        is_good || entry.asking.is_some()
    });
    if tokens.len() >= MOST {
        let age = |entry: &Entry| entry.last.as_ref().map_or(Duration::ZERO, |last| now - last.at);
        let mut ages: Vec<_> = tokens.values().map(age).collect();
        ages.sort_unstable();
        let median = ages[ages.len() / 2];
        tokens.retain(|_, entry| age(entry) < median || entry.asking.is_some());
    }
}

/// What a token says of itself. Nobody has verified it: it is only good for not asking.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Audiences,
    exp: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Audiences {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

/// When a token expires, by its own word; `None` if it is no token for this audience.
fn meant_for(token: &[u8], audience: &str) -> Option<Option<SystemTime>> {
    let token = std::str::from_utf8(token).ok().filter(|token| token.len() <= LARGEST)?;
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    let ours = match &claims.aud {
        Audiences::None => false,
        Audiences::One(one) => one == audience,
        Audiences::Several(several) => several.iter().any(|one| one == audience),
    };
    let time = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    ours.then(|| claims.exp.and_then(time))
}

#[cfg(test)]
mod tests;
