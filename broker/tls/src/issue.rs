//! Makes certificates, for trying things out and for tests. Not a CA to run anything with.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::PeerCertificate;

/// Something that rcgen refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate")]
pub struct Error(#[from] rcgen::Error);

/// A CA of one's own.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Whom a certificate is for.
#[derive(Clone, Debug)]
pub struct Subject {
    pub common_name: String,
    /// Such as `spiffe://machine-broker.dev/driver`.
    pub uris: Vec<String>,
    /// Host names and addresses.
    pub hosts: Vec<String>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

/// Both as PEM.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Subject {
    /// Valid from a moment ago, since not all clocks agree, for `time`.
    pub fn new(common_name: impl Into<String>, time: Duration) -> Self {
        let now = SystemTime::now();
        Self {
            common_name: common_name.into(),
            uris: Vec::new(),
            hosts: Vec::new(),
            not_before: now - Duration::from_secs(60),
            not_after: now + time,
        }
    }

    pub fn uri(mut self, uri: impl Into<String>) -> Self {
        self.uris.push(uri.into());
        self
    }

    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    fn params(&self) -> Result<CertificateParams, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, &*self.common_name);
        params.not_before = self.not_before.into();
        params.not_after = self.not_after.into();
        for uri in &self.uris {
            params.subject_alt_names.push(SanType::URI(uri.as_str().try_into()?));
        }
        for host in &self.hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(host.as_str().try_into()?),
            });
        }
        Ok(params)
    }
}

impl Issued {
    /// As the other side of a handshake sees it.
    pub fn as_seen(&self) -> PeerCertificate {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes());
        let chain: Result<_, _> = chain.collect();
        PeerCertificate::read(chain.expect("just made as PEM")).expect("and as a certificate")
    }
}

impl Authority {
    pub fn new(subject: &Subject) -> Result<Self, Error> {
        let mut params = subject.params()?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer })
    }

    /// What others trust.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// What makes more certificates.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Good for serving and for dialling.
    pub fn issue(&self, subject: &Subject) -> Result<Issued, Error> {
        let mut params = subject.params()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
