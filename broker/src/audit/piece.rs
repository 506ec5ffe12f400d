//! Pieces that many lines have in common: made once, where what they tell of lives, and copied whole.

use std::sync::Arc;

use super::line::{Line, name};
use crate::{
    auth::Caller,
    driver::{ClassId, SessionId},
};

/// A class as it was asked for, or as it was found.
#[derive(Clone, Debug)]
pub struct Class(Arc<str>);

/// A driver's instance, and its session.
#[derive(Clone, Debug)]
pub struct Driver(Arc<str>);

/// Who asked, and from where.
#[derive(Clone, Debug)]
pub struct Who(Arc<str>);

impl Class {
    /// Anybody's words.
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self(made(|line| {
            line.object(name!("class"), |class| {
                class.text(name!("apiVersion"), api_version);
                class.text(name!("kind"), kind);
                class.text(name!("namespace"), namespace);
                class.text(name!("name"), name);
            });
        }))
    }

    #[inline]
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&ClassId> for Class {
    fn from(id: &ClassId) -> Self {
        Self::new(&id.api_version, &id.kind, &id.namespace, &id.name)
    }
}

impl Driver {
    pub fn new(instance: &str, session: SessionId) -> Self {
        Self(made(|line| {
            line.text(name!("driver"), instance);
            line.hex(name!("session"), "", session.number());
        }))
    }

    /// One that got no session, in its own words.
    pub fn unseated(instance: &str) -> Self {
        Self(made(|line| line.text(name!("driver"), instance)))
    }

    #[inline]
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Who {
    pub(super) fn write(caller: &Caller, line: &mut Line<'_>) {
        line.text(name!("identity"), caller.identity.as_str());
        line.text(name!("caller"), &caller.address);
    }

    #[inline]
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&Caller> for Who {
    fn from(caller: &Caller) -> Self {
        Self(made(|line| Self::write(caller, line)))
    }
}

/// Whole fields.
fn made(write: impl FnOnce(&mut Line<'_>)) -> Arc<str> {
    let mut bytes = Vec::with_capacity(128);
    write(&mut Line::within(&mut bytes));
    String::from_utf8(bytes).expect("made of texts").into()
}
