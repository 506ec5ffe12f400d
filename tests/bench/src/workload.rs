//! What is asked and answered everywhere: a create of about 200 bytes, an answer of about 100.
//!
//! Every path carries the same two messages, so that they differ in the path alone.

mod requests;

use std::{fmt::Write as _, iter, ops::Range};

use broker_proto::v1::{ClassRef, ListMachinesRequest, MachineRequest, MachineResponse};

pub(crate) use self::requests::Requests;

pub(crate) const API_VERSION: &str = "bench.machinebroker.dev/v1";
/// How many can be in flight, and how many kinds and machines there can be: their numbers have so many digits.
pub(crate) const ASKERS: usize = 1_000_000;
pub(crate) const KINDS: u64 = 100_000;
pub(crate) const MOST_MACHINES: u64 = 10_000_000;

/// One operation of a load: who of those in flight asks, and the how manieth it is of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) asker: usize,
    pub(crate) number: u64,
}

/// Which kinds a load asks for, how many machines there are, and what makes its request ids differ from those
/// of other loads.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) first_kind: u64,
    kinds: u64,
    /// How many each of those in flight asks for.
    machines_each: u64,
    run: u64,
}

impl Workload {
    /// Of so many machines in all, at least one for each of those in flight.
    pub(crate) fn new(kinds: Range<u64>, machines: u64, in_flight: usize, run: u64) -> Self {
        let machines_each = machines.div_ceil(in_flight as u64);
        Self { first_kind: kinds.start, kinds: kinds.end - kinds.start, machines_each, run }
    }

    pub(crate) fn class(&self, operation: Operation) -> ClassRef {
        class(self.kind(operation))
    }

    /// A machine is of one kind for good, and all kinds have about as many.
    fn kind(&self, operation: Operation) -> u64 {
        self.first_kind + self.machine(operation) % self.kinds
    }

    /// One of the asker's own.
    fn machine(&self, operation: Operation) -> u64 {
        operation.asker as u64 * self.machines_each + scatter(operation.number) % self.machines_each
    }

    /// A create of a machine that nobody else in flight asks for, so that none waits for another.
    /// The request id is new each time, so that drivers do execute it.
    pub(crate) fn create(&self, operation: Operation) -> MachineRequest {
        let number = operation.number;
        MachineRequest {
            class: Some(self.class(operation)),
            machine_name: format!("shoot--bench--worker-{:08}", self.machine(operation)),
            request_id: format!("{:016x}-{number:019}", self.run),
            ..MachineRequest::default()
        }
    }

    pub(crate) fn list(&self, operation: Operation) -> ListMachinesRequest {
        ListMachinesRequest { class: Some(self.class(operation)), ..ListMachinesRequest::default() }
    }
}

/// What every provider id begins with.
pub(crate) const PROVIDER: &str = "bench:///eu-north-1/";

/// What every driver answers to a create.
pub(crate) fn answer(machine_name: &str) -> MachineResponse {
    MachineResponse {
        provider_id: format!("{PROVIDER}{machine_name}"),
        node_name: machine_name.to_owned(),
        ..MachineResponse::default()
    }
}

pub(crate) fn kind(number: u64) -> String {
    format!("BenchMachineClass{number:05}")
}

pub(crate) fn class(number: u64) -> ClassRef {
    ClassRef {
        api_version: API_VERSION.to_owned(),
        kind: kind(number),
        namespace: "default".to_owned(),
        name: "shoot--project--bench--pool-of-large-machines-in-zone-1".to_owned(),
        provider: String::new(),
    }
}

/// The name of the one secret, to which all classes refer.
pub(crate) const SECRET: &str = "credentials";

/// How many classes a file has: the broker reads none of more than a few megabytes.
const CLASSES_PER_FILE: u64 = 10_000;

/// The files with a class of each of so many kinds, and the secret that they refer to.
pub(crate) fn catalog(kinds: u64) -> impl Iterator<Item = String> {
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {SECRET}}}\nstringData: {{token: benchmark}}\n"
    );
    let firsts = (0..kinds).step_by(CLASSES_PER_FILE as usize);
    let files = firsts.map(move |first| classes(first..kinds.min(first + CLASSES_PER_FILE)));
    iter::once(secret).chain(files)
}

fn classes(numbers: Range<u64>) -> String {
    let mut text = String::new();
    for number in numbers {
        let ClassRef { kind, name, .. } = class(number);
        writeln!(
            text,
            "---\napiVersion: {API_VERSION}\nkind: {kind}\nmetadata: {{name: {name}}}\n\
             spec: {{machineType: large, secretRef: {{name: {SECRET}}}}}"
        )
        .expect("a string has room");
    }
    text
}

/// Numbers in a row, as if drawn: the same in every run (splitmix64).
fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;

    use super::*;

    fn workload(machines: u64) -> Workload {
        Workload::new(1..101, machines, 64, 7)
    }

    #[test]
    fn a_request_has_about_200_bytes_and_an_answer_about_100() {
        let request = workload(1024).create(Operation { asker: 63, number: 100_000 });
        assert!((180..=220).contains(&request.encoded_len()), "{}", request.encoded_len());
        let answer = answer(&request.machine_name);
        assert!((80..=120).contains(&answer.encoded_len()), "{}", answer.encoded_len());
    }

    #[test]
    fn those_in_flight_never_ask_for_one_machine_and_no_request_comes_twice() {
        let (workload, mut ids) = (workload(1024), BTreeSet::new());
        for number in 0..1000 {
            let of = |asker| workload.create(Operation { asker, number });
            assert_ne!(of(0).machine_name, of(1).machine_name);
            assert!(ids.insert(of(0).request_id));
        }
    }

    fn asked_for(workload: &Workload) -> impl Iterator<Item = MachineRequest> {
        let operations = (0..500).flat_map(|n| (0..64).map(move |a| (a, n)));
        operations.map(|(asker, number)| workload.create(Operation { asker, number }))
    }

    #[test]
    fn all_kinds_are_asked_for_from_the_first_on() {
        let kinds: BTreeSet<_> =
            asked_for(&workload(400)).filter_map(|create| create.class).map(|it| it.kind).collect();
        assert_eq!(kinds.len(), 100);
        assert_eq!(kinds.first(), Some(&kind(1)));
        assert_eq!(kinds.last(), Some(&kind(100)));
    }

    #[test]
    fn there_are_so_many_machines_and_each_is_of_one_kind() {
        let named = |it: MachineRequest| (it.machine_name, it.class.map(|class| class.kind));
        let machines: BTreeSet<_> = asked_for(&workload(1024)).map(named).collect();
        assert_eq!(machines.len(), 1024);
        let names: BTreeSet<_> = machines.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 1024);
    }

    #[test]
    fn the_catalog_has_a_class_of_each_kind_and_its_secret() {
        let files: Vec<String> = catalog(CLASSES_PER_FILE + 3).collect();
        let classes = |text: &String| text.matches("secretRef").count();
        assert_eq!(files.iter().map(classes).collect::<Vec<_>>(), [0, 10_000, 3]);
        assert!(files[0].contains("kind: Secret") && files.iter().all(|file| file.len() < 8 << 20));
    }
}
