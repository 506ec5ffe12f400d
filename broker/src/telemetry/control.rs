//! Changes what is logged while the broker runs: for operators who ask, and on a hangup.

use std::{
    future::pending,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    signal::unix::Signal,
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::Filter;
use crate::config;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Cheap to clone: every clone steers the same log.
#[derive(Clone, Debug)]
pub struct LogControl(Arc<State>);

#[derive(Debug)]
struct State {
    filter: Filter,
    wish: Mutex<Wish>,
    /// When to go back may be another time now.
    changed: Notify,
}

/// By what is logged, and what comes after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub filter: String,
    /// When this one ends, and the one that is in force again then.
    pub back: Option<(Instant, String)>,
}

impl LogControl {
    /// `filter` logs by `at_start` now.
    pub fn new(filter: Filter, at_start: &str) -> Self {
        let wish = Mutex::new(Wish { filter: at_start.to_owned(), back: None });
        Self(Arc::new(State { filter, wish, changed: Notify::new() }))
    }

    pub fn wish(&self) -> Wish {
        self.locked().clone()
    }

    /// Logs by `filter` from now on, or for as long as it `lasts`. Returns what was before.
    pub fn set(&self, filter: &str, lasts: Option<Duration>) -> anyhow::Result<Wish> {
        let mut wish = self.locked();
        self.0.filter.set(filter)?;
        let next = wish.followed_by(filter, lasts.map(|lasts| Instant::now() + lasts));
        self.0.changed.notify_one();
        Ok(std::mem::replace(&mut *wish, next))
    }

    /// Goes back to the filter of before, whenever it is time.
    pub async fn go_back(self, stopped: CancellationToken) {
        loop {
            let back = self.wish().back.map(|(at, _)| at);
            let time = async {
                match back {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = stopped.cancelled() => return,
                () = self.0.changed.notified() => {}
                () = time => self.return_if_due(),
            }
        }
    }

    fn return_if_due(&self) {
        let mut wish = self.locked();
        let Some((_, filter)) = wish.back.take_if(|(at, _)| *at <= Instant::now()) else { return };
        match self.0.filter.set(&filter) {
            Ok(()) => wish.filter.clone_from(&filter),
            Err(error) => return tracing::warn!("the log filter stays as it is: {error:#}"),
        }
        tracing::info!(filter, "log filter is again as before");
    }

    /// On every hangup, logs what the configuration file says by then, or else what was logged at the
    /// start. A file that is wrong changes nothing.
    pub async fn follow(
        self,
        mut hangups: Signal,
        file: Option<PathBuf>,
        at_start: String,
        stopped: CancellationToken,
    ) {
        while let Some(Some(())) = stopped.run_until_cancelled(hangups.recv()).await {
            let filter = match &file {
                Some(file) => config::log_filter(file),
                None => Ok(None),
            };
            let filter = filter.map(|filter| filter.unwrap_or_else(|| at_start.clone()));
            match filter.and_then(|filter| self.set(&filter, None).map(|_| filter)) {
                Ok(filter) => tracing::info!(filter, "log filter read again"),
                Err(error) => tracing::warn!("the log filter stays as it is: {error:#}"),
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, Wish> {
        self.0.wish.lock().expect("no panic while locked")
    }
}

impl Wish {
    /// What to wish for next: one that ends leads back to the last that did not.
    fn followed_by(&self, filter: &str, ends: Option<Instant>) -> Self {
        let lasting = || self.back.as_ref().map_or(&self.filter, |(_, lasting)| lasting).clone();
        Self { filter: filter.to_owned(), back: ends.map(|at| (at, lasting())) }
    }
}

/// What looks like a level and is none, as in `inof`: taken for the name of a module, it would silence
/// all others.
pub fn mistyped(filter: &str) -> Option<&str> {
    let parts = filter.split(',').map(str::trim).filter(|part| !part.is_empty());
    let names_no_level = |part: &&str| !part.contains(['=', '[', ']', ':', '{', '}', '"']);
    let is_level = |part: &&str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(part));
    parts.filter(names_no_level).find(|part| !is_level(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_leads_back_to_the_last_that_did_not() {
        let now = Instant::now();
        let start = Wish { filter: "info".to_owned(), back: None };
        let debug = start.followed_by("debug", Some(now));
        let trace = debug.followed_by("trace", Some(now));
        let back = Some((now, "info".to_owned()));
        assert_eq!(trace, Wish { filter: "trace".to_owned(), back });
        let lasting = trace.followed_by("warn", None);
        assert_eq!(lasting, Wish { filter: "warn".to_owned(), back: None });
    }

    #[test]
    fn a_level_with_a_slip_is_no_module() {
        let mistyped = |filter| super::mistyped(filter);
        assert_eq!(mistyped("inof"), Some("inof"));
        assert_eq!(mistyped("info, broker=debug,dbug"), Some("dbug"));
        for right in
            ["INFO", "info,broker::dispatch=debug", "broker::dispatch", "off", "[op{id=1}]=trace"]
        {
            assert_eq!(mistyped(right), None, "{right}");
        }
    }
}
