//! Who answers requests that come over NATS.

use std::net::SocketAddr;

/// Answers requests on a NATS server
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// HOST:PORT of the server
    #[arg(long)]
    address: SocketAddr,
}

/// Where requests go.
#[cfg(feature = "nats")]
pub(crate) const SUBJECT: &str = "bench.create";

#[cfg(feature = "nats")]
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    use anyhow::Context as _;
    use futures::StreamExt as _;
    use prost::Message as _;

    let nats = async_nats::connect(args.address.to_string()).await?;
    let mut requests = nats.subscribe(SUBJECT).await?;
    // The server knows of us before anyone asks.
    nats.flush().await?;
    super::ready_at(args.address);
    while let Some(request) = requests.next().await {
        let reply = request.reply.context("a message that wants no reply")?;
        let request = broker_proto::v1::MachineRequest::decode(request.payload)?;
        let answer = crate::workload::answer(&request.machine_name);
        nats.publish(reply, answer.encode_to_vec().into()).await?;
    }
    anyhow::bail!("the server is gone")
}

#[cfg(not(feature = "nats"))]
pub(crate) const NOT_BUILT_IN: &str =
    "this was built without the client of NATS: use `cargo xtask bench`";

#[cfg(not(feature = "nats"))]
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    anyhow::bail!("cannot dial {}: {NOT_BUILT_IN}", args.address)
}
