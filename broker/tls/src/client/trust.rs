//! Whom a client takes for the broker.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use crate::{Certificate, PROVIDER, Problem, files};

/// The CAs of a file, as anybody would use them, and besides every certificate in it as it is: the
/// broker's own may be there, self-signed or because nobody else is to be trusted.
#[derive(Debug)]
pub(super) struct Trust {
    /// `None` if no certificate is that of a CA.
    cas: Option<Arc<WebPkiServerVerifier>>,
    known: Vec<Certificate>,
}

impl Trust {
    pub(super) fn read(content: &[u8], file: &Path) -> Result<Self, Problem> {
        let malformed = |why| Problem::Malformed { file: file.to_owned(), why };
        let mut known = Vec::new();
        let mut roots = RootCertStore::empty();
        for der in files::certificates(content, file)? {
            let certificate = Certificate::read(vec![der.clone()]).map_err(malformed)?;
            if certificate.is_ca {
                roots.add(der).map_err(|error| malformed(error.to_string()))?;
            }
            known.push(certificate);
        }
        let builder =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&PROVIDER));
        // The one thing that can be missing are CAs.
        Ok(Self { cas: builder.build().ok(), known })
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let itself = self.known.iter().find(|known| known.chain()[0] == *end_entity);
        if let Some(itself) = itself {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
            // As the words of our own, which need no translation.
            let other = |problem| CertificateError::Other(OtherError(Arc::new(problem)));
            itself.check_time(now).map_err(other)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match &self.cas {
            Some(cas) => {
                cas.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &PROVIDER.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &PROVIDER.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}
