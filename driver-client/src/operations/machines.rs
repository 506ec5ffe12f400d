//! Something of each of many machines: looked up by the machine once, and by its place from then on.
//!
//! Some of them are in a line, each where it came to be when it was last put there: behind all others.

use hashbrown::HashTable;
use slab::Slab;

use super::{MachineKey, line::Line};

#[derive(Debug)]
pub(super) struct Machines<T> {
    entries: Slab<Entry<T>>,
    /// By the hash of the machine. It holds no keys of its own: whoever looks something up reads the entry
    /// anyway, and that is one cold line less.
    places: HashTable<Place>,
    line: Line,
}

/// Where a machine's entry is, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

#[derive(Debug)]
struct Entry<T> {
    machine: MachineKey,
    content: T,
}

impl<T> Default for Machines<T> {
    fn default() -> Self {
        Self { entries: Slab::new(), places: HashTable::new(), line: Line::default() }
    }
}

impl<T> Machines<T> {
    pub(super) fn find(&self, machine: &MachineKey) -> Option<Place> {
        let is_its = |place: &Place| self.entries[place.0].machine == *machine;
        self.places.find(machine.hashed(), is_its).copied()
    }

    pub(super) fn get(&self, place: Place) -> &T {
        &self.entries[place.0].content
    }

    pub(super) fn get_mut(&mut self, place: Place) -> &mut T {
        &mut self.entries[place.0].content
    }

    /// What is found by the machine.
    pub(super) fn of_mut(&mut self, machine: &MachineKey) -> Option<&mut T> {
        self.find(machine).map(|place| self.get_mut(place))
    }

    /// Makes an entry for a machine that has none. It is not in line.
    pub(super) fn insert(&mut self, machine: MachineKey, content: T) -> Place {
        let hash = machine.hashed();
        let place = Place(self.entries.insert(Entry { machine, content }));
        let entries = &self.entries;
        self.places.insert_unique(hash, place, |other| entries[other.0].machine.hashed());
        place
    }

    /// Knows the machine by this equal key from now on, which drops whatever only the one before it kept.
    pub(super) fn rename(&mut self, place: Place, machine: MachineKey) {
        self.entries[place.0].machine = machine;
    }

    pub(super) fn remove(&mut self, place: Place) -> T {
        self.line.leave(place.0);
        let Entry { machine, content } = self.entries.remove(place.0);
        if let Ok(entry) = self.places.find_entry(machine.hashed(), |other| *other == place) {
            entry.remove();
        }
        content
    }

    /// Puts it at the end of the line.
    pub(super) fn line_up(&mut self, place: Place) {
        self.line.join(place.0);
    }

    pub(super) fn leave_line(&mut self, place: Place) {
        self.line.leave(place.0);
    }

    pub(super) fn line_len(&self) -> usize {
        self.line.len()
    }

    pub(super) fn first(&self) -> Option<Place> {
        self.line.first().map(Place)
    }

    /// Those in line.
    pub(super) fn last_to_first(&self) -> impl Iterator<Item = &T> {
        self.line.last_to_first().map(|at| &self.entries[at].content)
    }

    /// All, in no order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, entry)| &mut entry.content)
    }
}
