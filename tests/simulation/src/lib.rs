//! Broker, drivers and controllers in one process and one thread, over a simulated network, with a
//! clock that jumps to whatever comes next. A seed decides everything: who takes part, what goes wrong
//! and when. The same seed is the same run.
//!
//! The broker and the drivers' library are the real ones and speak real gRPC. `random.c` and `clock.c`,
//! linked into the `simulate` program alone, take the system's randomness and its wall clock away from
//! them; each seed is run in a process of its own, since tokio counts its runtimes.
//!
//! Not turmoil: its hosts tick in step, where here time jumps; what a partition drops there is gone,
//! where TCP would send it again; and what makes runs differ, the order of hash maps, `select!` and
//! random backoffs, is none of its business.

mod caller;
mod cloud;
mod hosts;
mod network;
mod scenario;
mod trouble;
mod world;

use std::{
    hash::{Hash as _, Hasher as _},
    time::Duration,
};

use broker_tests::{
    chance,
    history::{History, Violation, check},
};
use siphasher::sip::SipHasher13;
use tokio::runtime;

use self::world::World;

/// What came of a seed.
#[derive(Debug)]
pub struct Run {
    pub seed: u64,
    pub violations: Vec<Violation>,
    /// The same for every run of the same seed.
    pub digest: u64,
    pub history: History,
    /// In simulated time.
    pub lasted: Duration,
}

/// Runs a seed. In a process of its own it is the same every time.
pub fn run(seed: u64) -> Run {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without threads and sockets");
    runtime.block_on(async {
        let world = World::new(seed);
        let network = world.network.clone();
        let recorder = world.run().await;
        let history = recorder.history();
        let mut digest = SipHasher13::new();
        network.digest().hash(&mut digest);
        format!("{history:?}").hash(&mut digest);
        Run {
            seed,
            violations: check(&history),
            digest: digest.finish(),
            lasted: recorder.now(),
            history,
        }
    })
}
