//! Submit streams: the next operation goes out with the answer of the one before.

use anyhow::{Context as _, bail};
use broker_proto::v1::{
    SubmitRequest, machines_client::MachinesClient, submit_request, submit_response::Outcome,
};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use super::{
    Plan,
    samples::Samples,
    slots::{Slots, spread},
    unary::DEADLINE,
};
use crate::{
    dial::Bearer,
    workload::{Operation, Workload},
};

/// The broker reads no further while so many operations of a stream run; stay below it.
const MOST_ON_A_STREAM: usize = 5_000;

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Samples> {
    let streams = plan.in_flight.div_ceil(MOST_ON_A_STREAM).max(plan.channels.len());
    let mut tasks = JoinSet::new();
    for (number, (first, slots)) in spread(plan.in_flight, streams).enumerate() {
        let channel = plan.channels[number % plan.channels.len()].clone();
        let slots = Slots::new(first, slots, &plan.window);
        tasks.spawn(stream(channel, plan.bearer.clone(), plan.workload.clone(), slots));
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
    workload: Workload,
    mut slots: Slots,
) -> anyhow::Result<Samples> {
    // Room for all that can be in flight, so that sending never waits.
    let (requests, submitted) = mpsc::channel(slots.all().len());
    let submit = |slot: usize, operation: Operation| {
        let sent = requests.try_send(request(slot, &workload, operation));
        sent.context("the stream takes no more")
    };
    for slot in slots.all() {
        if let Some(operation) = slots.next(slot) {
            submit(slot, operation)?;
        }
    }
    let answers =
        MachinesClient::new(channel).submit(bearer.request(ReceiverStream::new(submitted))).await?;
    let mut answers = answers.into_inner();
    while !slots.is_idle() {
        let answer = answers.message().await?.context("the broker ended the stream")?;
        match answer.outcome {
            Some(Outcome::Machine(_)) => {}
            other => bail!("an operation failed: {other:?}"),
        }
        let slot = usize::try_from(answer.tag)?;
        slots.answered(slot);
        if let Some(operation) = slots.next(slot) {
            submit(slot, operation)?;
        }
    }
    Ok(slots.into_samples())
}

fn request(slot: usize, workload: &Workload, operation: Operation) -> SubmitRequest {
    SubmitRequest {
        tag: slot as u64,
        operation: Some(submit_request::Operation::Create(workload.create(operation))),
        timeout: Some(prost_types::Duration {
            seconds: DEADLINE.as_secs().cast_signed(),
            nanos: 0,
        }),
    }
}
