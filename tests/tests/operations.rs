//! What a controller sees of an operation.

use broker_tests::{Controller, TestBroker, machine};

#[tokio::test(start_paused = true)]
async fn a_create_reaches_the_driver_and_its_answer_comes_back() {
    let broker = TestBroker::start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;

    let (created, ()) = tokio::join!(controller.create("worker-0"), async {
        let operation = driver.next_operation().await;
        let params = operation.params.as_ref().expect("an operation has params");
        assert_eq!(params.machine_name, "worker-0");
        assert_eq!(params.class.as_ref(), Some(&Controller::class()));
        driver.accept(&operation).await;
        driver.answer(&operation, machine("sim:///1")).await;
    });

    assert_eq!(created.expect("the driver succeeded").provider_id, "sim:///1");
    driver.vanish();
    broker.at_rest().await;
}
