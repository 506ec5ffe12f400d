//! The files that say who may do what, read again when they change.
//!
//! Their content is looked at every few seconds rather than waiting to be notified: that works the same
//! for a file written in place, one exchanged by a link (as Kubernetes mounts them), and on a network.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{Auth, Policy, TokenFile};

const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The policy and token files, and what they said last.
#[derive(Debug)]
pub struct Files {
    policy: Option<File>,
    tokens: Option<(TokenFile, File)>,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    /// What is in force.
    last: String,
    /// What was seen there since. It is taken over when it is seen a second time: half a file, caught
    /// while it was written, may be a valid one that allows more than the whole.
    seen: Option<String>,
}

impl Files {
    /// Reads both. At the start a mistake is an error; later on the last good state stays in force.
    pub fn open(
        policy: Option<&Path>,
        tokens: Option<&Path>,
    ) -> Result<(Self, Option<Policy>, Option<TokenFile>), String> {
        let mut files = Self { policy: None, tokens: None };
        let mut first = None;
        if let Some(path) = policy {
            let text = read(path)?;
            let policy = Policy::read(&text).map_err(|error| in_file("policy", path, &error))?;
            first = Some(policy);
            files.policy = Some(File::new(path, text));
        }
        if let Some(path) = tokens {
            let text = read(path)?;
            let tokens =
                TokenFile::new(&text).map_err(|error| in_file("token file", path, &error))?;
            files.tokens = Some((tokens, File::new(path, text)));
        }
        let tokens = files.tokens.as_ref().map(|(tokens, _)| tokens.clone());
        Ok((files, first, tokens))
    }

    /// Follows the files for as long as the broker runs.
    pub async fn follow(mut self, auth: Auth, stopped: CancellationToken) {
        if self.policy.is_none() && self.tokens.is_none() {
            return;
        }
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stopped.run_until_cancelled(looks.tick()).await.is_some() {
            let looking = auth.clone();
            let looked = tokio::task::spawn_blocking(move || {
                self.look(&looking);
                self
            });
            match looked.await {
                Ok(files) => self = files,
                Err(error) => {
                    // Nothing is followed any more, and that must not go unnoticed: streams would
                    // outlive the policy that let them in.
                    tracing::error!(%error, "the policy and token files are followed no longer");
                    let mut problems =
                        auth.0.problems.lock().unwrap_or_else(PoisonError::into_inner);
                    problems
                        .push("the policy and token files are followed no longer: restart".into());
                    return;
                }
            }
        }
    }

    /// Takes over what changed. What is broken is told once and otherwise ignored.
    pub(super) fn look(&mut self, auth: &Auth) {
        let mut problems = Vec::new();
        let mut changed = false;
        if let Some(file) = &mut self.policy {
            let taken = file.news().and_then(|news| {
                let Some(text) = news else { return Ok(false) };
                let policy =
                    Policy::read(&text).map_err(|error| in_file("policy", &file.path, &error))?;
                tracing::info!(rules = policy.len(), "policy taken over");
                if let Some(in_force) = &auth.0.policy {
                    in_force.store(Arc::new(policy));
                }
                file.last = text;
                Ok(true)
            });
            changed |= taken.unwrap_or_else(|problem| {
                problems.push(problem);
                false
            });
        }
        if let Some((tokens, file)) = &mut self.tokens {
            let taken = file.news().and_then(|news| {
                let Some(text) = news else { return Ok(false) };
                tokens.take(&text).map_err(|error| in_file("token file", &file.path, &error))?;
                tracing::info!("tokens taken over");
                file.last = text;
                Ok(true)
            });
            changed |= taken.unwrap_or_else(|problem| {
                problems.push(problem);
                false
            });
        }
        {
            let mut known = auth.0.problems.lock().unwrap_or_else(PoisonError::into_inner);
            for problem in problems.iter().filter(|problem| !known.contains(problem)) {
                tracing::error!(problem, "not taken over; what was there before stays in force");
            }
            *known = problems;
        }
        if changed {
            auth.0.changed.send_replace(());
        }
    }
}

impl File {
    fn new(path: &Path, text: String) -> Self {
        Self { path: path.to_owned(), last: text, seen: None }
    }

    /// What the file says now, if that is something else than what is in force, and stays.
    fn news(&mut self) -> Result<Option<String>, String> {
        let text = read(&self.path)?;
        let seen = self.seen.replace(text.clone());
        Ok((text != self.last && seen.as_ref() == Some(&text)).then_some(text))
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn in_file(what: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("in the {what} {}: {error}", path.display())
}
