//! PEM files, read whole or not at all.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use rustls::{
    Error, InconsistentKeys,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
    sign::CertifiedKey,
};

use crate::{Certificate, PROVIDER, Problem};

/// No bundle of CAs is larger; a device, or a log that somebody named by mistake, is.
const LARGEST: u64 = 4 << 20;

pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Problem> {
    let mut content = Vec::new();
    let read =
        fs::File::open(file).and_then(|open| open.take(LARGEST + 1).read_to_end(&mut content));
    match read {
        Ok(_) if content.len() as u64 > LARGEST => {
            let why = "it is larger than 4 MiB".to_owned();
            Err(Problem::Malformed { file: file.to_owned(), why })
        }
        Ok(_) => Ok(content),
        Err(why) => Err(Problem::Unreadable { file: file.to_owned(), why }),
    }
}

/// All certificates of a file, at least one.
pub(crate) fn certificates(
    content: &[u8],
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    let found = found.map_err(|error| malformed(&error, file))?;
    if found.is_empty() {
        return Err(Problem::Missing { what: "certificate", file: file.to_owned() });
    }
    Ok(found)
}

/// A certificate with its chain, and the key that belongs to it.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: Certificate,
    pub(crate) key: CertifiedKey,
}

impl Identity {
    pub(crate) fn read(
        (cert, cert_file): (&[u8], &PathBuf),
        (key, key_file): (&[u8], &PathBuf),
    ) -> Result<Self, Problem> {
        let chain = certificates(cert, cert_file)?;
        let certificate = Certificate::read(chain.clone())
            .map_err(|why| Problem::Malformed { file: cert_file.clone(), why })?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                Problem::Missing { what: "private key", file: key_file.clone() }
            }
            error => malformed(&error, key_file),
        })?;
        let key = CertifiedKey::from_der(chain, key, &PROVIDER).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                Problem::KeyMismatch { cert: cert_file.clone(), key: key_file.clone() }
            }
            error => Problem::BadKey { file: key_file.clone(), why: error.to_string() },
        })?;
        Ok(Self { certificate, key })
    }
}

/// Says nothing of what is in the file: it may be a key.
fn malformed(error: &pem::Error, file: &Path) -> Problem {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "it ends in the middle",
        pem::Error::IllegalSectionStart { .. } => "a line that should begin a section is garbled",
        pem::Error::Base64Decode(_) => "the text of a section is garbled",
        _ => "it cannot be understood",
    };
    Problem::Malformed { file: file.to_owned(), why: why.to_owned() }
}
