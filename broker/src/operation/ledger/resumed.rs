//! What drivers tell of operations that an earlier stream gave them, perhaps one to an earlier broker
//! process.
//!
//! A broker keeps nothing over a restart, so this is all that a new one knows. What runs holds its
//! machine. Of what ended, the latest of each machine counts, success or not: whoever was last at a
//! machine knows it as it is, and what others remember of it is out of date.

use std::sync::Arc;

use broker_proto::v1;
use dashmap::Entry;
use tokio::time::Instant;

use super::{Hold, Ledger, REMEMBERED_FOR, RESUMED_FOR, Served, Work, lock};
use crate::{
    catalog::valid_name,
    driver::{DriverKey, MachineId, Realm, Verb},
    operation::{Code, Delivery, duration},
    session::{self, SessionHandle},
};

/// How many machines may be held by what drivers say they still run.
const MOST_RESUMED: usize = 100_000;

/// What a driver told of an operation of its own.
struct Told {
    verb: Verb,
    key: DriverKey,
    machine: MachineId,
    /// `None` while it runs.
    end: Option<Code>,
    /// When it ended, or was told of.
    at: Instant,
}

impl Told {
    /// `None` for what changes nothing and for what the driver has no say about.
    fn read(resumed: &v1::Resumed, driver: &session::Info) -> Option<Self> {
        let verb = Verb::from_wire(&resumed.verb).filter(|verb| verb.is_mutation())?;
        let class = resumed.class.as_ref()?;
        let serves =
            |key: &&DriverKey| *key.api_version == class.api_version && *key.kind == class.kind;
        // A driver has no say about machines of kinds and namespaces that are not its own. Whether the
        // machine is of its provider shows when somebody asks for it.
        let key = driver.territory.keys_in(&class.namespace).find(serves)?.clone();
        valid_name(&resumed.machine_name).ok()?;
        let realm = Realm::new(
            class.api_version.as_str().into(),
            class.kind.as_str().into(),
            class.namespace.as_str().into(),
        );
        let machine = MachineId::new(realm, resumed.machine_name.as_str().into());
        let end = resumed.result.as_ref().map(|result| Code::from_wire(result.code));
        let age = resumed.age.and_then(duration).unwrap_or_default();
        let now = Instant::now();
        Some(Self { verb, key, machine, end, at: now.checked_sub(age).unwrap_or(now) })
    }
}

impl Ledger {
    /// Hears from a driver of an operation that an earlier stream gave it, perhaps one to an earlier
    /// broker process: then it is a `stranger` to us, and of what ended we knew nothing.
    ///
    /// While it runs, its machine meets no other instance. Of those who tell of an end, the one who was
    /// last at the machine knows it as it is. Returns the machine if that was another.
    pub fn resumed(
        &self,
        resumed: &v1::Resumed,
        driver: &session::Info,
        stranger: bool,
    ) -> Option<MachineId> {
        let told = Told::read(resumed, driver)?;
        let latest = told.end.is_none()
            || self.touched(&told, driver, stranger) && !self.runs_elsewhere(&told, driver);
        self.hold_for(&told, driver, stranger && latest);
        (!latest).then_some(told.machine)
    }

    /// Writes down when a driver that was a stranger was last at a machine. Says whether no other
    /// instance was there later.
    fn touched(&self, told: &Told, driver: &session::Info, stranger: bool) -> bool {
        let page = if stranger {
            self.new_page(&told.machine)
        } else {
            self.0.served.get(&told.machine).map(|page| Arc::clone(&page))
        };
        let Some(page) = page else { return true };
        let until = Instant::now() + REMEMBERED_FOR;
        match &mut *lock(&page) {
            Some(served) if served.instance == driver.instance => true,
            Some(served) if served.since >= told.at => false,
            served if stranger => {
                let instance = driver.instance.clone();
                *served = Some(Served { instance, since: told.at, until });
                true
            }
            _ => true,
        }
    }

    fn runs_elsewhere(&self, told: &Told, driver: &session::Info) -> bool {
        let elsewhere = |session: &SessionHandle| session.info().instance != driver.instance;
        match self.0.machines.get(&told.machine).as_deref() {
            Some(Work::Running(operation)) => operation.session().is_some_and(elsewhere),
            _ => false,
        }
    }

    /// Holds a machine for what a driver says of it, or lets it go.
    fn hold_for(&self, told: &Told, driver: &session::Info, knows_more: bool) {
        let until = Instant::now() + RESUMED_FOR;
        let hold = || {
            Work::MayRun(Box::new(Hold {
                operation: None,
                verb: told.verb,
                // What is said to run may still wait for its turn there.
                delivery: if told.end.is_some() { Delivery::Accepted } else { Delivery::Sent },
                // A success is known to this driver alone, so the retry had better meet it.
                is_over: told.end.is_some(),
                key: told.key.clone(),
                instance: driver.instance.clone(),
                identity: driver.identity.clone(),
                resumes: driver.resumes,
                session: driver.id,
                since: told.at,
                until,
            }))
        };
        let failed = told.end.is_some_and(|code| !code.is_ok());
        let full = self.0.machines.len() >= MOST_RESUMED;
        match self.0.machines.entry(told.machine.clone()) {
            Entry::Occupied(mut work) => match work.get_mut() {
                Work::MayRun(held) if held.belongs_to(driver) && failed => drop(work.remove()),
                // What we know of it ourselves stays: which operation it is, how far it got (what ended
                // may have been an earlier one), and whether it may be answered from memory.
                Work::MayRun(held) if held.belongs_to(driver) => {
                    (held.is_over, held.since, held.until) = (told.end.is_some(), told.at, until);
                }
                // What runs counts for more than what is over, and that for less than what came later.
                Work::MayRun(held) if held.is_over && told.end.is_none() => {
                    work.insert(hold());
                }
                Work::MayRun(held) if held.is_over && knows_more && held.since < told.at => {
                    if failed {
                        drop(work.remove())
                    } else {
                        drop(work.insert(hold()))
                    }
                }
                _ => {}
            },
            // Its caller was told, or we waited for it as long as it could run.
            Entry::Vacant(_) if failed || (told.end.is_some() && !knows_more) => {}
            Entry::Vacant(_) if full => {}
            Entry::Vacant(free) => drop(free.insert(hold())),
        }
    }
}
