//! A relay of frames, and who answers behind it: what a third process costs at least.

use broker_proto::v1::MachineRequest;
use bytes::BytesMut;
use prost::Message as _;
use tokio::{
    io::AsyncWriteExt as _,
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};

use super::ready_at;
use crate::{frames, site::any_port, workload::answer};

/// Passes frames on, or answers them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where frames are passed on to [default: answers them]
    #[arg(long)]
    to: Option<String>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(any_port()).await?;
    ready_at(listener.local_addr()?);
    let mut tasks = JoinSet::new();
    loop {
        let (near, _) = listener.accept().await?;
        near.set_nodelay(true)?;
        let (from_near, to_near) = near.into_split();
        match &args.to {
            Some(to) => {
                let far = TcpStream::connect(to).await?;
                far.set_nodelay(true)?;
                let (from_far, to_far) = far.into_split();
                tasks.spawn(pass(from_near, to_far));
                tasks.spawn(pass(from_far, to_near));
            }
            None => {
                tasks.spawn(serve(from_near, to_near));
            }
        }
        // Those that ended are not kept.
        while tasks.try_join_next().is_some() {}
    }
}

/// Passes on whole frames, all that are there at once.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> anyhow::Result<()> {
    let mut buffer = BytesMut::new();
    while frames::read(&mut from, &mut buffer).await? {
        let whole = frames::whole(&buffer);
        to.write_all(&buffer.split_to(whole)).await?;
    }
    Ok(())
}

async fn serve(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> anyhow::Result<()> {
    let (mut buffer, mut answers) = (BytesMut::new(), BytesMut::new());
    while frames::read(&mut from, &mut buffer).await? {
        while let Some((tag, message)) = frames::take(&mut buffer)? {
            let request = MachineRequest::decode(message)?;
            frames::put(&mut answers, tag, &answer(&request.machine_name));
        }
        to.write_all(&answers.split()).await?;
    }
    Ok(())
}
