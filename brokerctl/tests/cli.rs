//! What an operator sees, from the command line to the wire and back.

#[expect(dead_code, reason = "other test files use the rest")]
mod fake;

use std::io;

use broker_proto::v1::{
    ClassRef, Driver, ListDriversRequest, ListDriversResponse, ListMachinesRequest,
    ListMachinesResponse, ListOperationsRequest, Machine, MachineRequest, MachineResponse,
};
use brokerctl::Exit;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tonic::Code;

use fake::{Asked, FakeBroker, run, status};

const CLASS: &str = "--kind SimMachineClass --class small";

fn class() -> ClassRef {
    ClassRef {
        kind: "SimMachineClass".into(),
        namespace: "default".into(),
        name: "small".into(),
        ..ClassRef::default()
    }
}

fn request() -> MachineRequest {
    MachineRequest {
        class: Some(class()),
        machine_name: "worker-0".into(),
        ..MachineRequest::default()
    }
}

fn machine() -> MachineResponse {
    MachineResponse {
        provider_id: "sim:///1".into(),
        node_name: "node-0".into(),
        ..MachineResponse::default()
    }
}

fn machines(machines: &[(&str, &str)]) -> ListMachinesResponse {
    let machine = |&(name, id): &(&str, &str)| Machine {
        provider_id: id.to_owned(),
        machine_name: name.to_owned(),
    };
    ListMachinesResponse { machines: machines.iter().map(machine).collect() }
}

#[tokio::test]
async fn create_prints_the_machine() {
    let broker = FakeBroker::start().await;
    broker.will_answer(Ok(machine()));
    let seen = broker.run(&format!("machines create worker-0 {CLASS}")).await;

    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    let expected = "\
NAME       PROVIDER ID   NODE     ADDRESSES
worker-0   sim:///1      node-0   <none>
";
    assert_eq!(seen.out, expected);
    assert!(seen.remarks.starts_with("machine worker-0 created in "), "{seen:?}");
    assert_eq!(broker.asked(), [Asked::Create(request())]);
    // Without --timeout the deadline is the broker's to choose.
    assert_eq!(broker.deadlines(), [None]);
}

#[tokio::test]
async fn create_sends_all_it_was_given() {
    let broker = FakeBroker::start().await;
    broker.will_answer(Ok(machine()));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let line = format!(
        "machine create worker-0 --kind K --class C --api-version g/v1 -n prod --provider aws \
         --user-data {file} --request-id r-1 --wait --timeout 1m"
    );
    let seen = broker.run(&line).await;

    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    let expected = MachineRequest {
        class: Some(ClassRef {
            api_version: "g/v1".into(),
            kind: "K".into(),
            namespace: "prod".into(),
            name: "C".into(),
            provider: "aws".into(),
        }),
        user_data: Some(std::fs::read(file).unwrap().into()),
        request_id: "r-1".into(),
        wait_for_driver: true,
        ..request()
    };
    assert_eq!(broker.asked(), [Asked::Create(expected)]);
    assert!(broker.deadlines()[0].is_some());
}

#[tokio::test]
async fn status_and_initialize_hand_the_provider_id_on() {
    let broker = FakeBroker::start().await;
    broker.will_answer(Ok(machine()));
    broker.will_answer(Ok(machine()));
    for verb in ["status", "initialize"] {
        let seen = broker.run(&format!("machines {verb} worker-0 {CLASS} --provider-id i-1")).await;
        assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
        assert!(seen.out.contains("sim:///1"), "{seen:?}");
    }
    let known = MachineRequest { provider_id: "i-1".into(), ..request() };
    assert_eq!(broker.asked(), [Asked::Status(known.clone()), Asked::Initialize(known)]);
}

#[tokio::test]
async fn list_is_data_for_scripts() {
    let broker = FakeBroker::start().await;
    broker.will_list(Ok(machines(&[("worker-0", "i-1")])));
    let seen = broker.run(&format!("machines list {CLASS} -o yaml")).await;

    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    assert!(seen.out.ends_with("machines:\n- name: worker-0\n  providerId: i-1\n"), "{seen:?}");
    assert_eq!(seen.remarks, "");
}

#[tokio::test]
async fn an_empty_class_is_a_remark_and_a_success() {
    let broker = FakeBroker::start().await;
    let seen = broker.run(&format!("machines list {CLASS}")).await;

    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    assert_eq!(
        (seen.out.as_str(), seen.remarks.as_str()),
        ("", "no machines of class default/small\n")
    );
}

