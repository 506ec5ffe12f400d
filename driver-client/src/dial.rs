//! How a connection to a broker is made.
//!
//! The seam for other transports: TLS is a [`Dial`] with another endpoint, a test's in-memory pipe
//! one with another connector.

use std::time::Duration;

use broker_proto::v1::drivers_client::DriversClient;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use crate::config::Token;

/// Makes one connection. Every session gets one of its own, so that a broken one is never reused.
#[async_trait::async_trait]
pub trait Dial: Send + Sync {
    async fn dial(&self, address: &str) -> Result<Channel, tonic::transport::Error>;
}

/// Plain TCP.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

#[async_trait::async_trait]
impl Dial for Tcp {
    async fn dial(&self, address: &str) -> Result<Channel, tonic::transport::Error> {
        endpoint(address)?.connect().await
    }
}

/// The settings that every connection to a broker should have, whatever carries it.
///
/// `connect`, never `connect_lazy`: tonic would dial again behind our back.
pub fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(address.to_owned())?
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true))
}

pub(crate) type Client = DriversClient<InterceptedService<Channel, Bearer>>;

/// Says who we are on every call.
#[derive(Clone)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    pub(crate) fn new(token: Option<&Token>) -> Result<Self, String> {
        let Some(token) = token else { return Ok(Self(None)) };
        let mut value: MetadataValue<Ascii> = format!("Bearer {}", token.expose())
            .parse()
            .map_err(|_| "the token holds characters that no header can carry".to_owned())?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }

    pub(crate) fn client(&self, channel: Channel) -> Client {
        DriversClient::with_interceptor(channel, self.clone())
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}
