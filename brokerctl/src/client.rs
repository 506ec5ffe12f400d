//! The connection to a broker.

use std::time::{Duration, Instant};

use broker_proto::v1::{machines_client::MachinesClient, registry_client::RegistryClient};
use broker_tls::Tls;
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    Failure,
    args::Address,
    contexts::Bearer,
    failure::{Asked, Change},
};

/// A class may have more machines than fit into tonic's 4 MiB.
const LARGEST_ANSWER: usize = 64 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Looking at the registry takes no driver, so a broker that needs longer is not well.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(30);

/// A create runs for many minutes without a byte; these notice when the broker's host is gone.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Broker {
    address: Address,
    channel: Channel,
    started: Instant,
    timeout: Option<Duration>,
    bearer: Option<Bearer>,
}

impl Broker {
    /// `timeout` is for all that follows together, from now on.
    pub(crate) async fn connect(
        address: Address,
        tls: Option<Tls>,
        bearer: Option<Bearer>,
        timeout: Option<Duration>,
    ) -> Result<Self, Failure> {
        if bearer.is_some() && tls.is_none() && !address.is_loopback() {
            return Err(Failure::token_in_clear(&address));
        }
        let started = Instant::now();
        let refused = |error: tonic::transport::Error| Failure::no_broker(&address, &error);
        let endpoint = Endpoint::from_shared(address.uri())
            .and_then(|endpoint| {
                endpoint.user_agent(concat!("brokerctl/", env!("CARGO_PKG_VERSION")))
            })
            .map_err(refused)?
            .connect_timeout(timeout.map_or(CONNECT_TIMEOUT, |limit| limit.min(CONNECT_TIMEOUT)))
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT);
        let channel = broker_tls::client::connect(endpoint, tls).await.map_err(refused)?;
        Ok(Self { address, channel, started, timeout, bearer })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn machines(&self) -> MachinesClient<Channel> {
        MachinesClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    pub(crate) fn registry(&self) -> RegistryClient<Channel> {
        RegistryClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    /// An operation, with the time that is left for it. None given: the broker knows each verb's.
    pub(crate) fn operation<T>(&self, message: T) -> Request<T> {
        self.request(message, self.time_left())
    }

    /// A look at the registry, or a word to a driver.
    pub(crate) fn look<T>(&self, message: T) -> Request<T> {
        self.request(message, Some(self.time_left().unwrap_or(REGISTRY_TIMEOUT)))
    }

    /// A look that does not end by itself.
    pub(crate) fn watch<T>(&self, message: T) -> Request<T> {
        self.request(message, None)
    }

    /// Of the time that the operator gave.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(self.started.elapsed()))
    }

    fn request<T>(&self, message: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request
    }

    /// A look at the registry has failed, where there is no driver to wait for.
    pub(crate) fn look_failed(&self, status: &Status) -> Failure {
        self.question_failed(status, true)
    }

    /// A question that changed nothing has failed.
    pub(crate) fn question_failed(&self, status: &Status, waited: bool) -> Failure {
        Failure::of(status, Asked { of: &self.address, change: None, waited })
    }

    /// An operation that changes something has failed.
    pub(crate) fn change_failed(&self, status: &Status, change: Change, waited: bool) -> Failure {
        Failure::of(status, Asked { of: &self.address, change: Some(change), waited })
    }
}