#[tokio::test]
async fn delete_by_name_is_enough_for_most_drivers() {
    let broker = FakeBroker::start().await;
    broker.will_answer(Ok(MachineResponse::default()));
    let seen = broker.run(&format!("machines delete worker-0 {CLASS}")).await;

    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    assert_eq!(seen.out, "machine worker-0 deleted\n");
    assert_eq!(broker.asked(), [Asked::Delete(request())]);
}

#[tokio::test]
async fn delete_finds_the_id_that_a_historic_driver_needs() {
    let broker = FakeBroker::start().await;
    broker.will_answer(Err(id_required()));
    broker.will_list(Ok(machines(&[("worker-1", "i-1"), ("worker-0", "i-0")])));
    broker.will_answer(Ok(MachineResponse::default()));
    let seen = broker.run(&format!("machines delete worker-0 {CLASS} --wait")).await;

    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    assert_eq!(seen.out, "machine worker-0 deleted\n");
    let by_name = MachineRequest { wait_for_driver: true, ..request() };
    let by_id = MachineRequest { provider_id: "i-0".into(), ..by_name.clone() };
    let list = ListMachinesRequest {
        class: Some(class()),
        wait_for_driver: true,
        ..ListMachinesRequest::default()
    };
    let expected = [Asked::Delete(by_name), Asked::List(list), Asked::Delete(by_id)];
    assert_eq!(broker.asked(), expected);
}

#[tokio::test]
async fn delete_of_what_a_historic_driver_does_not_have_succeeds() {
    let broker = FakeBroker::start().await;
    broker.will_answer(Err(id_required()));
    let seen = broker.run(&format!("machines delete worker-0 {CLASS}")).await;

    assert_eq!(seen.exit, Exit::Ok, "{seen:?}");
    assert_eq!(seen.out, "machine worker-0 is not there\n");
}

#[tokio::test]
async fn delete_does_not_guess_between_two_of_one_name() {
    let broker = FakeBroker::start().await;
    broker.will_answer(Err(id_required()));
    broker.will_list(Ok(machines(&[("worker-0", "i-8"), ("worker-0", "i-3")])));
    let seen = broker.run(&format!("machines delete worker-0 {CLASS}")).await;

    assert_eq!(seen.exit, Exit::Failed, "{seen:?}");
    let expected = "\
error: 2 machines are named worker-0
  nothing was deleted: choose one with --provider-id
  i-3
  i-8
";
    assert_eq!(seen.remarks, expected);
    assert_eq!(broker.asked().len(), 2);
}

#[tokio::test]
async fn errors_are_text_on_stderr_whatever_the_format() {
    let broker = FakeBroker::start().await;
    let no_driver = status(Code::Unavailable, "NO_DRIVER", "no driver serves X", "NOT_SENT");
    broker.will_answer(Err(no_driver));
    let seen = broker.run(&format!("machines create worker-0 {CLASS} -o json")).await;

    assert_eq!(seen.exit, Exit::NotNow, "{seen:?}");
    let expected = "\
error: no driver serves X
  nothing happened, it is safe to retry: run the same command again after 5s
  with --wait it waits until a driver is there
";
    assert_eq!((seen.out.as_str(), seen.remarks.as_str()), ("", expected));
}

#[tokio::test]
async fn exit_codes_tell_the_cases_apart() {
    let broker = FakeBroker::start().await;
    for (code, delivery, expected) in [
        (Code::Internal, "ANSWERED", Exit::Failed),
        (Code::Unknown, "SENT", Exit::OutcomeUnknown),
        (Code::Unavailable, "ACCEPTED", Exit::OutcomeUnknown),
        (Code::ResourceExhausted, "NOT_SENT", Exit::NotNow),
        (Code::NotFound, "NOT_SENT", Exit::NotFound),
    ] {
        broker.will_answer(Err(status(code, "ANY", "no", delivery)));
        let seen = broker.run(&format!("machines create worker-0 {CLASS}")).await;
        assert_eq!(seen.exit, expected, "{code:?} {delivery}");
    }
}

