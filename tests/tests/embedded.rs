//! A controller that lives in the broker's own process, with no socket in between.

use broker::{
    dispatch::{Answered, Ask, Error},
    driver::Verb,
    operation::Payload,
};
use broker_tests::{Controller, TestBroker};

#[tokio::test(start_paused = true)]
async fn a_controller_in_the_same_process_asks_the_dispatcher_itself() {
    let broker = TestBroker::start();
    let driver = broker.driver("a").await.serve();
    let dispatcher = broker.broker.dispatcher();
    let ask = Ask::machine(Verb::Create, Controller::request("worker-0"));
    let Answered { answer, seen } =
        dispatcher.execute(ask, None).await.expect("the driver is there");
    assert!(answer.code.is_ok());
    assert!(matches!(answer.payload, Payload::Machine(_)));
    assert!(seen.is_none(), "there is nothing to find out about a success");
    assert_eq!(driver.served().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_is_told_at_once_what_is_missing_as_any_other_controller() {
    let broker = TestBroker::start();
    let ask = Ask::machine(Verb::Create, Controller::request("worker-0"));
    let error = broker.broker.dispatcher().execute(ask, None).await.unwrap_err();
    assert!(matches!(error, Error::NoDriver { .. }), "{error}");
}
