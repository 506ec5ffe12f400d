//! What a certificate says of its owner.

use std::{
    net::IpAddr,
    path::Path,
    time::{Duration, SystemTime},
};

use rustls::pki_types::CertificateDer;
use x509_parser::{
    extensions::GeneralName,
    parse_x509_certificate,
    prelude::{ASN1Time, X509Certificate},
};

use crate::Problem;

/// What a certificate says of its owner. Whether that is true is for whoever verified it to know.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    pub uri_sans: Vec<String>,
    pub dns_sans: Vec<String>,
    pub ip_sans: Vec<IpAddr>,
    pub common_name: Option<String>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    pub(crate) is_ca: bool,
    pub(crate) chain: Vec<CertificateDer<'static>>,
}

/// As the other side showed it, with the proof that it has the key; verified in the handshake.
pub type PeerCertificate = Certificate;

impl Certificate {
    /// Reads the first certificate of a chain.
    pub(crate) fn read(chain: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let leaf = chain.first().ok_or("there is none")?;
        let (rest, parsed) = parse_x509_certificate(leaf).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err("something follows after its end".to_owned());
        }
        let (mut uri_sans, mut dns_sans, mut ip_sans) = (Vec::new(), Vec::new(), Vec::new());
        let names = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::URI(uri) => uri_sans.push((*uri).to_owned()),
                GeneralName::DNSName(name) => dns_sans.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => ip_sans.extend(ip(bytes)),
                _ => {}
            }
        }
        Ok(Self {
            uri_sans,
            dns_sans,
            ip_sans,
            common_name: common_name(&parsed),
            not_before: time(parsed.validity().not_before),
            not_after: time(parsed.validity().not_after),
            is_ca: parsed.is_ca(),
            chain,
        })
    }

    /// Itself first, then those that lead to a CA.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Whether its time is now.
    pub(crate) fn check_time(&self, now: SystemTime) -> Result<(), Problem> {
        if now > self.not_after {
            Err(Problem::Expired(self.not_after))
        } else if now < self.not_before {
            Err(Problem::NotYetValid(self.not_before))
        } else {
            Ok(())
        }
    }

    /// The same, of one that came from `file`.
    pub(crate) fn check_time_of(&self, now: SystemTime, file: &Path) -> Result<(), Problem> {
        let file = file.to_owned();
        self.check_time(now).map_err(|problem| match problem {
            Problem::Expired(at) => Problem::FileExpired { file, at },
            Problem::NotYetValid(at) => Problem::FileNotYetValid { file, at },
            other => other,
        })
    }

    /// A name by which a client on this very host can verify it.
    pub fn any_name(&self) -> Option<String> {
        let dns = self.dns_sans.first().map(|name| match name.strip_prefix("*.") {
            Some(domain) => format!("broker.{domain}"),
            None => name.clone(),
        });
        dns.or_else(|| self.ip_sans.first().map(IpAddr::to_string))
    }
}

/// Without the bytes, which nobody wants to read.
impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate")
            .field("uri_sans", &self.uri_sans)
            .field("dns_sans", &self.dns_sans)
            .field("ip_sans", &self.ip_sans)
            .field("common_name", &self.common_name)
            .field("not_after", &crate::problem::Time(self.not_after).to_string())
            .finish_non_exhaustive()
    }
}

/// The last one: it is the most specific where there are several.
fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let name = certificate.subject().iter_common_name().last()?;
    name.as_str().ok().map(str::to_owned)
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

fn time(time: ASN1Time) -> SystemTime {
    // Nothing is valid before 1970.
    let seconds = u64::try_from(time.timestamp()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}
