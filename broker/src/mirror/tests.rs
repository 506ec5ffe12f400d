//! Brokers that show their drivers in one cluster, which is played.

use std::{collections::BTreeMap, sync::atomic::AtomicU32, time::SystemTime};

use broker_crds::driver::{Driver, State};
use futures::stream::{self, BoxStream};
use tokio::{
    sync::broadcast,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::*;
use crate::{
    auth::{Identity, Territory},
    catalog::Static,
    driver::{ConnectionId, DriverKey, Instance, SessionId},
    metrics::Metrics,
    registry::{Registration, Seating, What},
    session::{Info, Session, Terms, Times, Token},
};

/// Objects, and who wrote them how often.
#[derive(Debug)]
struct Cluster {
    state: Mutex<Objects>,
    changes: broadcast::Sender<Seen>,
}

#[derive(Debug, Default)]
struct Objects {
    objects: BTreeMap<String, Object>,
    version: u64,
    writes: usize,
    conflicts: usize,
    told: Vec<(News, Option<String>)>,
    /// What everything fails with.
    fails: Option<Failed>,
    /// The object that is not taken.
    refuses: Option<&'static str>,
}

impl Cluster {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changes: broadcast::Sender::new(10_000) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Objects> {
        self.state.lock().unwrap()
    }

    fn driver(&self, name: &str) -> Option<Driver> {
        self.state().objects.get(name).map(|object| object.driver.clone())
    }

    fn replicas(&self, name: &str) -> Vec<String> {
        let sessions = self.driver(name).map(|driver| driver.status.sessions).unwrap_or_default();
        sessions.into_iter().map(|session| session.replica).collect()
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.state().told.iter().map(|(news, _)| news.reason).collect()
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let so = async {
            while !is_so(self) {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let soon = timeout(Duration::from_secs(120), so).await;
        soon.unwrap_or_else(|_| panic!("never so: {what}: {:#?}", self.state()));
    }
}

impl Resources for Cluster {
    fn watch(&self) -> BoxStream<'static, Result<Seen, Failed>> {
        let (state, changes) = (self.state(), self.changes.subscribe());
        if let Some(failed) = state.fails.clone() {
            return stream::iter([Err(failed)]).boxed();
        }
        let all = Seen::All(state.objects.values().cloned().collect());
        let changes = stream::unfold(changes, async |mut changes| {
            let seen = changes.recv().await.ok()?;
            Some((Ok(seen), changes))
        });
        stream::iter([Ok(all)]).chain(changes).boxed()
    }

    fn apply(
        &self,
        name: &str,
        version: Option<&str>,
        driver: &Driver,
    ) -> BoxFuture<'static, Result<(), Failed>> {
        let mut state = self.state();
        let there = state.objects.get(name).map(|object| object.version.clone());
        let result = if let Some(failed) = state.fails.clone() {
            Err(failed)
        } else if state.refuses == Some(name) {
            Err(Failed::Refused("it is too large".to_owned()))
        } else if version.is_some() && there.as_deref() != version {
            state.conflicts += 1;
            Err(Failed::Conflict)
        } else {
            state.version += 1;
            state.writes += 1;
            let version = state.version.to_string();
            let uid = state.objects.get(name).map_or(format!("uid-{version}"), |o| o.uid.clone());
            let (name, driver) = (name.to_owned(), driver.clone());
            let object = Object { name: name.clone(), uid, version, driver };
            state.objects.insert(name, object.clone());
            self.changes.send(Seen::Changed(Box::new(object))).ok();
            Ok(())
        };
        later(result)
    }

    fn remove(&self, seen: &Object) -> BoxFuture<'static, Result<(), Failed>> {
        let mut state = self.state();
        let there = state.objects.get(&seen.name);
        let same = there.is_none_or(|there| there.version == seen.version && there.uid == seen.uid);
        let result = if let Some(failed) = state.fails.clone() {
            Err(failed)
        } else if !same {
            state.conflicts += 1;
            Err(Failed::Conflict)
        } else {
            state.writes += 1;
            state.objects.remove(&seen.name);
            self.changes.send(Seen::Gone(seen.name.clone())).ok();
            Ok(())
        };
        later(result)
    }

    fn tell(&self, news: &News, uid: Option<&str>) -> BoxFuture<'static, Result<(), Failed>> {
        let mut state = self.state();
        let result = match state.fails.clone() {
            Some(failed) => Err(failed),
            None => {
                state.told.push((news.clone(), uid.map(ToOwned::to_owned)));
                Ok(())
            }
        };
        later(result)
    }
}

