//! Is all well, and if not, what is it and what is to be done?

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use broker_proto::v1::{self, Concern, DriverState};

use super::{Rooms, Serving, certificates, describe};
use crate::{registry::Holder, replicas::Report};

/// A driver that fails this often by its own fault deserves a look, once it had some work.
const HIGH_ERROR_RATE: f64 = 0.5;
const ENOUGH_ANSWERS: u64 = 10;
/// After so long, lost audit lines are no news any more.
const LOST_LATELY: Duration = Duration::from_secs(60 * 60);
/// A screen has room for so many.
const MOST: usize = 20;

pub fn status(rooms: &Rooms) -> v1::BrokerStatus {
    let drivers = describe::drivers(rooms, "");
    let count = |state| describe::count(drivers.iter().filter(|d| d.state() == state).count());
    let running = rooms.ledger.running();
    let oldest = running.iter().map(|operation| operation.submitted.elapsed()).max();
    let classes = rooms.catalog.classes();
    v1::BrokerStatus {
        replica_id: rooms.replica.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: Some(rooms.started_at.into()),
        ready: !rooms.closing.is_cancelled(),
        concerns: concerns(rooms, &drivers),
        drivers_ready: count(DriverState::Ready),
        drivers_suspect: count(DriverState::Suspect),
        drivers_draining: count(DriverState::Draining),
        operations_running: describe::count(running.len()),
        oldest_pending: oldest.and_then(|age| age.try_into().ok()),
        classes: describe::count(classes.len()),
    }
}

/// The most urgent first.
fn concerns(rooms: &Rooms, drivers: &[v1::Driver]) -> Vec<Concern> {
    let mut concerns = Vec::new();
    let mut say = |what: String, advice: &str| {
        concerns.push(Concern { what, advice: advice.to_owned() });
    };
    if rooms.closing.is_cancelled() {
        say("the broker is stopping".to_owned(), "use another replica");
    }
    if let Some(tls) = rooms.auth.tls() {
        for (what, advice) in certificates::concerns(tls, SystemTime::now()) {
            say(what, advice);
        }
    }
    for operation in rooms.ledger.running() {
        if let Some(why) = describe::stuck(&operation) {
            let request = &operation.request;
            say(
                format!("{} of {} is stuck: {why}", request.verb, request.machine.name),
                "see `brokerctl operations`; if its driver hangs, evict it: what may have \
                 happened is then told as unknown",
            );
        }
    }
    for driver in drivers.iter().filter(|driver| driver.state() == DriverState::Suspect) {
        say(
            format!("driver {} is suspect: it {}", driver.instance_id, driver.state_reason),
            "look at its process and its network; it gets no new work until it is heard again",
        );
    }
    for (instance, count) in held(rooms) {
        let machines = if count == 1 { "machine waits" } else { "machines wait" };
        say(
            format!("{count} {machines} for driver instance {instance}, which is away"),
            "bring it back under the same instance id: only it knows what became of them; \
             otherwise they are free when their operations' time is over",
        );
    }
    if let Some((lines, ago)) = audit_lost(rooms) {
        let were = if lines == 1 { "line is" } else { "lines are" };
        say(
            format!("{lines} audit {were} lost, the last {} s ago", ago.as_secs()),
            "see whether the disk of the audit log is full, slow or not writable; a line \
             `lines_lost` marks the gap",
        );
    }
    for kind in unready(drivers) {
        say(
            format!(
                "no driver of {kind} takes new work: all that are connected drain or are suspect"
            ),
            "start another one, or see with `brokerctl drivers` what they wait for",
        );
    }
    for (kind, count) in unserved(rooms) {
        let classes = if count == 1 { "class" } else { "classes" };
        say(
            format!("no driver serves {kind} ({count} {classes})"),
            "start a driver for this kind, or remove its classes",
        );
    }
    for driver in drivers.iter().filter(|driver| fails_often(driver)) {
        let percent = driver.error_rate * 100.0;
        say(
            format!("driver {} fails in {percent:.0} % of its operations", driver.instance_id),
            "see its last error with `brokerctl drivers describe`",
        );
    }
    for problem in rooms.catalog.problems() {
        let advice = match problem.file {
            Some(_) => "mend the file; what it said before, if anything, stays in force",
            None => "mend it in the cluster; what was read before, if anything, stays in force",
        };
        say(format!("catalog: {problem}"), advice);
    }
    if let Some(missed) = rooms.replicas.passed_over(|| Report::of(&rooms.registry)) {
        let advice = "see whether drivers can reach the address of --advertise";
        say(format!("replicas: {missed}"), advice);
    }
    for problem in rooms.replicas.problems() {
        say(
            format!("replicas: {problem}"),
            "drivers that are connected stay; others may not find all replicas until it is mended",
        );
    }
    // That the API server is away is told above.
    if rooms.catalog.age().is_none() {
        for problem in rooms.mirror.problems() {
            say(problem, "mend it in the cluster, or say --driver-resources off; all else goes on");
        }
    }
    for problem in rooms.auth.problems() {
        say(problem, "mend the file; what it said before stays in force");
    }
    shortened(concerns)
}

fn fails_often(driver: &v1::Driver) -> bool {
    driver.succeeded + driver.failed >= ENOUGH_ANSWERS && driver.error_rate >= HIGH_ERROR_RATE
}

/// How many audit lines are lost, and how long ago the last one was, if that is not long ago.
fn audit_lost(rooms: &Rooms) -> Option<(u64, Duration)> {
    let audit = &rooms.audit;
    let ago = audit.last_lost().filter(|ago| *ago < LOST_LATELY)?;
    Some((audit.lost(), ago))
}

/// How many machines are held for each instance that is away.
fn held(rooms: &Rooms) -> BTreeMap<String, usize> {
    let mut held = BTreeMap::new();
    for (_, hold) in rooms.ledger.holds() {
        if let Holder::Away = rooms.registry.holder(&hold) {
            *held.entry(hold.instance.to_string()).or_default() += 1;
        }
    }
    held
}

/// The kinds that have drivers, none of which is ready.
fn unready(drivers: &[v1::Driver]) -> Vec<&str> {
    let mut kinds: BTreeMap<&str, bool> = BTreeMap::new();
    for driver in drivers {
        for kind in &driver.kinds {
            *kinds.entry(&kind.kind).or_default() |= driver.state() == DriverState::Ready;
        }
    }
    kinds.into_iter().filter(|(_, ready)| !ready).map(|(kind, _)| kind).collect()
}

/// How many classes of each kind nobody serves.
fn unserved(rooms: &Rooms) -> BTreeMap<String, usize> {
    let (serving, mut unserved) = (Serving::now(rooms), BTreeMap::new());
    for class in rooms.catalog.classes() {
        if serving.instances(&class).is_empty() {
            *unserved.entry(class.id.kind.to_string()).or_default() += 1;
        }
    }
    unserved
}

/// How many more there are is said.
fn shortened(mut concerns: Vec<Concern>) -> Vec<Concern> {
    if concerns.len() > MOST {
        let more = concerns.len() - MOST;
        concerns.truncate(MOST);
        concerns.push(Concern {
            what: format!("and {more} more"),
            advice: "begin with the first".to_owned(),
        });
    }
    concerns
}
