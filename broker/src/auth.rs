//! Who is calling: the one place that decides.
//!
//! So far there is one credential, the token of a driver program that the broker started itself, and a
//! caller without any is let in, since the broker serves loopback only unless told otherwise.

use crate::children::Tokens;

#[derive(Clone, Debug, Default)]
pub struct Auth {
    children: Tokens,
}

/// Why a caller is not let in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("the authorization header is not a bearer token")]
    NotBearer,
    #[error("the bearer token is not known, or no longer")]
    UnknownToken,
}

impl Auth {
    pub fn new(children: Tokens) -> Self {
        Self { children }
    }

    /// Checks the `authorization` header of a call, if it has one.
    pub fn check(&self, authorization: Option<&[u8]>) -> Result<(), Denied> {
        let Some(authorization) = authorization else { return Ok(()) };
        let token = authorization.strip_prefix(b"Bearer ").ok_or(Denied::NotBearer)?;
        let token = std::str::from_utf8(token).map_err(|_| Denied::NotBearer)?;
        if self.children.contains(token) { Ok(()) } else { Err(Denied::UnknownToken) }
    }
}
