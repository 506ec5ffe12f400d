use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;

use super::*;
use crate::{
    answer::Payload,
    machine::{ListedMachine, Machine},
    verb::Verb,
};

const A: AddressId = AddressId(0);
const B: AddressId = AddressId(1);
const FIRST: SessionId = SessionId(0);
const SECOND: SessionId = SessionId(1);

fn request(verb: Verb, machine: &str) -> Request {
    Request::new(verb, Arc::new(small()), [machine, "", ""], &mut String::new())
}

fn small() -> ClassRef {
    ClassRef {
        api_version: "v1".into(),
        kind: "K".into(),
        namespace: "default".into(),
        name: "small".into(),
        provider: String::new(),
    }
}

/// The same of another class than [`small`].
fn of_class(request: &Request, change: impl FnOnce(&mut ClassRef)) -> Request {
    let mut class = small();
    change(&mut class);
    let texts = [request.machine.name(), request.provider_id(), request.request_id()];
    Request::new(request.verb, Arc::new(class), texts, &mut String::new())
}

fn create(machine: &str) -> Request {
    request(Verb::Create, machine)
}

fn with_id(request: Request, id: &str) -> Request {
    with_texts(&request, [request.machine.name(), request.provider_id(), id])
}

fn of_provider_id(request: Request, id: &str) -> Request {
    with_texts(&request, [request.machine.name(), id, request.request_id()])
}

fn with_texts(request: &Request, texts: [&str; 3]) -> Request {
    Request::new(request.verb, request.class().clone(), texts, &mut String::new())
}

fn ticket(session: SessionId, operation: i32) -> Ticket {
    let address = if session == SECOND { B } else { A };
    Ticket { address, session: Some(session), operation: Some(operation) }
}

fn made(id: &str) -> Outcome {
    Ok(Payload::machine(Machine { provider_id: id.into(), ..Machine::default() }))
}

fn listing(names: &[&str]) -> Outcome {
    let machine =
        |name: &&str| ListedMachine { provider_id: String::new(), machine_name: (*name).into() };
    Ok(Payload::List(names.iter().map(machine).collect()))
}

/// A table with a clock and short verbs.
struct Bench {
    table: Table,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { table: Table::new(100), now: Instant::now() }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn begin(&mut self, request: Request) -> Begin {
        self.begin_as(request, ticket(FIRST, 1))
    }

    fn begin_as(&mut self, request: Request, ticket: Ticket) -> Begin {
        self.table.begin(request, ticket, self.now + Duration::from_secs(60), self.now)
    }

    fn start(&mut self, request: Request) -> ExecutionId {
        match self.begin(request) {
            Begin::Start(id) => id,
            other => panic!("not executed: {other:?}"),
        }
    }

    fn finish(&mut self, id: ExecutionId, outcome: Outcome) -> Vec<Ticket> {
        self.pass(Duration::from_secs(1));
        self.table.finish(id, outcome, self.now).map_or(Vec::new(), |ended| {
            ended.waiters.into_iter().map(|waiter| waiter.ticket).collect()
        })
    }

    /// Executes a request from begin to end.
    fn done(&mut self, request: Request, outcome: Outcome) {
        let id = self.start(request);
        self.finish(id, outcome);
    }

    fn remembers(&mut self, request: Request) -> bool {
        match self.begin(request) {
            Begin::Remembered(_) => true,
            Begin::Start(id) => {
                // Leave no trace but the failure, which is not remembered.
                self.table.finish(id, Err(Error::internal("probe")), self.now);
                false
            }
            other => panic!("neither: {other:?}"),
        }
    }
}

