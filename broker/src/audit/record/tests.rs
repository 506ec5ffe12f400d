use super::*;
use crate::driver::{ConnectionId, SessionId};

fn line(record: &Record<'_>) -> String {
    let mut lines = Vec::new();
    record.write_to(&mut lines, &mut Clock::default());
    String::from_utf8(lines).unwrap()
}

fn caller(address: &str) -> Caller {
    Caller::anonymous(ConnectionId(1), address.into())
}

fn at(record: Record<'_>) -> Record<'_> {
    Record { time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_250), ..record }
}

#[test]
fn a_line_says_who_did_what_on_which_machine_and_how_it_ended() {
    let class = Class::new("sim.machinebroker.dev/v1alpha1", "SimMachineClass", "default", "small");
    let record = Record {
        verb: Some(Verb::Create),
        class: Some(Cow::Owned(class)),
        machine: Some(Machine::Named("worker-0")),
        driver: Some(Cow::Owned(Driver::unseated("sim-0"))),
        operation: Some(OperationId(10)),
        code: Some("RESOURCE_EXHAUSTED"),
        delivery: Some(Delivery::Answered),
        duration: Some(Duration::from_micros(12_345)),
        attempts: Some(1),
        ..Record::new(Event::Operation, Outcome::Failed)
    };
    let caller = caller("10.0.0.7:4242");
    let record = at(record.by(&caller).saying("no \"quota\"\nleft"));
    assert_eq!(
        line(&record),
        r#"{"time":"2027-01-15T08:00:00.250Z","event":"operation","identity":"anonymous","caller":"10.0.0.7:4242","verb":"create","class":{"apiVersion":"sim.machinebroker.dev/v1alpha1","kind":"SimMachineClass","namespace":"default","name":"small"},"machine":"worker-0","driver":"sim-0","operation":"op-000000000000000a","outcome":"failed","code":"RESOURCE_EXHAUSTED","delivery":"ANSWERED","durationMs":12.345,"attempts":1,"message":"no \"quota\"\nleft"}
"#
    );
}

#[test]
fn a_line_of_pieces_says_the_same_as_one_of_words() {
    let session = SessionId::random();
    let named = || Record {
        machine: Some(Machine::Named("worker-0")),
        driver: Some(Cow::Owned(Driver::new("\"sim\"", session))),
        code: Some("OK"),
        delivery: Some(Delivery::Answered),
        attempts: Some(1),
        ..at(Record::new(Event::Operation, Outcome::Ok))
    };
    let (known, stranger) = (caller("\"home\""), caller("\"home\""));
    known.expect_much();
    let text = line(&named().by(&known));
    assert_eq!(
        text.replace(&session.to_string(), "SESSION"),
        r#"{"time":"2027-01-15T08:00:00.250Z","event":"operation","identity":"anonymous","caller":"\"home\"","machine":"worker-0","driver":"\"sim\"","session":"SESSION","outcome":"ok","code":"OK","delivery":"ANSWERED","attempts":1}
"#
    );
    assert_eq!(line(&named().by(&stranger)), text);
    let said = Record { machine: Some(Machine::Said("worker-0")), ..named() };
    assert_eq!(line(&said.by(&known)), text);
    let moved = line(&named().by(&known.moved(ConnectionId(2), "away".into())));
    assert_eq!(moved, text.replace(r#"\"home\""#, "away"));
}

#[test]
fn what_does_not_apply_is_not_there() {
    let record = at(Record::new(Event::SecretRead, Outcome::Ok).saying(""));
    assert_eq!(
        line(&record),
        "{\"time\":\"2027-01-15T08:00:00.250Z\",\"event\":\"secret_read\",\"outcome\":\"ok\"}\n"
    );
}

#[test]
fn texts_are_cut_between_characters() {
    let long = "ä".repeat(MAX_TEXT);
    let caller = caller(&long);
    let record = Record {
        machine: Some(Machine::Said(&long)),
        ..Record::new(Event::Operation, Outcome::Refused).by(&caller).saying(&long)
    };
    let line = line(&record);
    assert_eq!(line.matches('ä').count(), 3 * MAX_TEXT / 2);
    assert_eq!(bounded(&format!("a{long}")).len(), MAX_TEXT - 1);
}