#[tokio::test]
async fn a_timeout_ends_the_wait_with_an_unknown_outcome() {
    let broker = FakeBroker::start().await;
    let seen = broker.run(&format!("machines create worker-0 {CLASS} --timeout 100ms")).await;

    assert_eq!(seen.exit, Exit::OutcomeUnknown, "{seen:?}");
    let expected = format!("error: no answer from {} in time\n", broker.address());
    assert!(seen.remarks.starts_with(&expected), "{seen:?}");
}

#[tokio::test]
async fn a_broken_connection_leaves_the_outcome_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hang_up = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request_headers(&mut stream).await.unwrap();
    };
    let line = format!("--broker {address} machines create worker-0 {CLASS}");
    let (seen, ()) = tokio::join!(run(&line), hang_up);

    assert_eq!(seen.exit, Exit::OutcomeUnknown, "{seen:?}");
    let expected = format!("error: the connection to {address} broke before the answer: ");
    assert!(seen.remarks.starts_with(&expected), "{seen:?}");
}

#[tokio::test]
async fn a_server_of_something_else_is_no_broker() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request_headers(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        // Until they hang up.
        stream.read_to_end(&mut Vec::new()).await.ok();
    };
    let line = format!("--broker {address} machines create worker-0 {CLASS}");
    let (seen, ()) = tokio::join!(run(&line), answer);

    assert_eq!(seen.exit, Exit::NoBroker, "{seen:?}");
    let expected = format!("error: {address} answers, but is no machine-broker\n");
    assert!(seen.remarks.starts_with(&expected), "{seen:?}");
}

#[tokio::test]
async fn nobody_at_the_address_is_a_case_of_its_own() {
    // Bound and let go again: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let seen = run(&format!("--broker http://{address} drivers")).await;

    assert_eq!(seen.exit, Exit::NoBroker, "{seen:?}");
    assert!(seen.remarks.starts_with(&format!("error: no broker answers at {address}: ")));
    assert!(seen.remarks.contains("start one with `machine-broker dev`"), "{seen:?}");
}

#[tokio::test]
async fn no_drivers_is_a_remark_with_advice() {
    let broker = FakeBroker::start().await;
    let seen = broker.run("drivers --kind K").await;

    assert_eq!((seen.exit, seen.out.as_str()), (Exit::Ok, ""));
    let expected = format!("no driver for K is connected to {}\n", broker.address());
    assert!(seen.remarks.starts_with(&expected), "{seen:?}");
    assert_eq!(broker.asked(), [Asked::Drivers(ListDriversRequest { kind: "K".into(), state: 0 })]);
}

#[tokio::test]
async fn drivers_and_drivers_list_are_the_same() {
    let broker = FakeBroker::start().await;
    broker.drivers(ListDriversResponse {
        drivers: vec![Driver { session_id: "s-1".into(), ..Driver::default() }],
    });
    let (short, long) = (broker.run("drivers").await, broker.run("drivers list").await);
    assert_eq!(short.out, long.out);
    assert!(short.out.contains("s-1"), "{short:?}");
    assert!(!broker.run("drivers --no-headers").await.out.contains("SESSION"));
}

#[tokio::test]
async fn operations_ask_for_as_many_as_wanted() {
    let broker = FakeBroker::start().await;
    assert_eq!(broker.run("operations --finished 7").await.exit, Exit::Ok);
    assert_eq!(broker.asked(), [Asked::Operations(ListOperationsRequest { finished: Some(7) })]);
}

#[tokio::test]
async fn a_list_may_be_large() {
    let broker = FakeBroker::start().await;
    let id = "x".repeat(200);
    broker.will_list(Ok(machines(&vec![("worker", id.as_str()); 50_000])));
    let seen = broker.run(&format!("machines list {CLASS}")).await;

    assert_eq!(seen.exit, Exit::Ok, "{}", seen.remarks);
    assert_eq!(seen.out.lines().count(), 50_001);
}

/// Reads HTTP/2 until a request has arrived: frames of a length, a type and a body.
async fn request_headers(stream: &mut TcpStream) -> io::Result<()> {
    const HEADERS: u8 = 1;
    stream.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).await?;
    loop {
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).await?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await?;
        if frame[3] == HEADERS {
            return Ok(());
        }
    }
}

/// What the broker answers when a driver of 2018 is to delete by name.
fn id_required() -> tonic::Status {
    let message = "this driver deletes by provider id";
    status(Code::FailedPrecondition, "PROVIDER_ID_REQUIRED", message, "NOT_SENT")
}