fn code(begin: Begin) -> Code {
    match begin {
        Begin::Refused(error) => error.code(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_identical_request_joins_and_both_are_told() {
    let mut bench = Bench::new();
    let id = bench.start(create("m"));
    let joined = bench.begin_as(create("m"), ticket(SECOND, 7));
    assert!(matches!(joined, Begin::Joined { execution, started: false, .. } if execution == id));
    assert_eq!(bench.finish(id, made("x")), [ticket(FIRST, 1), ticket(SECOND, 7)]);
}

#[test]
fn a_different_mutation_of_the_machine_is_aborted_and_others_are_not() {
    let mut bench = Bench::new();
    bench.start(with_id(create("m"), "r"));
    assert_eq!(code(bench.begin(request(Verb::Delete, "m"))), Code::Aborted);
    assert_eq!(code(bench.begin(with_id(create("m"), "other"))), Code::Aborted);
    let user_data = Some(Fingerprint::of(b"other"));
    let mut other = create("m");
    other.user_data = user_data;
    assert_eq!(code(bench.begin(other)), Code::Aborted);
    let other_class = of_class(&create("m"), |class| class.name = "large".into());
    assert_eq!(code(bench.begin(other_class)), Code::Aborted);

    assert!(matches!(bench.begin(create("m")), Begin::Joined { .. }));
    assert!(matches!(bench.begin(request(Verb::GetStatus, "m")), Begin::Start(_)));
    let other_namespace = of_class(&create("m"), |class| class.namespace = "elsewhere".into());
    assert!(matches!(bench.begin(other_namespace), Begin::Start(_)));
}

#[test]
fn a_success_is_remembered_for_a_quarter_of_an_hour() {
    let mut bench = Bench::new();
    bench.done(create("m"), made("x"));
    bench.pass(memory::REMEMBERED_FOR - Duration::from_secs(1));
    match bench.begin(create("m")) {
        Begin::Remembered(report) => assert_eq!(*report.outcome(), made("x")),
        other => panic!("{other:?}"),
    }
    bench.pass(Duration::from_secs(1));
    assert!(!bench.remembers(create("m")));
}

#[test]
fn what_another_instance_may_have_undone_is_executed_again_and_forgotten() {
    let mut bench = Bench::new();
    bench.done(create("m"), made("x"));
    bench.pass(Duration::from_secs(10));
    let within = |seconds| {
        let recall_within = Some(Duration::from_secs(seconds));
        let mut request = create("m");
        request.recall_within = recall_within;
        request
    };
    assert!(bench.remembers(within(10)));
    let id = bench.start(within(9));
    assert!(matches!(bench.begin(within(0)), Begin::Joined { .. }), "what runs is joined");
    bench.finish(id, Err(Error::unavailable("no")));
    assert!(!bench.remembers(create("m")), "the first answer is not true any more");
}

#[test]
fn a_failure_is_executed_again() {
    let mut bench = Bench::new();
    bench.done(create("m"), Err(Error::unavailable("no")));
    assert!(!bench.remembers(create("m")));
}

#[test]
fn a_request_id_is_exact_and_none_takes_what_there_is() {
    let mut bench = Bench::new();
    bench.done(with_id(create("m"), "r"), made("x"));
    assert!(bench.remembers(with_id(create("m"), "r")));
    assert!(bench.remembers(create("m")));
    assert!(!bench.remembers(with_id(create("m"), "other")));
}

#[test]
fn a_provider_id_that_is_known_by_now_makes_no_other_request() {
    for (first, second) in [("", "x"), ("x", ""), ("x", "x")] {
        let mut bench = Bench::new();
        let delete = |id| of_provider_id(request(Verb::Delete, "m"), id);
        let id = bench.start(delete(first));
        assert!(matches!(bench.begin(delete(second)), Begin::Joined { .. }), "{first:?}");
        bench.finish(id, made(""));
        assert!(bench.remembers(delete(second)), "{first:?}");
    }
}

#[test]
fn two_provider_ids_are_two_requests() {
    let mut bench = Bench::new();
    let delete = |id| of_provider_id(request(Verb::Delete, "m"), id);
    let id = bench.start(delete("x"));
    assert_eq!(code(bench.begin(delete("y"))), Code::Aborted);
    bench.finish(id, made(""));
    assert!(!bench.remembers(delete("y")));
}

#[test]
fn create_and_delete_forget_each_other() {
    let mut bench = Bench::new();
    bench.done(create("m"), made("x"));
    bench.done(request(Verb::Delete, "m"), made(""));
    assert!(bench.remembers(request(Verb::Delete, "m")));
    assert!(!bench.remembers(create("m")));
    // That probe was a create that began.
    assert!(!bench.remembers(request(Verb::Delete, "m")));
}

#[test]
fn a_delete_that_failed_half_way_makes_the_create_doubtful() {
    let mut bench = Bench::new();
    bench.done(create("m"), made("x"));
    bench.done(request(Verb::Delete, "m"), Err(Error::unavailable("who knows")));
    assert!(!bench.remembers(create("m")));
}

#[test]
fn a_status_of_not_found_forgets_the_create() {
    let mut bench = Bench::new();
    bench.done(create("m"), made("x"));
    bench.done(request(Verb::GetStatus, "m"), Err(Error::unavailable("no")));
    assert!(bench.remembers(create("m")));
    bench.done(request(Verb::GetStatus, "m"), Err(Error::not_found("gone")));
    assert!(!bench.remembers(create("m")));
}

#[test]
fn a_list_without_the_machine_forgets_its_create() {
    let mut bench = Bench::new();
    bench.done(create("m"), made("x"));
    bench.done(request(Verb::List, ""), listing(&["m", "n"]));
    assert!(bench.remembers(create("m")));

    bench.done(of_provider_id(request(Verb::List, ""), "y"), listing(&[]));
    let list = request(Verb::List, "");
    let other_class = of_class(&list, |class| class.name = "large".into());
    bench.done(other_class, listing(&[]));
    assert!(bench.remembers(create("m")));

    bench.done(request(Verb::List, ""), listing(&["n"]));
    assert!(!bench.remembers(create("m")));
}

#[test]
fn a_list_that_began_before_the_create_ended_proves_nothing() {
    let mut bench = Bench::new();
    let list = bench.start(request(Verb::List, ""));
    bench.done(create("m"), made("x"));
    bench.finish(list, listing(&[]));
    assert!(bench.remembers(create("m")));
}

#[test]
fn a_machine_that_is_shown_was_not_deleted() {
    let mut bench = Bench::new();
    bench.done(request(Verb::Delete, "m"), made(""));
    bench.done(request(Verb::List, ""), listing(&[]));
    assert!(bench.remembers(request(Verb::Delete, "m")));
    bench.done(request(Verb::List, ""), listing(&["m"]));
    assert!(!bench.remembers(request(Verb::Delete, "m")));

    bench.done(request(Verb::Delete, "m"), made(""));
    bench.done(request(Verb::GetStatus, "m"), made("x"));
    assert!(!bench.remembers(request(Verb::Delete, "m")));
}

#[test]
fn memory_is_bounded_and_the_oldest_goes_first() {
    let mut bench = Bench::new();
    for n in 0..=memory::REMEMBERED_AT_MOST {
        let id = bench.start(create(&format!("m{n}")));
        bench.table.finish(id, made("x"), bench.now);
    }
    assert_eq!(bench.table.memory.len(), memory::REMEMBERED_AT_MOST);
    assert!(bench.remembers(create("m1")));
    assert!(!bench.remembers(create("m0")));
    assert!(!bench.remembers(create("m1")), "where something failed, something has ended as well");
    assert!(bench.remembers(create("m3")));
}

#[test]
fn only_the_last_to_cancel_stops_it_and_then_nobody_joins() {
    let mut bench = Bench::new();
    let id = bench.start(create("m"));
    bench.begin_as(create("m"), ticket(SECOND, 7));
    assert_eq!(bench.table.cancel(FIRST, 1), None);
    assert_eq!(bench.table.cancel(FIRST, 99), None);
    assert!(matches!(bench.begin_as(create("m"), ticket(FIRST, 2)), Begin::Joined { .. }));
    assert_eq!(bench.table.cancel(SECOND, 7), None);
    assert_eq!(bench.table.cancel(FIRST, 2), Some(id));
    assert_eq!(bench.table.cancel(FIRST, 2), None);
    assert_eq!(code(bench.begin(create("m"))), Code::Aborted);
}

#[test]
fn the_latest_deadline_counts() {
    let mut bench = Bench::new();
    let id = bench.start(create("m"));
    bench.pass(Duration::from_secs(30));
    bench.begin_as(create("m"), ticket(SECOND, 1));
    bench.pass(Duration::from_secs(30));
    assert!(!bench.table.expire(id, bench.now));
    bench.pass(Duration::from_secs(30));
    assert!(bench.table.expire(id, bench.now));
    assert_eq!(code(bench.begin(create("m"))), Code::Aborted);
}

#[test]
fn an_extension_moves_the_deadline_forwards_only() {
    let mut bench = Bench::new();
    let id = bench.start(create("m"));
    let (first, later) = (bench.now + Duration::from_secs(60), bench.now + Duration::from_secs(90));
    assert_eq!(bench.table.extend(FIRST, 1, later), Some((id, later)));
    assert_eq!(bench.table.extend(FIRST, 1, first), Some((id, later)));
    assert_eq!(bench.table.extend(FIRST, 99, later), None);
    assert_eq!(bench.table.extend(SECOND, 1, later), None);
    bench.pass(Duration::from_secs(60));
    assert!(!bench.table.expire(id, bench.now));
    bench.pass(Duration::from_secs(30));
    assert!(bench.table.expire(id, bench.now));
    assert_eq!(bench.table.extend(FIRST, 1, later + Duration::from_secs(60)), None);
}

#[test]
fn an_extended_operation_is_wanted_again() {
    let mut bench = Bench::new();
    let id = bench.start(create("m"));
    bench.begin_as(create("m"), ticket(SECOND, 7));
    assert_eq!(bench.table.cancel(FIRST, 1), None);
    assert!(bench.table.extend(FIRST, 1, bench.now).is_some());
    assert_eq!(bench.table.cancel(SECOND, 7), None);
    assert_eq!(bench.table.cancel(FIRST, 1), Some(id));
}

#[test]
fn an_answer_after_the_deadline_is_kept_for_the_retry() {
    let mut bench = Bench::new();
    let id = bench.start(create("m"));
    bench.pass(Duration::from_secs(60));
    assert!(bench.table.expire(id, bench.now));
    bench.finish(id, made("x"));
    assert!(bench.remembers(create("m")));
}

#[test]
fn a_running_mutation_passes_to_the_next_session_of_its_address_only() {
    let mut bench = Bench::new();
    let id = bench.start(create("m"));
    let (reads, orphaned) = bench.table.leave(FIRST);
    assert_eq!((reads.len(), orphaned.len()), (0, 1));
    assert!(bench.table.resume(B, SECOND).running.is_empty());

    let third = SessionId(2);
    let resume = bench.table.resume(A, third);
    assert_eq!(resume.running.len(), 1);
    let wanted = Ticket { address: A, session: Some(third), operation: None };
    assert_eq!(bench.finish(id, made("x")), [wanted]);
}

#[test]
fn what_ran_for_a_broker_that_is_gone_for_good_is_owed_to_nobody() {
    let mut bench = Bench::new();
    let execution = bench.start(create("m"));
    bench.done(create("told"), made("id"));
    bench.table.leave(FIRST);
    let told = |bench: &mut Bench, address| {
        bench.table.recollect(address, &[A, B].into(), bench.now).running.len()
    };
    assert_eq!(told(&mut bench, B), 1, "any other broker should know that it runs");
    assert_eq!(bench.table.owes(A), Owed::Running);
    bench.table.abandon(A);
    assert_eq!(bench.table.owes(A), Owed::Nothing);
    assert_eq!(bench.finish(execution, made("id")), []);
    assert_eq!(bench.table.owes(A), Owed::Nothing);
    assert!(bench.remembers(create("m")), "whoever asks elsewhere gets the answer");
}

#[test]
fn who_was_told_in_a_hello_that_it_runs_for_another_has_to_hear_its_end_in_any_case() {
    for gone_for_good in [true, false] {
        let mut bench = Bench::new();
        let id = bench.start(create("m"));
        bench.table.recollect(B, &[A].into(), bench.now);
        bench.table.leave(FIRST);
        bench.table.recollect(A, &[B].into(), bench.now);
        assert_eq!(bench.table.recollect(B, &[A].into(), bench.now).running.len(), 1);
        match gone_for_good {
            true => bench.table.abandon(A),
            false => drop(bench.table.resume(A, SessionId(2))),
        }
        let ended = bench.table.finish(id, made("x"), bench.now).expect("it ran");
        assert_eq!(ended.told.as_slice(), [B], "not the one that asked");
    }
}

#[test]
fn a_read_ends_with_its_session() {
    let mut bench = Bench::new();
    let list = bench.start(request(Verb::List, ""));
    let (reads, orphaned) = bench.table.leave(FIRST);
    assert_eq!((reads, orphaned.len()), (vec![list], 0));
    assert!(bench.finish(list, listing(&[])).is_empty());
    assert_eq!(bench.table.owes(A), Owed::Nothing);
}

#[test]
fn an_unreported_answer_is_told_once_unless_something_newer_runs() {
    let mut bench = Bench::new();
    let report =
        |name: &str| Report::new(create(name), Err(Error::internal("lost")), Instant::now());
    bench.table.undelivered(A, report("m"));
    bench.table.undelivered(A, report("n"));
    assert_eq!(bench.table.owes(A), Owed::Reports);
    bench.start(create("n"));
    let ended = bench.table.resume(A, SessionId(2)).ended;
    let names: Vec<_> = ended.iter().map(|report| report.request().machine.name()).collect();
    assert_eq!(names, ["m"]);
    assert!(bench.table.resume(A, SessionId(3)).ended.is_empty());
}

#[test]
fn a_success_that_is_no_longer_true_is_not_reported() {
    let mut bench = Bench::new();
    let id = bench.start(create("m"));
    let created = bench.table.finish(id, made("x"), bench.now).expect("it ran").report;
    bench.table.undelivered(A, created.clone());
    assert_eq!(bench.table.resume(A, SessionId(2)).ended.len(), 1);

    bench.table.undelivered(A, created);
    // Through another broker.
    bench.done(request(Verb::Delete, "m"), made(""));
    assert!(bench.table.resume(A, SessionId(3)).ended.is_empty());
}

#[test]
fn of_several_answers_about_one_machine_the_latest_is_reported() {
    let mut bench = Bench::new();
    for message in ["first", "second"] {
        let outcome = Err(Error::internal(message));
        bench.table.undelivered(A, Report::new(create("m"), outcome, Instant::now()));
    }
    let ended = bench.table.resume(A, SessionId(2)).ended;
    assert_eq!(ended.len(), 1);
    assert_eq!(*ended[0].outcome(), Err(Error::internal("second")));
}

#[test]
fn a_closed_table_starts_nothing_but_still_answers() {
    let mut bench = Bench::new();
    bench.done(create("old"), made("x"));
    bench.start(create("m"));
    bench.table.close();
    assert_eq!(code(bench.begin(create("new"))), Code::Unavailable);
    assert!(matches!(bench.begin(create("m")), Begin::Joined { .. }));
    assert!(matches!(bench.begin(create("old")), Begin::Remembered(_)));
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let mut table = Table::new(1);
    let now = Instant::now();
    let mut begin = |name| table.begin(create(name), ticket(FIRST, 1), now, now);
    assert!(matches!(begin("a"), Begin::Start(_)));
    assert_eq!(code(begin("b")), Code::ResourceExhausted);
}

#[derive(Clone, Debug)]
enum Step {
    Begin { session: u64, machine: u8, delete: bool },
    Finish { nth: usize, ok: bool },
    Cancel { session: u64, operation: i32 },
    Reconnect { session: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3_u64, 0..3_u8, any::<bool>())
            .prop_map(|(session, machine, delete)| Step::Begin { session, machine, delete }),
        3 => (0..8_usize, any::<bool>()).prop_map(|(nth, ok)| Step::Finish { nth, ok }),
        1 => (0..3_u64, 0..40_i32)
            .prop_map(|(session, operation)| Step::Cancel { session, operation }),
        1 => (0..3_u64).prop_map(|session| Step::Reconnect { session }),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    /// Whatever happens: one mutation per machine at a time, and every operation that waits on a
    /// living session is answered exactly once when its execution ends.
    #[test]
    fn one_mutation_per_machine_and_one_answer_per_operation(steps in steps()) {
        let mut bench = Bench::new();
        // Session numbers stand for addresses; each reconnect makes a new session of one.
        let mut sessions: Vec<u64> = vec![0, 1, 2];
        let mut next_session = 3;
        let mut running: BTreeMap<usize, u8> = BTreeMap::new();
        let mut waiting: BTreeSet<(u64, i32)> = BTreeSet::new();
        let mut owners: BTreeMap<(u64, i32), usize> = BTreeMap::new();
        for (operation, step) in (0_i32..).zip(steps) {
            match step {
                Step::Begin { session: address, machine, delete } => {
                    let verb = if delete { Verb::Delete } else { Verb::Create };
                    let session = sessions[address as usize];
                    let asked = Ticket {
                        address: AddressId(address as usize),
                        session: Some(SessionId(session)),
                        operation: Some(operation),
                    };
                    match bench.begin_as(request(verb, &machine.to_string()), asked) {
                        Begin::Start(id) => {
                            prop_assert!(!running.values().any(|other| *other == machine));
                            running.insert(id.0, machine);
                            waiting.insert((session, operation));
                            owners.insert((session, operation), id.0);
                        }
                        Begin::Joined { execution, .. } => {
                            prop_assert_eq!(running.get(&execution.0), Some(&machine));
                            waiting.insert((session, operation));
                            owners.insert((session, operation), execution.0);
                        }
                        Begin::Remembered(_) => {
                            prop_assert!(!running.values().any(|other| *other == machine));
                        }
                        Begin::Refused(error) => prop_assert_eq!(error.code(), Code::Aborted),
                    }
                }
                Step::Finish { nth, ok } => {
                    let Some(id) = running.keys().nth(nth).copied() else { continue };
                    running.remove(&id);
                    let outcome = if ok { made("x") } else { Err(Error::internal("no")) };
                    let told = bench.finish(ExecutionId(id), outcome);
                    let mut expected: BTreeSet<_> =
                        waiting.iter().filter(|key| owners[key] == id).copied().collect();
                    waiting.retain(|key| owners[key] != id);
                    for ticket in told {
                        if let (Some(session), Some(operation)) = (ticket.session, ticket.operation)
                        {
                            prop_assert!(expected.remove(&(session.0, operation)));
                        }
                    }
                    prop_assert!(expected.is_empty(), "nobody told {:?}", expected);
                }
                Step::Cancel { session: address, operation } => {
                    let session = sessions[address as usize];
                    if let Some(id) = bench.table.cancel(SessionId(session), operation) {
                        prop_assert_eq!(owners.get(&(session, operation)), Some(&id.0));
                    }
                }
                Step::Reconnect { session: address } => {
                    let old = sessions[address as usize];
                    bench.table.leave(SessionId(old));
                    waiting.retain(|(session, _)| *session != old);
                    sessions[address as usize] = next_session;
                    let id = SessionId(next_session);
                    next_session += 1;
                    let resumed = bench.table.resume(AddressId(address as usize), id).running;
                    let mut names: Vec<_> =
                        resumed.iter().map(|request| request.machine.name().to_owned()).collect();
                    names.sort();
                    names.dedup();
                    // One report for each execution, however often it was asked for.
                    prop_assert_eq!(names.len(), resumed.len());
                }
            }
        }
    }
}
