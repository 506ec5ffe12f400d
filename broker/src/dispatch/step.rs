//! An ask on its way, from attempt to attempt.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::{ATTEMPTS, Answered, Error, account::Account};
use crate::operation::{Bell, Outcome, Waiter};

/// Where an ask is on its way.
pub(super) enum Step {
    Over(Result<Answered, Error>),
    Waiting(Waiter),
    /// Nothing of ours runs: trying again may help.
    Pause(Pause),
}

/// What is waited for before another attempt.
pub(super) enum Pause {
    Moment,
    /// A driver that comes.
    NoDriver(Error),
    /// Nothing may be sent before this time.
    TooEarly(Instant),
}

impl Step {
    /// Tries again at once, unless it was tried often enough.
    pub(super) fn again(account: &mut Account, error: Error) -> Self {
        if account.attempt > ATTEMPTS {
            return Step::Over(Err(error));
        }
        tracing::debug!(%error, "nothing was sent, trying again");
        account.attempt += 1;
        Step::Pause(Pause::Moment)
    }
}

/// What became of an ask at once.
pub enum Begun {
    Over(Result<Answered, Error>),
    /// [`Dispatcher::conclude`] it when it is over, or at its deadline. Dropped, the caller has left.
    Waiting(Waiting),
    /// It takes more than one attempt.
    Later(Later),
}

pub type Later = BoxFuture<'static, Result<Answered, Error>>;

/// An operation that somebody waits for.
pub struct Waiting {
    pub(super) account: Account,
    pub(super) waiter: Waiter,
    pub(super) deadline: Instant,
}

impl Waiting {
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    pub fn is_over(&self) -> bool {
        self.waiter.is_over()
    }

    /// How it ends, if it does so in time.
    pub(super) async fn outcome(&self) -> Option<Outcome> {
        self.waiter.outcome_by(self.deadline).await
    }

    /// Rings the bell with `number` once it is over.
    pub fn listen(&self, bell: Arc<Bell>, number: usize) {
        self.waiter.listen(bell, number);
    }
}
