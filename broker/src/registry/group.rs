//! Those who share a key, and which of them a machine belongs to.
//!
//! Every replica has to choose the same one without asking the others, and few machines may move when
//! somebody comes or goes. Rendezvous hashing does that (Thaler and Ravishankar 1998: whoever weighs
//! most for a machine gets it), but weighs everyone for each machine. So members sit at tables, by the
//! hash of their names: a machine chooses a table, then a member there. Tables weigh as much as they have
//! members ("straw2" of Ceph's CRUSH), so that every member gets the same share however they came to
//! sit. Who comes takes 1/n of the machines, as with rendezvous hashing; up to another 1/n moves
//! to others at its table, which weighs more now.

use std::hash::{Hash, Hasher as _};

use siphasher::sip::SipHasher13;

/// As many as ten thousand members make about as long as a table is: a power of two.
const TABLES: u64 = 64;
/// How often a machine chooses before everyone is asked who is wanted at all.
const CHOICES: u64 = 8;

#[derive(Debug)]
pub(super) struct Group<T> {
    /// Those where somebody sits, in the order of their numbers.
    tables: Vec<Table<T>>,
}

#[derive(Debug)]
struct Table<T> {
    number: u64,
    members: Vec<Member<T>>,
}

#[derive(Debug)]
struct Member<T> {
    /// Of its name.
    hash: u64,
    what: T,
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Self { tables: Vec::new() }
    }
}

impl<T> Group<T> {
    pub(super) fn insert(&mut self, name: &str, what: T) {
        let hash = stable_hash(name);
        let member = Member { hash, what };
        match self.place(hash) {
            Ok(at) => self.tables[at].members.push(member),
            Err(at) => {
                // Mostly there is one: room for four would be the default.
                self.tables.reserve_exact(1);
                self.tables.insert(at, Table { number: number(hash), members: vec![member] });
            }
        }
    }

    /// Removes those of this name that `is_gone`.
    pub(super) fn remove(&mut self, name: &str, is_gone: impl Fn(&T) -> bool) {
        let hash = stable_hash(name);
        let Ok(at) = self.place(hash) else { return };
        let members = &mut self.tables[at].members;
        members.retain(|member| member.hash != hash || !is_gone(&member.what));
        if members.is_empty() {
            self.tables.remove(at);
        }
    }

    /// Those of this name; somebody else may have the same hash.
    pub(super) fn called(&self, name: &str) -> impl Iterator<Item = &T> {
        let hash = stable_hash(name);
        let members = self.place(hash).map_or_else(|_| &[][..], |at| &self.tables[at].members[..]);
        members.iter().filter(move |member| member.hash == hash).map(|member| &member.what)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.members().map(|member| &member.what)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The only one, if there is only one.
    pub(super) fn only(&self) -> Option<&T> {
        match &self.tables[..] {
            [Table { members, .. }] if members.len() == 1 => members.first().map(|one| &one.what),
            _ => None,
        }
    }

    /// The member that something with this hash belongs to, of those who are wanted.
    ///
    /// Mostly the first choice is wanted and nobody else is looked at. One that is not gives its machines
    /// to all others alike, as each of them chooses again by itself.
    pub(super) fn choose(&self, hash: u64, is_wanted: impl Fn(&T) -> bool) -> Option<&T> {
        let chosen = (0..CHOICES).filter_map(|choice| self.first_choice(mix(hash, choice)));
        let chosen = chosen.map(|member| &member.what).find(|what| is_wanted(what));
        chosen.or_else(|| {
            let wanted = self.members().filter(|member| is_wanted(&member.what));
            heaviest(wanted, hash).map(|member| &member.what)
        })
    }

    fn first_choice(&self, hash: u64) -> Option<&Member<T>> {
        let weighed = self.tables.iter().map(|table| (table.weight(hash), table));
        let (_, table) = weighed.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
        heaviest(table.members.iter(), hash)
    }

    fn members(&self) -> impl Iterator<Item = &Member<T>> {
        self.tables.iter().flat_map(|table| &table.members)
    }

    /// Where its table is, or should be.
    fn place(&self, hash: u64) -> Result<usize, usize> {
        self.tables.binary_search_by_key(&number(hash), |table| table.number)
    }
}

impl<T> Table<T> {
    /// Of n members each drawing evenly from 0..1, the greatest draw is distributed as one draw to the
    /// power of 1/n: this is the logarithm of that. Replicas whose logarithms differ in the last bit
    /// disagree on one machine in 10^15.
    fn weight(&self, hash: u64) -> f64 {
        const SCALE: f64 = 1.0 / (1_u64 << 52) as f64;
        // The middle of one of 2^52 equal parts: neither 0 nor 1.
        let draw = ((mix(hash, !self.number) >> 12) as f64 + 0.5) * SCALE;
        draw.ln() / self.members.len() as f64
    }
}

fn heaviest<'a, T>(
    members: impl Iterator<Item = &'a Member<T>>,
    hash: u64,
) -> Option<&'a Member<T>> {
    members.max_by_key(|member| mix(hash, member.hash))
}

fn number(hash: u64) -> u64 {
    hash % TABLES
}

