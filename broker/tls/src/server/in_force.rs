//! What new handshakes get, in two parts that are read apart: a broken certificate of the broker must
//! not keep a CA trusted that was taken out, nor the other way round.

use std::{
    hash::{BuildHasher as _, RandomState},
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use rustls::{
    RootCertStore, ServerConfig,
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::SingleCertAndKey,
};

use super::{Files, Protocol};
use crate::{
    Certificate, PROVIDER, Problem,
    files::{self, Identity},
};

#[derive(Debug)]
pub(super) struct InForce {
    pub(super) own: Arc<Loaded<Own>>,
    pub(super) clients: Arc<Loaded<Clients>>,
    pub(super) h2: Arc<ServerConfig>,
    pub(super) http1: Arc<ServerConfig>,
}

/// A part, with the hash of the content it was made of.
#[derive(Debug)]
pub(super) struct Loaded<T> {
    pub(super) part: T,
    pub(super) hash: u64,
}

/// Who the broker is.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) certificate: Arc<Certificate>,
    key: Arc<SingleCertAndKey>,
}

/// Verifies those who come, if there are CAs to do it by.
pub(super) type Clients = Option<Arc<dyn ClientCertVerifier>>;

impl InForce {
    pub(super) fn new(own: Arc<Loaded<Own>>, clients: Arc<Loaded<Clients>>) -> Self {
        let config = |protocol: Protocol| {
            let config = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .expect("ring has TLS 1.3");
            let config = match &clients.part {
                Some(clients) => config.with_client_cert_verifier(Arc::clone(clients)),
                None => config.with_no_client_auth(),
            };
            let key = Arc::clone(&own.part.key);
            let mut config = config.with_cert_resolver(key);
            config.alpn_protocols = protocol.names();
            // A resumed session would not be asked for its certificate again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            Arc::new(config)
        };
        let (h2, http1) = (config(Protocol::Http2), config(Protocol::Http1));
        Self { own, clients, h2, http1 }
    }
}

impl Loaded<Own> {
    /// What the files say, unless it is what was `before`.
    pub(super) fn read(
        files: &Files,
        hasher: &RandomState,
        before: Option<&Self>,
    ) -> Result<Option<Self>, Problem> {
        let (cert, key) = (files::read(&files.cert)?, files::read(&files.key)?);
        let hash = hasher.hash_one((&cert, &key));
        if before.is_some_and(|before| before.hash == hash) {
            return Ok(None);
        }
        let Identity { certificate, key } =
            Identity::read((&cert, &files.cert), (&key, &files.key))?;
        let now = SystemTime::now();
        // At the start even an expired one is served: a better one may come while we run.
        if before.is_some_and(|before| before.part.certificate.check_time(now).is_ok()) {
            certificate.check_time_of(now, &files.cert)?;
        }
        let key = Arc::new(SingleCertAndKey::from(key));
        Ok(Some(Self { part: Own { certificate: Arc::new(certificate), key }, hash }))
    }
}

impl Loaded<Clients> {
    /// What the file says, unless it is what was `before`.
    pub(super) fn read(
        files: &Files,
        hasher: &RandomState,
        before: Option<&Self>,
    ) -> Result<Option<Self>, Problem> {
        let content = files.client_ca.as_ref().map(|file| files::read(file)).transpose()?;
        let hash = hasher.hash_one(&content);
        if before.is_some_and(|before| before.hash == hash) {
            return Ok(None);
        }
        let part = match (&files.client_ca, content) {
            (Some(file), Some(content)) => Some(verifier(&content, file)?),
            _ => None,
        };
        Ok(Some(Self { part, hash }))
    }
}

/// Verifies certificates of clients, where they have one.
fn verifier(content: &[u8], file: &Path) -> Result<Arc<dyn ClientCertVerifier>, Problem> {
    let mut roots = RootCertStore::empty();
    for (number, certificate) in (1..).zip(files::certificates(content, file)?) {
        let malformed = |why| Problem::Malformed { file: file.to_owned(), why };
        // Whoever has the key of a certificate that is here by mistake could make up identities.
        if !Certificate::read(vec![certificate.clone()]).map_err(malformed)?.is_ca {
            return Err(Problem::NotCa { number, file: file.to_owned() });
        }
        roots.add(certificate).map_err(|error| malformed(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&PROVIDER))
        .allow_unauthenticated()
        .build()
        .map_err(|error| Problem::Unacceptable(error.to_string()))
}
