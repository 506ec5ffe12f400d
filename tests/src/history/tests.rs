//! Each rule is seen to be broken by a history that breaks it, and a good history breaks none.

use super::*;

fn s(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

fn call(id: u64, verb: Verb, machine: &str, from: u64, to: u64, what: End) -> Call {
    Call {
        id,
        verb,
        machine: machine.to_owned(),
        invoked: s(from),
        deadline: s(from + 60),
        calm: false,
        reached: false,
        endings: vec![Ending { at: s(to), what }],
    }
}

fn failed(delivery: Delivery) -> End {
    End::Failed { code: "UNAVAILABLE".to_owned(), delivery }
}

fn made(id: &str) -> End {
    End::Machine { provider_id: id.to_owned() }
}

fn run(call: u64, verb: Verb, machine: &str, from: u64, to: u64) -> Execution {
    Execution {
        boot: "boot".to_owned(),
        call: Some(call),
        verb,
        machine: machine.to_owned(),
        began: s(from),
        ended: Some(s(to)),
    }
}

fn vm(id: &str, machine: &str, born: u64, died: Option<u64>) -> Vm {
    Vm {
        provider_id: id.to_owned(),
        machine: machine.to_owned(),
        born: Some(s(born)),
        died: died.map(s),
    }
}

/// Machine `a` is made, seen and deleted, `b` is made after a failure.
fn good() -> History {
    History {
        calls: vec![
            call(0, Verb::Create, "a", 0, 10, made("1")),
            call(1, Verb::List, "", 11, 12, End::Listed(vec![("a".to_owned(), "1".to_owned())])),
            call(2, Verb::Status, "a", 13, 14, made("1")),
            call(3, Verb::Delete, "a", 20, 30, End::Gone),
            call(4, Verb::Create, "b", 0, 5, failed(Delivery::NotSent)),
            call(5, Verb::Create, "b", 6, 9, failed(Delivery::Answered)),
            call(6, Verb::Create, "b", 14, 16, failed(Delivery::Accepted)),
            call(7, Verb::Create, "b", 17, 40, made("2")),
        ],
        executions: vec![
            run(0, Verb::Create, "a", 1, 9),
            run(3, Verb::Delete, "a", 21, 29),
            run(5, Verb::Create, "b", 7, 8),
            run(6, Verb::Create, "b", 15, 39),
        ],
        vms: vec![vm("1", "a", 8, Some(28)), vm("2", "b", 38, None)],
        capacities: BTreeMap::from([("boot".to_owned(), 2)]),
        leftovers: Vec::new(),
    }
}

#[track_caller]
fn breaks(rules: &[Rule], change: impl FnOnce(&mut History)) {
    let mut history = good();
    change(&mut history);
    let mut found: Vec<_> = check(&history).iter().map(|violation| violation.rule).collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, rules, "{history:#?}");
}

#[test]
fn a_good_history_breaks_nothing() {
    breaks(&[], |_| {});
}

#[test]
fn a_call_without_an_answer_and_one_with_two() {
    breaks(&[Rule::AnsweredOnce], |history| history.calls[4].endings.clear());
    breaks(&[Rule::AnsweredOnce], |history| {
        let again = history.calls[0].endings[0].clone();
        history.calls[0].endings.push(again);
    });
}

#[test]
fn an_answer_after_the_deadline() {
    breaks(&[], |history| history.calls[7].endings[0].at = s(17 + 60 + 1));
    breaks(&[Rule::AnsweredInTime], |history| history.calls[7].endings[0].at = s(17 + 60 + 2));
}

#[test]
fn a_caller_that_was_left_to_its_own_clock() {
    let untold = || call(8, Verb::Status, "a", 1, 2, failed(Delivery::Untold));
    breaks(&[], |history| history.calls.push(untold()));
    breaks(&[Rule::ReachedIsTold], |history| {
        history.calls.push(Call { reached: true, ..untold() });
    });
}

#[test]
fn two_vms_of_one_machine_at_once_but_not_one_after_the_other() {
    breaks(&[Rule::OneVmPerMachine], |history| history.vms.push(vm("3", "a", 12, Some(28))));
    breaks(&[], |history| history.vms.push(vm("3", "a", 28, Some(28))));
}

#[test]
fn a_vm_that_nobody_asked_for_or_not_yet() {
    breaks(&[Rule::NoVmUnasked], |history| history.vms.push(vm("3", "c", 1, Some(2))));
    breaks(&[Rule::NoVmUnasked], |history| {
        history.calls.push(call(8, Verb::Create, "c", 3, 4, End::Left));
        history.vms.push(vm("3", "c", 1, Some(2)));
    });
    breaks(&[], |history| {
        history.calls.push(call(8, Verb::Create, "c", 1, 4, End::Left));
        history.vms.push(vm("3", "c", 1, Some(2)));
    });
}

