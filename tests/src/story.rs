//! What happens in a [`World`] of real processes, told by its callers and drivers, and whether it may
//! happen: the rules of [`history`](crate::history) are held against it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tonic::transport::Channel;

use crate::{
    Controller,
    caller::{Ask, Caller},
    history::{End, History, Recorder, Verb, check},
    process::{BrokerProcess, PATIENCE, Process, until},
    witness::Witness,
    world::World,
};

/// Flags of a broker that notices soon what is wrong: suspect after 2 s, dead after 5 s.
pub const QUICK: &[&str] =
    &["--ping-every", "500ms", "--suspect-after", "2s", "--dead-after", "5s"];
/// What a driver runs at once where nobody says otherwise.
const CAPACITY: usize = 16;
/// Descriptors of a broker that our own connections to it may take.
const OUR_OWN: usize = 8;
/// How long a caller waits before it tries again.
const RETRY: Duration = Duration::from_millis(50);

#[derive(Default)]
pub struct Story {
    pub world: World,
    recorder: Recorder,
    /// Made with the first driver.
    witness: Mutex<Option<Witness>>,
}

impl Story {
    /// In a world whose class says this, as fields of YAML.
    pub fn with(spec: &str) -> Self {
        Self { world: World::with(spec), ..Self::default() }
    }

    /// A broker that listens on any free port.
    pub fn broker(&self, more: &[&str]) -> BrokerProcess {
        self.world.broker("127.0.0.1:0", more)
    }

    pub fn driver(&self, broker: impl ToString, instance: &str) -> Process {
        self.driver_with(broker, instance, &[])
    }

    pub fn driver_with(&self, broker: impl ToString, instance: &str, more: &[&str]) -> Process {
        let driver = self.world.driver(&broker.to_string(), instance, more);
        let capacity = more.iter().skip_while(|flag| **flag != "--capacity").nth(1);
        let capacity = capacity.map_or(CAPACITY, |number| number.parse().expect("a number"));
        self.recorder.capacity(&driver.id().to_string(), capacity);
        self.witness();
        driver
    }

    /// SIGKILL to a driver.
    pub fn kill(&self, mut driver: Process) {
        driver.kill();
        let mut witness = self.witness.lock().expect("no panic while locked");
        witness.as_mut().expect("there is a driver").killed(driver.id());
    }

    pub fn caller(&self, channel: Channel) -> Caller {
        Caller { controller: Controller::new(channel), recorder: self.recorder.clone() }
    }

    /// How many VMs there are.
    pub fn vms(&self) -> usize {
        self.world.cloud().all().expect("the cloud can be read").len()
    }

    /// What is known so far.
    pub fn history(&self) -> History {
        let vms = self.world.cloud().all().expect("the cloud can be read");
        let standing: Vec<_> = vms.into_iter().map(|vm| (vm.provider_id(), vm.name)).collect();
        let mut history = self.recorder.history();
        self.witness().tell(&mut history, &self.world.journal(), &standing);
        history
    }

    fn witness(&self) -> Witness {
        let mut witness = self.witness.lock().expect("no panic while locked");
        witness.get_or_insert_with(|| Witness::of(&self.recorder)).clone()
    }

    /// All drivers have gone: looks at what is left of them, and holds every rule against what
    /// happened. `descriptors` is how many the broker had in the beginning.
    ///
    /// Returns how many VMs there are.
    pub async fn verdict(&self, broker: &BrokerProcess, descriptors: usize) -> usize {
        let give_up = Instant::now() + PATIENCE;
        let left = loop {
            let mut left = Vec::new();
            left.extend(broker.listed().await.iter().map(|driver| format!("{driver:?}")));
            left.extend(broker.running().await.iter().map(|operation| format!("{operation:?}")));
            let open = broker.descriptors();
            if open > descriptors + OUR_OWN {
                left.push(format!("{open} descriptors, and {descriptors} in the beginning"));
            }
            if left.is_empty() || Instant::now() > give_up {
                break left;
            }
            sleep(Duration::from_millis(50)).await;
        };
        left.into_iter().for_each(|what| self.recorder.left_over(what));
        let violations = check(&self.history());
        let told: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "the history breaks rules:\n{}", told.join("\n"));
        self.vms()
    }
}

/// Asks once. Whether the way to the broker was free is not looked at.
pub async fn ask(caller: &Caller, ask: &Ask) -> End {
    caller.ask(ask, |_| false).await
}

/// Asks until it is a success, as controllers do. What has to succeed is asked once.
pub async fn insist(caller: &Caller, wanted: &Ask) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let end = ask(caller, wanted).await;
        if end.is_success() || wanted.calm {
            return;
        }
        assert!(Instant::now() < give_up, "never a success: {wanted:?}, {end:?}");
        sleep(RETRY).await;
    }
}

/// Callers that create machines, each one after the other, until they are told to stop.
pub struct Load {
    over: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Load {
    /// `calm`: nothing may fail. Otherwise they try again until they know.
    pub fn start(caller: &Caller, callers: usize, calm: bool) -> Self {
        let (over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..callers {
            let (caller, over, made) = (caller.clone(), Arc::clone(&over), Arc::clone(&made));
            tasks.spawn(async move {
                for machine in 0.. {
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                    let name = format!("load-{number}-{machine}");
                    let create = Ask::new(Verb::Create, &name, PATIENCE);
                    insist(&caller, &Ask { calm, ..create }).await;
                    made.fetch_add(1, Ordering::Release);
                }
            });
        }
        Self { over, made, tasks }
    }

    /// Waits until so many more are made than there are now.
    pub async fn makes(&self, more: usize) {
        let wanted = self.made.load(Ordering::Acquire) + more;
        let give_up = Instant::now() + PATIENCE;
        while self.made.load(Ordering::Acquire) < wanted {
            assert!(Instant::now() < give_up, "the load stands still");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until all callers have what they wanted. Returns how many machines they made.
    pub async fn stop(mut self) -> usize {
        self.over.store(true, Ordering::Release);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a caller does not panic");
        }
        self.made.load(Ordering::Acquire)
    }
}

/// SIGTERM to a process, which has to leave in good order. Others run on meanwhile.
pub async fn stop(mut process: Process) {
    process.signal("-TERM");
    let waited = tokio::task::spawn_blocking(move || (process.end(), process.output()));
    let (status, output) = waited.await.expect("waiting does not panic");
    let in_order = status.is_some_and(|status| status.success());
    assert!(in_order, "it did not leave in good order: {status:?}\n{output}");
}

/// Waits until a process has written a line with `text`.
pub fn until_says(process: &Process, text: &str) {
    let said = until(|| process.output().contains(text).then_some(()));
    assert!(said.is_some(), "it never said {text:?}:\n{}", process.output());
}
