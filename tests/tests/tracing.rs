//! One trace from the controller through the broker to the driver.

use broker_proto::v1::MachineRequest;
use broker_tests::{Controller, TestBroker};
use tonic::Request;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn traced(machine: &str, parent: &str) -> Request<MachineRequest> {
    let mut request = Request::new(Controller::request(machine));
    request.metadata_mut().insert("traceparent", parent.parse().expect("a header"));
    request.metadata_mut().insert("tracestate", "vendor=1".parse().expect("a header"));
    request
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_handed_the_trace_of_the_caller() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("one").await;
    let controller = broker.controller().await;
    let handed = [(PARENT, PARENT, "vendor=1"), ("nonsense", "", "")];
    for (machine, (parent, expected, state)) in ["a", "b"].into_iter().zip(handed) {
        let call = controller.creating_with(traced(machine, parent));
        let params = driver.serve_one().await.params.expect("an operation");
        assert_eq!((params.traceparent.as_str(), params.tracestate.as_str()), (expected, state));
        call.answer().await.expect("an answer");
    }
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_2018_is_told_of_no_trace() {
    let broker = TestBroker::start();
    let mut driver = broker.historic().await;
    let call = broker.controller().await.creating_with(traced("a", PARENT));
    let params = driver.next_operation().await.params.expect("an operation");
    assert_eq!((params.traceparent, params.tracestate), (String::new(), String::new()));
    driver.vanish();
    call.error().await;
}
