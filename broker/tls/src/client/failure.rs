//! Why there is no connection, in words that say what to do.

use std::{error::Error as StdError, path::PathBuf, time::SystemTime};

use crate::{Problem, problem::Time};

/// Part of what [`Failure::TlsWanted`] says: it comes while HTTP/2 is spoken already, which leaves
/// nothing of an error but its text.
pub const WANTS_TLS: &str = " wants TLS: ";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answers there, or not in time.
    #[error("{0}")]
    Connect(String),
    /// Our own files.
    #[error(transparent)]
    Ours(#[from] Problem),
    #[error("the broker's certificate expired at {}: it has to be renewed", Time(*.0))]
    BrokerExpired(SystemTime),
    #[error("the broker's certificate is valid only from {}; are the clocks right?", Time(*.0))]
    BrokerNotYetValid(SystemTime),
    #[error("the broker's certificate is not signed by the CA in {}", .0.display())]
    BrokerUnknown(PathBuf),
    #[error(
        "the broker's certificate is for {names}, not for {expected}; if it is the right one, name it with --server-name"
    )]
    BrokerName { names: String, expected: String },
    #[error("the broker's certificate is not acceptable: {0}")]
    BrokerUnacceptable(String),
    #[error("the broker finds the certificate in {} expired", .0.display())]
    OursExpired(PathBuf),
    #[error("the broker does not know the CA that signed the certificate in {}: it is not in its --client-ca", .0.display())]
    OursUnknown(PathBuf),
    #[error("the broker refuses the certificate in {}: {why}", file.display())]
    OursRefused { file: PathBuf, why: String },
    #[error("the broker wants a certificate: give one with --cert and --key")]
    CertificateWanted,
    #[error(
        "{0} speaks no TLS: say http://{0} without --ca, --cert and --key, or have it served with TLS"
    )]
    NoTls(String),
    #[error("{0}{WANTS_TLS}say https://{0}, with --ca")]
    TlsWanted(String),
    #[error("{0} speaks TLS, but no gRPC: is it the --admin address?")]
    NoGrpc(String),
    #[error("{0} does not speak TLS 1.3")]
    OldTls(String),
    #[error("{0} closed the connection during the TLS handshake")]
    Closed(String),
    #[error("TLS with {broker}: {why}")]
    Other { broker: String, why: String },
}

impl Failure {
    /// The failure that is at the bottom of an error of tonic.
    pub fn in_chain<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        let mut error = Some(error);
        while let Some(this) = error {
            if let Some(failure) = this.downcast_ref() {
                return Some(failure);
            }
            error = this.source();
        }
        None
    }

    /// Whether it is about TLS, and not about the way there.
    pub fn is_tls(&self) -> bool {
        !matches!(self, Self::Connect(_))
    }
}
