//! How roles dial, and what they show.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use broker_tls::Tls;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

/// Where to, and with what credentials
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Dialing {
    /// HOST:PORT
    #[arg(long)]
    pub(crate) address: String,
    #[arg(long)]
    pub(crate) token_file: Option<PathBuf>,
    #[arg(long)]
    ca: Option<PathBuf>,
    #[arg(long)]
    cert: Option<PathBuf>,
    #[arg(long)]
    key: Option<PathBuf>,
}

impl Dialing {
    pub(crate) fn tls(&self) -> Tls {
        Tls {
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            server_name: None,
        }
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Channel> {
        let endpoint = driver_client::endpoint(&format!("http://{}", self.address))?;
        let tls = Some(self.tls()).filter(Tls::is_wanted);
        let channel = broker_tls::client::connect(endpoint, tls).await;
        channel.with_context(|| format!("cannot connect to {}", self.address))
    }

    pub(crate) async fn connect_all(&self, connections: usize) -> anyhow::Result<Vec<Channel>> {
        let mut channels = Vec::with_capacity(connections);
        for _ in 0..connections {
            channels.push(self.connect().await?);
        }
        Ok(channels)
    }

    pub(crate) fn bearer(&self) -> anyhow::Result<Bearer> {
        let Some(file) = &self.token_file else { return Ok(Bearer(None)) };
        let token = fs::read_to_string(file)
            .with_context(|| format!("cannot read the token in {}", file.display()))?;
        Ok(Bearer(Some(format!("Bearer {}", token.trim()).parse()?)))
    }
}

/// Says who we are on every call.
#[derive(Clone, Debug)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        request
    }
}