#[test]
fn two_mutations_of_one_machine_at_once() {
    breaks(&[Rule::OneMutationPerMachine], |history| {
        history.executions.push(run(0, Verb::Create, "a", 8, 10));
    });
    breaks(&[], |history| history.executions.push(run(2, Verb::Status, "a", 8, 10)));
}

#[test]
fn an_execution_of_what_was_not_sent() {
    breaks(&[Rule::NotSentIsNotExecuted], |history| {
        history.executions.push(run(4, Verb::Create, "b", 2, 3));
    });
}

#[test]
fn what_is_executed_for_one_who_joined_was_not_sent_for_the_one_who_left() {
    let left = || run(4, Verb::Create, "b", 5, 6);
    let joined = |from, to| call(8, Verb::Create, "b", from, to, failed(Delivery::Sent));
    breaks(&[], |history| {
        history.calls.push(joined(4, 6));
        history.executions.push(left());
    });
    breaks(&[Rule::NotSentIsNotExecuted], |history| {
        history.calls.push(joined(3, 4));
        history.executions.push(left());
    });
    breaks(&[Rule::NotSentIsNotExecuted], |history| {
        history.calls.push(joined(3, 6));
        history.executions.push(run(4, Verb::Create, "b", 4, 6));
    });
}

#[test]
fn nothing_was_begun_that_is_called_accepted() {
    breaks(&[Rule::AcceptedWasExecuted], |history| {
        history.calls.push(call(8, Verb::Delete, "b", 1, 2, failed(Delivery::Accepted)));
    });
}

#[test]
fn a_failure_whose_execution_goes_on() {
    breaks(&[Rule::FailureIsFinal], |history| history.executions[2].ended = Some(s(10)));
}

#[test]
fn a_success_with_a_vm_of_another_time_another_machine_or_nowhere() {
    let untrue = [Rule::SuccessIsTrue];
    breaks(&untrue, |history| {
        history.calls.push(call(8, Verb::Create, "a", 50, 51, made("1")));
        // Its last word is another matter.
        history.calls.push(call(9, Verb::Delete, "a", 52, 53, End::Gone));
    });
    breaks(&untrue, |history| {
        history.calls.push(call(8, Verb::Status, "b", 39, 41, made("1")));
    });
    breaks(&untrue, |history| {
        history.calls.push(call(8, Verb::Status, "b", 39, 41, made("9")));
    });
}

#[test]
fn a_delete_that_left_the_vm_standing() {
    breaks(&[Rule::SuccessIsTrue, Rule::LastWordHolds], |history| history.vms[0].died = None);
}

#[test]
fn a_list_that_left_one_out_or_showed_a_dead_one() {
    let b = || vec![("b".to_owned(), "2".to_owned())];
    breaks(&[Rule::SuccessIsTrue], |history| {
        history.calls.push(call(8, Verb::List, "", 50, 51, End::Listed(Vec::new())));
    });
    breaks(&[Rule::SuccessIsTrue], |history| {
        let listed = [b(), vec![("a".to_owned(), "1".to_owned())]].concat();
        history.calls.push(call(8, Verb::List, "", 50, 51, End::Listed(listed)));
    });
    breaks(&[], |history| {
        history.calls.push(call(8, Verb::List, "", 50, 51, End::Listed(b())));
    });
}

#[test]
fn what_ran_on_undoes_the_last_word() {
    // A create whose caller gave up makes its VM after the delete was answered.
    breaks(&[Rule::LastWordHolds], |history| {
        history.calls.insert(0, call(8, Verb::Create, "a", 14, 15, failed(Delivery::Accepted)));
        history.executions.push(run(8, Verb::Create, "a", 31, 41));
        history.vms.push(vm("3", "a", 40, None));
    });
}

#[test]
fn more_at_once_than_a_driver_can() {
    breaks(&[Rule::WithinCapacity], |history| {
        history.executions.push(run(1, Verb::List, "", 22, 23));
        history.executions.push(run(1, Verb::List, "", 22, 23));
    });
}

#[test]
fn a_call_that_fails_though_nothing_is_wrong() {
    breaks(&[Rule::CalmCallsSucceed], |history| history.calls[4].calm = true);
    breaks(&[], |history| history.calls[0].calm = true);
}

#[test]
fn what_is_left_over_or_never_ends() {
    breaks(&[Rule::NothingLeft], |history| history.leftovers.push("a session".to_owned()));
    breaks(&[Rule::NothingLeft], |history| history.executions[3].ended = None);
}
