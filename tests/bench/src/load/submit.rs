//! Submit streams: the next operation goes out with the answer of the one before.

use std::mem;

use anyhow::Context as _;
use broker_proto::v1::{SubmitRequest, submit_request};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use prost::{Message as _, encoding};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};

use super::{
    Plan, answers,
    ready::Ready,
    samples::Samples,
    slots::{Slots, spread},
    unary::DEADLINE,
};
use crate::{
    dial::Bearer,
    workload::{Operation, Requests, Workload},
};

/// The broker reads no further while so many operations of a stream run; stay below it.
const MOST_ON_A_STREAM: usize = 5_000;
/// So many answers that are there at once were read at the same time, as far as can be told: in about two
/// microseconds.
const AT_ONCE: usize = 32;

/// More than a request has, and room for some dozens of them.
const LARGEST: usize = 512;
const ROOM: usize = 16 << 10;

const SUBMIT: PathAndQuery = PathAndQuery::from_static("/machinebroker.v1.Machines/Submit");

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Samples> {
    let streams = plan.in_flight.div_ceil(MOST_ON_A_STREAM).max(plan.channels.len());
    let mut tasks = JoinSet::new();
    for (number, (first, slots)) in spread(plan.in_flight, streams).enumerate() {
        let channel = plan.channels[number % plan.channels.len()].clone();
        let slots = Slots::new(first, slots, &plan.window);
        let batch = Batch::new(&plan.workload);
        tasks.spawn(stream(channel, plan.bearer.clone(), batch, slots));
    }
    let mut samples = Samples::default();
    while let Some(ended) = tasks.join_next().await {
        samples.extend(ended??);
    }
    Ok(samples)
}

async fn stream(
    channel: Channel,
    bearer: Bearer,
    mut batch: Batch,
    mut slots: Slots,
) -> anyhow::Result<Samples> {
    // Room for all that can be in flight, so that sending never waits.
    let (batches, submitted) = mpsc::channel(slots.all().len());
    let submit = |batch| batches.try_send(batch).context("the stream takes no more");
    for slot in slots.all() {
        if let Some(operation) = slots.next(slot, Instant::now()) {
            batch.add(slot, operation);
        }
    }
    submit(batch.take())?;
    let mut machines = Grpc::new(channel);
    machines.ready().await?;
    let requests = bearer.request(ReceiverStream::new(submitted).flat_map(stream::iter));
    let answers = machines.streaming(requests, SUBMIT, Ready(answers::submitted)).await?;
    // What follows from answers that came together is sent together.
    let mut answers = answers.into_inner().ready_chunks(AT_ONCE);
    while !slots.is_idle() {
        let answers = answers.next().await.context("the broker ended the stream")?;
        let now = Instant::now();
        for answer in answers {
            let slot = usize::try_from(answer??)?;
            if let Some(operation) = slots.turn(slot, now) {
                batch.add(slot, operation);
            }
        }
        submit(batch.take())?;
    }
    Ok(slots.into_samples())
}

/// Requests that are sent together.
struct Batch {
    requests: Requests,
    encoded: BytesMut,
    messages: Vec<Bytes>,
}

impl Batch {
    fn new(workload: &Workload) -> Self {
        let timeout = prost_types::Duration { seconds: DEADLINE.as_secs().cast_signed(), nanos: 0 };
        // The tag is put before each.
        let requests = Requests::new(workload, |create| {
            let operation = Some(submit_request::Operation::Create(create));
            SubmitRequest { tag: 0, operation, timeout: Some(timeout) }.encode_to_vec()
        });
        Self { requests, encoded: BytesMut::new(), messages: Vec::new() }
    }

    fn add(&mut self, slot: usize, operation: Operation) {
        if self.encoded.capacity() < LARGEST {
            self.encoded.reserve(ROOM);
        }
        encoding::uint64::encode(1, &(slot as u64), &mut self.encoded);
        self.encoded.extend_from_slice(self.requests.create(operation));
        self.messages.push(self.encoded.split().freeze());
    }

    fn take(&mut self) -> Vec<Bytes> {
        mem::replace(&mut self.messages, Vec::with_capacity(AT_ONCE))
    }
}
