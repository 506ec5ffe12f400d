//! What is known of a driver from its registration on.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU32},
    time::SystemTime,
};

use broker_secret::Sensitive;

use crate::{
    audit,
    auth::{Identity, Territory},
    driver::{ConnectionId, DriverKey, Instance, SessionId, Verb},
};

/// What is known of a driver from its registration on.
#[derive(Debug)]
pub struct Info {
    pub id: SessionId,
    /// Proves in class and secret questions that they come from this session.
    pub token: Token,
    pub name: String,
    pub keys: Vec<DriverKey>,
    /// Where it may serve each of them.
    pub territory: Territory,
    /// Who it proved to be.
    pub identity: Identity,
    pub instance: Instance,
    pub in_audit: audit::Driver,
    pub version: String,
    /// 0: the protocol of 2018.
    pub protocol: u32,
    pub verbs: Vec<Verb>,
    pub capacity: usize,
    /// Whether it answers a repeated request from memory after a reconnect.
    pub resumes: bool,
    pub connection: ConnectionId,
    pub address: Arc<str>,
    pub connected_at: SystemTime,
    /// How many sessions it took the place of.
    pub takeovers: AtomicU32,
}

/// 128 random bits that a driver got in its Welcome. Not printable, and wiped when its session is gone.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Sensitive);

impl Token {
    pub fn random() -> Self {
        Self(Sensitive::new(format!("{:032x}", rand::random::<u128>())))
    }

    /// For the Welcome frame alone.
    pub fn reveal(&self) -> &str {
        self.0.as_str().expect("made of a string")
    }
}

impl From<String> for Token {
    fn from(token: String) -> Self {
        Self(Sensitive::new(token))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