/// The same in every process, whatever its version: those of a fleet choose by it.
pub(super) fn stable_hash(name: impl Hash) -> u64 {
    let mut hasher = SipHasher13::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// One hash of two (the finalizer of SplitMix64, which is enough for what is hashed already).
fn mix(one: u64, other: u64) -> u64 {
    let mut mixed = one ^ other.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn group(names: impl IntoIterator<Item = u32>) -> Group<u32> {
        let mut group = Group::default();
        for name in names {
            group.insert(&called(name), name);
        }
        group
    }

    fn called(name: u32) -> String {
        format!("driver-{name}")
    }

    fn owner(group: &Group<u32>, machine: u32) -> Option<u32> {
        owner_of(group, machine, |_| true)
    }

    fn owner_of(group: &Group<u32>, machine: u32, is_wanted: impl Fn(u32) -> bool) -> Option<u32> {
        group.choose(stable_hash(("worker", machine)), |name| is_wanted(*name)).copied()
    }

    /// How many of so many machines each one has.
    fn shares(group: &Group<u32>, machines: u32, is_wanted: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut shares: HashMap<u32, u32> =
            group.iter().filter(|name| is_wanted(**name)).map(|name| (*name, 0)).collect();
        for machine in 0..machines {
            let owner = owner_of(group, machine, &is_wanted).unwrap();
            *shares.get_mut(&owner).expect("only who is wanted has any") += 1;
        }
        shares.into_values().collect()
    }

    /// Whether shares scatter no more than if each machine had drawn its owner from a lot: the sum of
    /// squares is then as great as the number of members, give or take a few of its deviations.
    fn is_even(shares: &[u32]) -> bool {
        let members = shares.len() as f64;
        let mean = f64::from(shares.iter().sum::<u32>()) / members;
        let squares = shares.iter().map(|share| (f64::from(*share) - mean).powi(2) / mean);
        squares.sum::<f64>() < members + 5.0 * (2.0 * members).sqrt()
    }

    #[test]
    fn machines_are_spread_as_evenly_as_by_lot() {
        for members in [2, 3, 10, 100, 1_000, 5_000] {
            let shares = shares(&group(0..members), 20 * members.max(500), |_| true);
            assert!(is_even(&shares), "{members}: {shares:?}");
        }
    }

    #[test]
    fn those_who_are_not_wanted_leave_their_machines_to_all_others_alike() {
        // From nearly all to hardly any of them.
        for keep in [1, 2, 5, 50] {
            let wanted = |name: u32| if keep == 1 { name != 7 } else { name.is_multiple_of(keep) };
            let shares = shares(&group(0..500), 50_000, wanted);
            assert!(is_even(&shares), "1 of {keep}: {shares:?}");
        }
    }

    #[test]
    fn nobody_is_chosen_if_nobody_is_wanted() {
        assert_eq!(owner(&group([]), 1), None);
        assert_eq!(owner_of(&group(0..100), 1, |_| false), None);
    }

    #[test]
    fn few_machines_move_when_somebody_comes() {
        const MACHINES: u32 = 20_000;
        for members in [1, 2, 10, 100, 1_000] {
            let (before, after) = (group(0..members), group(0..=members));
            let moves = (0..MACHINES).map(|machine| [&before, &after].map(|g| owner(g, machine)));
            let moved: Vec<_> = moves.filter(|[from, to]| from != to).collect();
            let taken = moved.iter().filter(|[_, to]| *to == Some(members)).count() as f64;
            let fair = f64::from(MACHINES) / f64::from(members + 1);
            let most = fair + 5.0 * fair.sqrt();
            assert!(taken < most, "{members}: {taken} of {fair} go to the new one");
            assert!((moved.len() as f64) < 2.0 * most, "{members}: {} of {fair}", moved.len());
        }
    }

    proptest! {
        #[test]
        fn all_agree_in_whatever_order_they_heard_of_whom(
            names in prop::collection::hash_set(0_u32..1_000, 1..200),
            gone in prop::collection::vec(0_u32..1_000, 0..100),
            machines in prop::collection::vec(any::<u32>(), 100),
        ) {
            let mut ours = group(names.iter().copied().chain(gone.iter().copied()));
            for name in &gone {
                ours.remove(&called(*name), |_| true);
            }
            let mut theirs: Vec<_> = names.iter().filter(|name| !gone.contains(name)).copied().collect();
            theirs.sort_unstable();
            let theirs = group(theirs);
            for machine in machines {
                prop_assert_eq!(owner(&ours, machine), owner(&theirs, machine));
            }
        }

        #[test]
        fn a_machine_moves_only_when_its_owner_stops_being_wanted(
            members in 2_u32..200, unwanted in 0_u32..200, machine: u32,
        ) {
            let group = group(0..members);
            let before = owner(&group, machine);
            let after = owner_of(&group, machine, |name| name != unwanted);
            prop_assert!(after == before || before == Some(unwanted));
        }

        #[test]
        fn who_came_is_found_by_name_until_it_goes(names in prop::collection::hash_set(any::<u32>(), 0..200)) {
            let mut group = group(names.iter().copied());
            prop_assert_eq!(group.iter().count(), names.len());
            for name in names {
                prop_assert_eq!(group.called(&called(name)).collect::<Vec<_>>(), [&name]);
                group.remove(&called(name), |_| false);
                group.remove(&called(name), |found| *found == name);
                prop_assert_eq!(group.called(&called(name)).count(), 0);
            }
            prop_assert!(group.is_empty());
        }
    }
}
