//! What can be wrong with files and certificates, in words that say what to do.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustls::CertificateError;

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    // Not as a source: whoever prints only the innermost cause would leave the file out.
    #[error("cannot read {}: {why}", file.display())]
    Unreadable { file: PathBuf, why: io::Error },
    /// Half-written, for instance.
    #[error("{} is not PEM: {why}", file.display())]
    Malformed { file: PathBuf, why: String },
    #[error("there is no {what} in {}", file.display())]
    Missing { what: &'static str, file: PathBuf },
    #[error("certificate {number} in {} is not that of a CA", file.display())]
    NotCa { number: usize, file: PathBuf },
    #[error("the key in {} cannot be used: {why}", file.display())]
    BadKey { file: PathBuf, why: String },
    #[error("the key in {} does not belong to the certificate in {}", key.display(), cert.display())]
    KeyMismatch { cert: PathBuf, key: PathBuf },
    #[error("the certificate in {} expired at {}: renew it", file.display(), Time(*at))]
    FileExpired { file: PathBuf, at: SystemTime },
    #[error("the certificate in {} is valid only from {}", file.display(), Time(*at))]
    FileNotYetValid { file: PathBuf, at: SystemTime },
    /// What a client was told does not fit together.
    #[error("{0}")]
    Settings(&'static str),
    #[error("{0:?} is not a name that a certificate could have")]
    BadName(String),

    #[error("the certificate expired at {}", Time(*.0))]
    Expired(SystemTime),
    #[error("the certificate is valid only from {}; are the clocks right?", Time(*.0))]
    NotYetValid(SystemTime),
    #[error("the certificate is not signed by a CA in {}", .0.display())]
    UnknownCa(PathBuf),
    #[error("the certificate is not acceptable: {0}")]
    Unacceptable(String),
}

/// A moment as people and logs write it.
pub(crate) struct Time(pub(crate) SystemTime);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(self.0).fmt(f)
    }
}

impl Problem {
    /// What rustls found when it compared a certificate with the CAs of `file`.
    pub(crate) fn of(error: &CertificateError, file: &Path) -> Self {
        use CertificateError::{BadSignature, ExpiredContext, NotValidYetContext, UnknownIssuer};
        let time = |time: &rustls::pki_types::UnixTime| {
            SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(time.as_secs())
        };
        match error {
            ExpiredContext { not_after, .. } => Self::Expired(time(not_after)),
            NotValidYetContext { not_before, .. } => Self::NotYetValid(time(not_before)),
            // A bad signature is that of another CA with the same name: of the one before, mostly.
            UnknownIssuer | BadSignature => Self::UnknownCa(file.to_owned()),
            other => Self::Unacceptable(other.to_string()),
        }
    }
}
