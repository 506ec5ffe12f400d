//! Why the API server did not do what we asked, in words for operators. Pure.

use std::time::Duration;

use kube::{core::Status, runtime::watcher};

use super::Kind;

/// What can be the matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It does not know what we asked for.
    Unknown,
    /// It does not let us, in its own words.
    Forbidden(String),
    /// Anything else: it is away, or busy, or hung up.
    Other(String),
}

impl Trouble {
    pub(super) fn slow(within: Duration) -> Self {
        Self::Other(format!("no answer within {within:?}"))
    }

    /// What is the matter with the classes of a kind, and what to do.
    pub(super) fn of_kind(&self, kind: &Kind) -> String {
        match self {
            Self::Unknown => format!(
                "the API server knows no {kind}: install its CustomResourceDefinition, \
                 or correct the driver's kind"
            ),
            Self::Forbidden(why) => format!(
                "the broker may not read {kind}: let its service account list and watch it ({why})"
            ),
            Self::Other(why) => format!("{kind} cannot be read: {why}"),
        }
    }

    /// The same for a secret. That it does not exist is no trouble, but an answer.
    pub(super) fn of_secret(&self, name: &super::SecretName) -> String {
        match self {
            Self::Unknown => format!("the secret {name} does not exist"),
            Self::Forbidden(why) => format!(
                "the broker may not read the secret {name}: let its service account get and watch \
                 secrets there ({why})"
            ),
            Self::Other(why) => format!("the secret {name} cannot be read: {why}"),
        }
    }
}

impl From<&Status> for Trouble {
    fn from(status: &Status) -> Self {
        match status.code {
            404 => Self::Unknown,
            401 => Self::Forbidden("it does not know who we are".to_owned()),
            403 => Self::Forbidden(status.message.clone()),
            _ => Self::Other(status.message.clone()),
        }
    }
}

impl From<&kube::Error> for Trouble {
    fn from(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (&**status).into(),
            kube::Error::Discovery(_) => Self::Unknown,
            other => Self::Other(words(other)),
        }
    }
}

impl From<&watcher::Error> for Trouble {
    fn from(error: &watcher::Error) -> Self {
        use watcher::Error::{
            InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
        };
        match error {
            InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => error.into(),
            WatchError(status) => (&**status).into(),
            NoResourceVersion => Self::Other(error.to_string()),
        }
    }
}

/// The innermost reason: the layers around it only say that there was one.
pub(super) fn words(error: &kube::Error) -> String {
    innermost(error)
}

pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> Kind {
        Kind { api_version: "a.b/v1".into(), kind: "XClass".into() }
    }

    #[test]
    fn each_trouble_says_what_to_do() {
        let status = |code| Status { code, ..Status::failure("the message", "Reason") };
        for (code, says) in [
            (404, "the API server knows no XClass (a.b/v1): install its CustomResourceDefinition"),
            (403, "let its service account list and watch it (the message)"),
            (401, "does not know who we are"),
            (500, "XClass (a.b/v1) cannot be read: the message"),
        ] {
            let text = Trouble::from(&status(code)).of_kind(&kind());
            assert!(text.contains(says), "{text}");
        }
    }
}
