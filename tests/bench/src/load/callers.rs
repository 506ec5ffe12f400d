//! A task for each operation in flight, that asks and waits and asks again.

use tokio::{task::JoinSet, time::Instant};

use super::{samples::Samples, window::Window};
use crate::workload::Operation;

/// Someone who asks and waits for the answer.
pub(super) trait Caller: Send + 'static {
    fn call(&mut self, operation: Operation) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Has all of them ask until the window closes.
pub(super) async fn all<C: Caller>(callers: Vec<C>, window: &Window) -> anyhow::Result<Samples> {
    let mut tasks = JoinSet::new();
    for (asker, caller) in callers.into_iter().enumerate() {
        tasks.spawn(one(caller, asker, window.clone()));
    }
    let mut samples = Samples::default();
    while let Some(ended) = tasks.join_next().await {
        samples.extend(ended??);
    }
    Ok(samples)
}

async fn one(mut caller: impl Caller, asker: usize, window: Window) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    let mut began = Instant::now();
    while let Some(number) = window.next(began) {
        caller.call(Operation { asker, number }).await?;
        let ended = Instant::now();
        if window.counts(ended) {
            samples.push(ended - began);
        }
        began = ended;
    }
    Ok(samples)
}
