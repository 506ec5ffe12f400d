//! One connection: TCP, and TLS over it where it is wanted.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::{ClientConfig, client::Resumption, pki_types::ServerName, sign::SingleCertAndKey};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tonic::transport::Uri;
use tower::ServiceExt as _;

use super::{
    Failure, Tls,
    stream::{Context, Stream},
    trust::Trust,
};
use crate::{
    PROVIDER, Problem,
    files::{self, Identity},
    server::Protocol,
};

/// How long a broker may take to say its first word after the handshake. It is waited for because
/// only then we know that it took our certificate, and no longer because others may wait for ours.
const FIRST_WORD: Duration = Duration::from_millis(500);

pub(super) async fn dial(
    uri: Uri,
    tls: Option<Tls>,
    protocol: Protocol,
) -> Result<Stream, Failure> {
    let Some(tls) = tls else {
        let context = Context { broker: authority(&uri), tls: Tls::default() };
        return Ok(Stream::plain(tcp(uri).await?, context));
    };
    let name = server_name(&uri, &tls)?;
    let context = Context { broker: authority(&uri), tls };
    let tls = context.tls.clone();
    let config = tokio::task::spawn_blocking(move || config(&tls, SystemTime::now())).await;
    let mut config = config.map_err(|panic| Failure::Connect(panic.to_string()))??;
    config.alpn_protocols = protocol.names();
    let tcp = tcp(uri).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = match connector.connect(name, tcp).await {
        Ok(stream) => stream,
        Err(error) => return Err(context.explain(&error, true)),
    };
    let mut stream = BufReader::new(stream);
    // A server of HTTP/1 never speaks first.
    if protocol == Protocol::Http2 {
        match timeout(FIRST_WORD, stream.fill_buf()).await {
            Ok(Err(error)) => return Err(context.explain(&error, true)),
            Ok(Ok([])) => return Err(Failure::Closed(context.broker)),
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    Ok(Stream::secured(stream, context))
}

async fn tcp(uri: Uri) -> Result<TcpStream, Failure> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let connected = connector.oneshot(uri).await;
    connected.map(TokioIo::into_inner).map_err(|error| Failure::Connect(innermost(&error)))
}

pub(super) fn config(tls: &Tls, now: SystemTime) -> Result<ClientConfig, Problem> {
    tls.check()?;
    let ca = tls.ca.as_ref().ok_or(Problem::Settings("TLS needs --ca FILE"))?;
    let trust = Trust::read(&files::read(ca)?, ca)?;
    let config = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust));
    let mut config = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let (cert_text, key_text) = (files::read(cert)?, files::read(key)?);
            let identity = Identity::read((&cert_text, cert), (&key_text, key))?;
            identity.certificate.check_time_of(now, cert)?;
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.key)))
        }
        _ => config.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn server_name(uri: &Uri, tls: &Tls) -> Result<ServerName<'static>, Problem> {
    let name = tls.server_name.as_deref().or(uri.host()).unwrap_or_default();
    let bare = name.trim_matches(['[', ']']).to_owned();
    ServerName::try_from(bare).map_err(|_| Problem::BadName(name.to_owned()))
}

fn authority(uri: &Uri) -> String {
    uri.authority().map(ToString::to_string).unwrap_or_default()
}

/// The cause that says something.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
