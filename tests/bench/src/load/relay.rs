//! Frames over one TCP connection.

use anyhow::ensure;
use bytes::BytesMut;
use prost::Message as _;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::Instant};

use super::{Plan, answers, samples::Samples, slots::Slots};
use crate::{frames, workload::Requests};

pub(super) async fn run(plan: &Plan, address: &str) -> anyhow::Result<Samples> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut slots = Slots::new(0, plan.in_flight, &plan.window);
    let mut requests = Requests::new(&plan.workload, |create| create.encode_to_vec());
    let (mut incoming, mut outgoing) = (BytesMut::new(), BytesMut::new());
    for slot in slots.all() {
        if let Some(operation) = slots.next(slot, Instant::now()) {
            frames::put_encoded(&mut outgoing, slot as u64, requests.create(operation));
        }
    }
    loop {
        stream.write_all(&outgoing.split()).await?;
        if slots.is_idle() {
            return Ok(slots.into_samples());
        }
        ensure!(frames::read(&mut stream, &mut incoming).await?, "the relay is gone");
        while let Some((tag, message)) = frames::take(&mut incoming)? {
            answers::machine(&message)?;
            let slot = usize::try_from(tag)?;
            if let Some(operation) = slots.turn(slot, Instant::now()) {
                frames::put_encoded(&mut outgoing, tag, requests.create(operation));
            }
        }
    }
}
