//! Which cluster, and as whom.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::super::Error;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A cluster whose API server we talk to, as somebody. Nothing is sent before it is used.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    address: String,
}

/// Why there is no way to a cluster.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unusable(Box<dyn std::error::Error + Send + Sync>);

impl Cluster {
    /// The cluster of a kubeconfig; without one that of `KUBECONFIG`, of the user's own, or the one
    /// that this pod runs in.
    pub async fn open(kubeconfig: Option<&Path>) -> Result<Self, Error> {
        let (config, wrong) = match kubeconfig {
            Some(file) => (from_file(file).await, named(file)),
            None => (
                Config::infer().await.map_err(|error| Unusable(error.into())),
                Box::new(Error::NoCluster) as Box<dyn Fn(Unusable) -> Error + Send>,
            ),
        };
        let mut config = config.map_err(&wrong)?;
        config.connect_timeout = Some(CONNECT_WITHIN);
        let address = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|error| wrong(Unusable(error.into())))?;
        Ok(Self { client, address })
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }
}

async fn from_file(file: &Path) -> Result<Config, Unusable> {
    let kubeconfig = Kubeconfig::read_from(file).map_err(|error| Unusable(error.into()))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| Unusable(error.into()))
}

fn named(file: &Path) -> Box<dyn Fn(Unusable) -> Error + Send> {
    let file: PathBuf = file.into();
    Box::new(move |why| Error::Kubeconfig(file.clone(), why))
}

/// Without the credentials.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cluster").field(&self.address).finish()
    }
}
