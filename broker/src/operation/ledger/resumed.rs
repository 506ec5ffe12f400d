//! What drivers tell of operations that an earlier stream gave them, perhaps one to an earlier broker
//! process.
//!
//! A broker keeps nothing over a restart, so this is all that a new one knows. What runs holds its
//! machine. Of what ended, the latest of each machine counts, success or not: whoever was last at a
//! machine knows it as it is, and what others remember of it is out of date.

use broker_proto::v1;
use tokio::time::Instant;

use super::{Hold, Ledger, Notes, REMEMBERED_FOR, RESUMED_FOR, Served, Work};
use crate::{
    catalog::valid_name,
    driver::{DriverKey, Instance, MachineId, Realm, Verb},
    operation::{Code, Delivery, duration},
    session,
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
        let page = self.0.pages.of(&told.machine);
        let mut notes = page.notes();
        let latest = told.end.is_none()
            || self.touched(&told, &mut notes, driver, stranger)
                && !runs_elsewhere(&notes, &driver.instance);
        self.hold_for(&told, &mut notes, driver, stranger && latest);
        if notes.say_nothing() {
            drop(notes);
            self.0.pages.let_go(&told.machine, &page);
        }
        (!latest).then_some(told.machine)
    }

    /// Writes down when a driver that was a stranger was last at a machine. Says whether no other
    /// instance was there later.
    fn touched(
        &self,
        told: &Told,
        notes: &mut Notes,
        driver: &session::Info,
        stranger: bool,
    ) -> bool {
        match notes.served() {
            Some(served) if served.instance == driver.instance => true,
            Some(served) if served.since >= told.at => false,
            _ => {
                if stranger {
                    let until = Instant::now() + REMEMBERED_FOR;
                    self.0.pages.put_served(notes, || Served {
                        instance: driver.instance.clone(),
                        since: told.at,
                        until,
                    });
                }
                true
            }
        }
    }

    /// Holds a machine for what a driver says of it, or lets it go.
    fn hold_for(&self, told: &Told, notes: &mut Notes, driver: &session::Info, knows_more: bool) {
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
        let next = match notes.work() {
            Some(Work::MayRun(held)) if held.belongs_to(driver) && failed => None,
            // What we know of it ourselves stays: which operation it is, how far it got (what ended
            // may have been an earlier one), and whether it may be answered from memory.
            Some(Work::MayRun(held)) if held.belongs_to(driver) => {
                if let Some(held) = notes.hold_mut() {
                    (held.is_over, held.since, held.until) = (told.end.is_some(), told.at, until);
                }
                return;
            }
            // What runs counts for more than what is over, and that for less than what came later.
            Some(Work::MayRun(held)) if held.is_over && told.end.is_none() => Some(hold()),
            Some(Work::MayRun(held)) if held.is_over && knows_more && held.since < told.at => {
                (!failed).then(hold)
            }
            Some(_) => return,
            // Its caller was told, or we waited for it as long as it could run.
            None if failed || (told.end.is_some() && !knows_more) => return,
            None if self.0.pages.held() >= MOST_RESUMED => return,
            None => Some(hold()),
        };
        self.0.pages.put(notes, next);
    }
}

fn runs_elsewhere(notes: &Notes, instance: &Instance) -> bool {
    match notes.work() {
        Some(Work::Running(operation)) => {
            operation.session().is_some_and(|session| session.info().instance != *instance)
        }
        _ => false,
    }
}
