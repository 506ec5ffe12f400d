//! Frames over one TCP connection.

use anyhow::ensure;
use broker_proto::v1::MachineResponse;
use bytes::BytesMut;
use prost::Message as _;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::{Plan, samples::Samples, slots::Slots};
use crate::frames;

pub(super) async fn run(plan: &Plan, address: &str) -> anyhow::Result<Samples> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut slots = Slots::new(0, plan.in_flight, &plan.window);
    let (mut answers, mut requests) = (BytesMut::new(), BytesMut::new());
    let mut free: Vec<usize> = slots.all().collect();
    loop {
        for slot in free.drain(..) {
            if let Some(operation) = slots.next(slot) {
                frames::put(&mut requests, slot as u64, &plan.workload.create(operation));
            }
        }
        stream.write_all(&requests.split()).await?;
        if slots.is_idle() {
            return Ok(slots.into_samples());
        }
        ensure!(frames::read(&mut stream, &mut answers).await?, "the relay is gone");
        while let Some((tag, message)) = frames::take(&mut answers)? {
            MachineResponse::decode(message)?;
            let slot = usize::try_from(tag)?;
            slots.answered(slot);
            free.push(slot);
        }
    }
}
