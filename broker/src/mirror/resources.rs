//! Where the objects are: a cluster, or in tests what plays one.

use std::fmt;

use broker_crds::driver::Driver;
use futures::{future::BoxFuture, stream::BoxStream};

use super::News;

/// An object as it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub name: String,
    pub uid: String,
    /// Another after each change.
    pub version: String,
    pub driver: Driver,
}

/// What is heard of the objects.
#[derive(Clone, Debug)]
pub enum Seen {
    /// These are all.
    All(Vec<Object>),
    Changed(Box<Object>),
    Gone(String),
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The cluster does not know the kind, or the namespace.
    #[error("{0}")]
    Missing(String),
    #[error("{0}")]
    Forbidden(String),
    /// It is not any more what it was when we last saw it.
    #[error("somebody else changed it")]
    Conflict,
    /// This object cannot be written; others may.
    #[error("{0}")]
    Refused(String),
    /// The cluster is away, or busy.
    #[error("{0}")]
    Other(String),
}

/// The objects of a namespace.
pub trait Resources: Send + Sync + fmt::Debug + 'static {
    /// All objects, and then whatever changes. After an error it goes on where it can, and starts with
    /// all objects again where it cannot.
    fn watch(&self) -> BoxStream<'static, Result<Seen, Failed>>;

    /// Writes an object, if it is still the `version` that was seen, or whatever there is if none was.
    fn apply(
        &self,
        name: &str,
        version: Option<&str>,
        driver: &Driver,
    ) -> BoxFuture<'static, Result<(), Failed>>;

    /// Removes an object, if it is still what was seen. That it is gone already is fine.
    fn remove(&self, seen: &Object) -> BoxFuture<'static, Result<(), Failed>>;

    /// Tells something of a driver; its object may not be there.
    fn tell(&self, news: &News, uid: Option<&str>) -> BoxFuture<'static, Result<(), Failed>>;
}