/// An answer takes its time.
fn later<T: Send + 'static>(result: T) -> BoxFuture<'static, T> {
    async move {
        sleep(Duration::from_millis(20)).await;
        result
    }
    .boxed()
}

/// A broker with its registry.
struct Broker {
    registry: Registry,
    trouble: Trouble,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Broker {
    fn start(cluster: &Arc<Cluster>, replica: &str, live: &Arc<Mutex<BTreeSet<Arc<str>>>>) -> Self {
        let registry = Registry::new(Seating::default());
        let (trouble, stop) = (Trouble::default(), CancellationToken::new());
        live.lock().unwrap().insert(replica.into());
        let live = Arc::clone(live);
        let mirror = Mirror {
            registry: registry.clone(),
            catalog: Static::sample(),
            resources: Arc::clone(cluster) as _,
            replica: replica.to_owned(),
            live: Box::new(move || Some(live.lock().unwrap().clone())),
            trouble: trouble.clone(),
        };
        let mut task = JoinSet::new();
        task.spawn(mirror.run(stop.clone()));
        Self { registry, trouble, stop, task }
    }

    /// A driver of 2018, which is never silent as far as anybody can tell, or one of today, which is.
    async fn driver(&self, instance: &str, protocol: u32) -> (Registration, Session) {
        let (handle, session) = session(instance, protocol);
        let seat = self.registry.register(&handle).await.unwrap();
        let (info, history) = (handle.info(), self.registry.history());
        history.note(What::Registered, "", Some(info.id), &info.instance);
        (seat, session)
    }

    async fn stop(mut self) {
        self.stop.cancel();
        self.task.join_next().await.unwrap().unwrap();
    }
}

fn session(instance: &str, protocol: u32) -> (crate::session::SessionHandle, Session) {
    let key = DriverKey { api_version: "a/v1".into(), kind: "K".into(), provider: None };
    let id = SessionId::random();
    let info = Info {
        id,
        token: Token::random(),
        name: "sim".to_owned(),
        territory: Territory::everywhere(std::slice::from_ref(&key)),
        keys: vec![key],
        identity: Identity::anonymous(),
        in_audit: crate::audit::Driver::new(instance, id),
        instance: Instance { id: instance.into(), boot: Some("boot".into()) },
        version: "v1".to_owned(),
        protocol,
        verbs: Vec::new(),
        capacity: 1,
        resumes: true,
        connection: ConnectionId(0),
        address: "test".into(),
        connected_at: SystemTime::now(),
        takeovers: AtomicU32::new(0),
    };
    let terms = Terms { native: protocol > 0, cancel: true, drain: true, capacity: 1 };
    Session::new(info, terms, Times::default(), 1, Metrics::default())
}

fn nobody() -> Arc<Mutex<BTreeSet<Arc<str>>>> {
    Arc::default()
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_shown_while_it_is_connected_and_written_no_more_than_needed() {
    let cluster = Cluster::new();
    let broker = Broker::start(&cluster, "a", &nobody());
    let driver = broker.driver("sim-0", 0).await;
    cluster.until("shown", |cluster| cluster.driver("sim-0").is_some()).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(cluster.state().writes, 1, "nothing changed");
    let told = cluster.state().told.clone();
    let [(news, uid)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((news.reason, &*news.about), ("Registered", "sim-0"));
    assert!(uid.is_some(), "told once the object was there");

    drop(driver);
    cluster.until("gone", |cluster| cluster.driver("sim-0").is_none()).await;
    assert_eq!(cluster.state().writes, 2);
    assert!(broker.trouble.problems().is_empty());
    broker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_driver_is_shown_as_suspect() {
    let cluster = Cluster::new();
    let broker = Broker::start(&cluster, "a", &nobody());
    let _driver = broker.driver("sim-0", 1).await;
    let state = |cluster: &Cluster| cluster.driver("sim-0").map(|driver| driver.status.state);
    cluster.until("ready", |cluster| state(cluster) == Some(State::Ready)).await;
    cluster.until("suspect", |cluster| state(cluster) == Some(State::Suspect)).await;
    broker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_back_at_once_keeps_its_object() {
    let cluster = Cluster::new();
    let broker = Broker::start(&cluster, "a", &nobody());
    drop(broker.driver("sim-0", 0).await);
    let driver = broker.driver("sim-0", 0).await;
    cluster.until("shown", |cluster| cluster.driver("sim-0").is_some()).await;
    let uid = |cluster: &Cluster| cluster.state().objects["sim-0"].uid.clone();
    let before = uid(&cluster);
    drop(driver);
    for _ in 0..20 {
        sleep(Duration::from_secs(6)).await;
        let driver = broker.driver("sim-0", 0).await;
        sleep(Duration::from_secs(3)).await;
        drop(driver);
    }
    let _driver = broker.driver("sim-0", 0).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(uid(&cluster), before);
    let writes = cluster.state().writes;
    assert!(writes <= 25, "{writes}");
    broker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn brokers_share_the_object_of_a_driver_and_clean_up_after_each_other() {
    let (cluster, live) = (Cluster::new(), nobody());
    let brokers = ["a", "b", "c"].map(|replica| Broker::start(&cluster, replica, &live));
    let mut drivers = Vec::new();
    for broker in &brokers {
        drivers.push(broker.driver("sim-0", 0).await);
    }
    cluster.until("three sessions", |cluster| cluster.replicas("sim-0").len() == 3).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.driver("sim-0").unwrap().status.replicas, 3);
    let writes = cluster.state().writes;
    assert!(writes <= 6, "{writes}");

    // One dies without a word, and another comes under a new name.
    let [a, b, c] = brokers;
    drop(c.task);
    live.lock().unwrap().remove("c");
    cluster.until("c is gone", |cluster| cluster.replicas("sim-0") == ["a", "b"]).await;
    assert_eq!(cluster.state().writes, writes + 1, "one of them was enough");
    let d = Broker::start(&cluster, "d", &live);
    drivers.push(d.driver("sim-0", 0).await);
    cluster.until("d is there", |cluster| cluster.replicas("sim-0") == ["a", "b", "d"]).await;

    drivers.clear();
    cluster.until("all is gone", |cluster| cluster.driver("sim-0").is_none()).await;
    for broker in [a, b, d] {
        broker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn thousands_are_written_at_a_pace_and_what_is_news_goes_first() {
    let cluster = Cluster::new();
    let broker = Broker::start(&cluster, "a", &nobody());
    let mut drivers = Vec::new();
    for number in 0..2_000 {
        drivers.push(broker.driver(&format!("sim-{number}"), 0).await);
    }
    sleep(Duration::from_secs(10)).await;
    let written = cluster.state().writes;
    assert!((150..=260).contains(&written), "{written}");
    let told = cluster.state().told.len();
    assert!(told <= 110, "{told}");
    cluster.until("all", |cluster| cluster.state().objects.len() == 2_000).await;
    assert_eq!(cluster.state().conflicts, 0);
    drop(drivers);
    broker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_know_the_kind_is_a_problem_until_it_does() {
    let cluster = Cluster::new();
    cluster.state().fails = Some(Failed::Missing("no such kind".to_owned()));
    let broker = Broker::start(&cluster, "a", &nobody());
    let _driver = broker.driver("sim-0", 0).await;
    cluster.until("a problem", |_| !broker.trouble.problems().is_empty()).await;
    let problems = broker.trouble.problems();
    assert_eq!(problems[0], "drivers are not shown in the cluster: no such kind");
    sleep(Duration::from_secs(60)).await;
    cluster.state().fails = None;
    cluster.until("shown", |cluster| cluster.driver("sim-0").is_some()).await;
    cluster.until("no problem", |_| broker.trouble.problems().is_empty()).await;
    cluster.until("told late", |cluster| cluster.reasons() == ["Registered"]).await;
    broker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_for_and_then_only_what_changed_is_written() {
    let cluster = Cluster::new();
    let broker = Broker::start(&cluster, "a", &nobody());
    let mut drivers = Vec::new();
    for number in 0..20 {
        drivers.push(broker.driver(&format!("sim-{number}"), 0).await);
    }
    cluster.until("all", |cluster| cluster.state().objects.len() == 20).await;
    let written = cluster.state().writes;
    cluster.state().fails = Some(Failed::Other("connection refused".to_owned()));
    drivers.truncate(18);
    sleep(Duration::from_secs(600)).await;
    assert!(!broker.trouble.problems().is_empty());
    cluster.state().fails = None;
    cluster.until("two less", |cluster| cluster.state().objects.len() == 18).await;
    assert_eq!(cluster.state().writes, written + 2);
    cluster.until("no problem", |_| broker.trouble.problems().is_empty()).await;
    broker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_removed_is_written_anew() {
    let cluster = Cluster::new();
    let broker = Broker::start(&cluster, "a", &nobody());
    let _driver = broker.driver("sim-0", 0).await;
    cluster.until("shown", |cluster| cluster.driver("sim-0").is_some()).await;
    let object = cluster.state().objects["sim-0"].clone();
    cluster.remove(&object).await.unwrap();
    cluster.until("shown again", |cluster| cluster.driver("sim-0").is_some()).await;
    broker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_drivers_is_told_in_order() {
    let cluster = Cluster::new();
    let broker = Broker::start(&cluster, "a", &nobody());
    let (seat, _) = broker.driver("sim-0", 0).await;
    cluster.until("shown", |cluster| cluster.reasons() == ["Registered"]).await;
    // The same process dials again.
    let (_newer, _) = broker.driver("sim-0", 0).await;
    drop(seat);
    broker.registry.history().turned_away("sim-0".into(), "the policy does not allow it");
    let all = ["Registered", "Takeover", "Registered", "Lost", "Rejected"];
    cluster.until("all of it", |cluster| cluster.reasons() == all).await;
    assert!(cluster.state().told.iter().all(|(_, uid)| uid.is_some()));
    broker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_not_taken_is_a_problem_and_stops_no_other() {
    let cluster = Cluster::new();
    cluster.state().refuses = Some("sim-0");
    let broker = Broker::start(&cluster, "a", &nobody());
    let _refused = broker.driver("sim-0", 0).await;
    let _taken = broker.driver("sim-1", 0).await;
    cluster.until("the other", |cluster| cluster.driver("sim-1").is_some()).await;
    cluster.until("a problem", |_| !broker.trouble.problems().is_empty()).await;
    sleep(Duration::from_secs(60)).await;
    let problems = broker.trouble.problems();
    assert_eq!(problems, ["drivers are not shown in the cluster: it is too large"]);
    cluster.state().refuses = None;
    sleep(Duration::from_secs(300)).await;
    cluster.until("all well", |_| broker.trouble.problems().is_empty()).await;
    assert!(cluster.driver("sim-0").is_some());
    broker.stop().await;
}
