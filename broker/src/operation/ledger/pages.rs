//! What is known of each machine: one page for each, which is there while it says something or
//! somebody has it in hand.
//!
//! 1. Whoever has to do with a machine takes its page from the map, under the guard of the page's
//!    shard, and lets go of the map.
//! 2. Then they lock the page, and read and write.
//! 3. A page that says nothing is taken out under the same guard, if nobody else has it in hand.
//!
//! So the page that somebody has is the one in the map, and what they write on it is found. An operation
//! keeps its page until it is dropped, and needs the map no more.
//!
//! A page is locked with a guard of the map held, where one goes through all of them or takes one out.
//! Nobody asks the map for anything, or waits for anything else, with a page locked: so no two wait for
//! each other.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::time::Instant;

use super::{Hold, Kept};
use crate::{
    driver::{Instance, MachineId},
    maps::SharedMap,
    operation::Operation,
};

#[derive(Debug)]
pub(super) struct Pages {
    map: SharedMap<MachineId, Arc<Page>>,
    most_served: usize,
    /// Of how many machines it is known who changed them last: the map would have to count.
    served: AtomicUsize,
    /// How many machines are held.
    held: AtomicUsize,
    /// How many answers are kept that nobody heard: mostly none.
    kept: AtomicUsize,
}

#[derive(Debug, Default)]
pub(in crate::operation) struct Page(Mutex<Notes>);

/// What is written on a page.
#[derive(Debug, Default)]
pub(super) struct Notes {
    work: Option<Work>,
    served: Option<Served>,
}

/// What is known of the work on one machine. It is small, since every operation moves one in and out.
#[derive(Debug)]
pub(super) enum Work {
    Running(Arc<Operation>),
    MayRun(Box<Hold>),
    /// With nobody there to hear it.
    Answered(Box<Kept>),
}

/// Who changed a machine last, and since when nobody else has.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) instance: Instance,
    pub(super) since: Instant,
    /// By then it has forgotten.
    pub(super) until: Instant,
}

impl Pages {
    /// Of no more than so many machines it is written down who changed them last.
    pub(super) fn new(most_served: usize) -> Self {
        Self {
            map: SharedMap::default(),
            most_served,
            served: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
        }
    }

    /// The machine's page, perhaps a new one. Who leaves it without a word has to [let it
    /// go](Self::let_go).
    pub(super) fn of(&self, machine: &MachineId) -> Arc<Page> {
        if let Some(page) = self.known(machine) {
            return page;
        }
        Arc::clone(&self.map.entry(machine.clone()).or_default())
    }

    /// The machine's page, if there is one.
    pub(super) fn known(&self, machine: &MachineId) -> Option<Arc<Page>> {
        self.map.get(machine).map(|page| Arc::clone(&page))
    }

    /// Takes out a page that says nothing, unless it is in other hands: then they write on it, or it is
    /// found by [`Self::tidy`].
    pub(super) fn let_go(&self, machine: &MachineId, page: &Arc<Page>) {
        self.map.remove_if(machine, |_, there| {
            // Nobody but the map and the caller has it, and nobody can take it now.
            let is_free = Arc::ptr_eq(there, page) && Arc::strong_count(there) == 2;
            is_free && there.notes().say_nothing()
        });
    }

    /// Goes through all pages, and takes out those that say nothing after it.
    pub(super) fn tidy(&self, look: impl Fn(&mut Notes)) {
        self.map.retain(|_, page| {
            let mut notes = page.notes();
            look(&mut notes);
            !notes.say_nothing() || Arc::strong_count(page) > 1
        });
    }

    /// What every page says that `look` is interested in.
    pub(super) fn all<T>(&self, look: impl Fn(&MachineId, &Notes) -> Option<T>) -> Vec<T> {
        self.map.iter().filter_map(|entry| look(entry.key(), &entry.value().notes())).collect()
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.load(Ordering::Acquire)
    }

    /// Writes down what is to be known of the work there from now on.
    pub(super) fn put(&self, notes: &mut Notes, work: Option<Work>) {
        let before = mem::replace(&mut notes.work, work);
        if let Some(count) = self.count_of(notes.work.as_ref()) {
            count.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(count) = self.count_of(before.as_ref()) {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn count_of(&self, work: Option<&Work>) -> Option<&AtomicUsize> {
        match work {
            Some(Work::MayRun(_)) => Some(&self.held),
            Some(Work::Answered(_)) => Some(&self.kept),
            Some(Work::Running(_)) | None => None,
        }
    }

    /// Writes down who changed the machine last, unless that is known of too many.
    pub(super) fn put_served(&self, notes: &mut Notes, served: impl FnOnce() -> Served) {
        if notes.served.is_none() {
            if self.served.load(Ordering::Acquire) >= self.most_served {
                return;
            }
            self.served.fetch_add(1, Ordering::AcqRel);
        }
        notes.served = Some(served());
    }

    /// Strikes out who changed the machine last, if that is too long ago to matter.
    pub(super) fn forget_served(&self, notes: &mut Notes, now: Instant) {
        if notes.served.take_if(|served| now >= served.until).is_some() {
            self.served.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Page {
    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().expect("no panic while locked")
    }
}

impl Notes {
    pub(super) fn work(&self) -> Option<&Work> {
        self.work.as_ref()
    }

    pub(super) fn hold_mut(&mut self) -> Option<&mut Hold> {
        match &mut self.work {
            Some(Work::MayRun(hold)) => Some(hold),
            _ => None,
        }
    }

    pub(super) fn served(&self) -> Option<&Served> {
        self.served.as_ref()
    }

    pub(super) fn served_mut(&mut self) -> Option<&mut Served> {
        self.served.as_mut()
    }

    pub(super) fn say_nothing(&self) -> bool {
        self.work.is_none() && self.served.is_none()
    }
}

#[cfg(test)]
impl Pages {
    /// Says how many pages there are, once it has counted all that is written on them.
    pub(super) fn counted(&self) -> usize {
        let count = |is: fn(&Notes) -> bool| self.all(|_, notes| is(notes).then_some(())).len();
        assert_eq!(self.held(), count(|n| matches!(n.work, Some(Work::MayRun(_)))), "held");
        assert_eq!(self.kept(), count(|n| matches!(n.work, Some(Work::Answered(_)))), "kept");
        let served = count(|notes| notes.served.is_some());
        assert_eq!(self.served.load(Ordering::Acquire), served, "served");
        assert!(served <= self.most_served, "{served} are served");
        assert_eq!(count(Notes::say_nothing), 0, "pages that say nothing");
        self.map.len()
    }
}
