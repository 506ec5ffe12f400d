//! A token as a caller shows it, and who can say whose it is.

use std::{fmt, time::SystemTime};

use futures::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Identity;

/// The digest of a token. The token itself is dropped as soon as it was read.
///
/// Equality takes the same time whatever differs.
#[derive(Clone, Copy)]
pub struct Bearer([u8; 32]);

impl Bearer {
    pub fn new(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// From the `sha256` of a token in hexadecimal.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).ok()?;
        Some(Self(digest))
    }

    pub(super) fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl PartialEq for Bearer {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

/// Whose token it is, and until when.
#[derive(Clone, Debug)]
pub struct Holder {
    pub identity: Identity,
    pub expires: Option<SystemTime>,
}

/// Somebody who knows tokens: the token file, the driver programs that we started, and in a cluster
/// the API server.
pub trait Authenticator: Send + Sync + fmt::Debug {
    /// Whose token this is; `None` if it is not known here, or no longer.
    fn holder(&self, token: Bearer) -> BoxFuture<'_, Option<Holder>>;
}
