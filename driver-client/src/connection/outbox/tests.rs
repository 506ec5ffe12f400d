use std::sync::Arc;

use super::*;
use crate::{answer::Payload, error::Error, machine::Machine, operations::ClassRef};

fn report(verb: Verb, outcome: Outcome) -> Report {
    let class = ClassRef::from_wire(wire::ClassRef::default());
    let request = Request::new(verb, Arc::new(class), ["m", "", ""], &mut String::new());
    Report::new(request, outcome, Instant::now())
}

fn made() -> Report {
    report(Verb::Create, Ok(Payload::machine(Machine::default())))
}

fn failed() -> Report {
    report(Verb::Create, Err(Error::internal("no")))
}

/// With these operations, which have just been submitted and began at once.
fn begun(ids: impl IntoIterator<Item = i32>) -> Outbox {
    let mut outbox = Outbox::default();
    for id in ids {
        outbox.expect(id, Verb::Create);
        outbox.started(id);
    }
    outbox
}

/// All that goes out now: of each frame the id, and whether it is an Accepted.
fn said(outbox: &mut Outbox) -> Vec<(i32, bool)> {
    std::iter::from_fn(|| outbox.next())
        .map(|frame| (frame.operation_id, matches!(frame.response, Some(Response::Accepted(_)))))
        .collect()
}

#[test]
fn a_success_that_comes_at_once_is_all_that_is_said() {
    let mut outbox = begun([1, 2]);
    assert!(!outbox.has_frame(), "what began may end at once");
    outbox.report(Some(1), made());
    assert_eq!(said(&mut outbox), [(1, false)]);
    assert!(!outbox.is_done(), "the other has not ended");
    outbox.report(Some(2), made());
    assert_eq!(said(&mut outbox), [(2, false)]);
    outbox.release();
    assert!(outbox.is_done());
}

#[test]
fn what_goes_on_is_told_once_and_so_is_what_nobody_knows_of() {
    let mut outbox = begun([1, 2]);
    outbox.goes_on(1);
    assert_eq!(said(&mut outbox), [(1, true)]);
    outbox.release();
    assert_eq!(said(&mut outbox), [(2, true)], "it may block its thread");
    outbox.goes_on(2);
    outbox.release();
    assert!(!outbox.has_frame());
    outbox.report(Some(2), made());
    assert_eq!(said(&mut outbox), [(2, false)]);
}

#[test]
fn a_failure_or_a_list_never_comes_without_its_accepted() {
    let list = report(Verb::List, Ok(Payload::List(Vec::new())));
    for end in [failed(), list] {
        let mut outbox = begun([1]);
        outbox.report(Some(1), end.clone());
        assert_eq!(said(&mut outbox), [(1, true), (1, false)], "at once");

        let mut outbox = begun([1]);
        outbox.goes_on(1);
        outbox.report(Some(1), end);
        assert_eq!(said(&mut outbox), [(1, true), (1, false)]);
        outbox.release();
        assert!(outbox.is_done() && said(&mut outbox).is_empty());
    }
}

#[test]
fn behind_a_long_answer_what_began_is_told_before() {
    let mut outbox = begun([1, 2]);
    let machine = Machine { node_name: "n".repeat(LITTLE), ..Machine::default() };
    outbox.report(Some(1), report(Verb::Create, Ok(Payload::machine(machine))));
    outbox.report(Some(2), made());
    assert_eq!(said(&mut outbox), [(2, true), (1, false), (2, false)]);
    assert_eq!(outbox.answer_bytes, 0);
}

#[test]
fn what_waits_for_a_slot_is_not_in_flight_and_is_refused_without_an_accepted() {
    let mut outbox = begun([1]);
    outbox.expect(2, Verb::Create);
    outbox.pong(7, 3);
    let Some(Response::Pong(pong)) = outbox.next().and_then(|frame| frame.response) else {
        panic!("it goes first")
    };
    assert_eq!((pong.sequence, pong.in_flight, pong.free_slots), (7, vec![1], 3));
    outbox.report(Some(2), failed());
    assert_eq!(said(&mut outbox), [(2, false)]);
}

#[test]
fn only_written_successes_and_what_was_not_written_are_kept() {
    let mut outbox = begun([1, 2, 3]);
    outbox.set_dead_after(Duration::from_secs(30));
    outbox.report(Some(1), made());
    outbox.report(Some(2), failed());
    said(&mut outbox);
    outbox.report(Some(3), failed());
    let (sent, unsent) = outbox.into_reports();
    assert_eq!((sent.len(), unsent.len()), (1, 1));
    assert!(sent[0].outcome().is_ok() && unsent[0].outcome().is_err());
}

#[test]
fn answers_wait_for_those_that_began_with_them_and_for_nobody_else() {
    let mut outbox = begun([1, 2, 3, 4]);
    outbox.expect(5, Verb::Create);
    outbox.report(Some(1), made());
    assert!(outbox.is_gathering(), "the others may end at once");
    outbox.report(Some(2), failed());
    outbox.goes_on(3);
    assert!(outbox.is_gathering(), "one may still");
    outbox.report(Some(4), made());
    assert!(!outbox.is_gathering(), "what goes on, or waits for a slot, is not waited for");
    outbox.report(Some(3), made());
    assert!(!outbox.is_gathering());
}

#[test]
fn answers_do_not_wait_for_what_blocks_its_thread() {
    let mut outbox = begun([1, 2]);
    outbox.report(Some(1), made());
    outbox.release();
    assert!(!outbox.is_gathering());
    outbox.report(Some(2), made());
    said(&mut outbox);
    assert!(outbox.is_done() && outbox.untold == 0);
}

#[test]
fn many_answers_or_long_ones_do_not_wait() {
    let mut outbox = begun(0..1_000);
    let many = (0..1_000).take_while(|id| {
        outbox.report(Some(*id), made());
        outbox.is_gathering()
    });
    assert_eq!(many.count(), TOGETHER - 1);

    let mut outbox = begun([1, 2]);
    let machine = Machine { node_name: "n".repeat(LITTLE), ..Machine::default() };
    outbox.report(Some(1), report(Verb::Create, Ok(Payload::machine(machine))));
    assert!(!outbox.is_gathering());
}
