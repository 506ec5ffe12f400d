use super::*;
use crate::driver::ConnectionId;

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
        machine: Some("worker-0"),
        driver: Some("sim-0"),
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
        machine: Some(&long),
        ..Record::new(Event::Operation, Outcome::Refused).by(&caller).saying(&long)
    };
    let line = line(&record);
    assert_eq!(line.matches('ä').count(), 3 * MAX_TEXT / 2);
    assert_eq!(bounded(&format!("a{long}")).len(), MAX_TEXT - 1);
}
