//! Nothing can be written any more, and then it can again.

use broker_tests::{
    caller::Ask,
    history::{Delivery, End, Verb},
    process::{PATIENCE, until},
    story::{Story, ask, insist, stop},
};

const SPEC: &str = "createDelay: 0ms";
/// No file may have even a byte; the limit can be lifted later.
const FULL: &str = "-S -f 0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_without_space_says_so_and_leaves_no_half_of_a_machine() {
    let story = Story::with(SPEC);
    let broker = story.broker(&[]);
    let descriptors = broker.descriptors();
    let driver = story.world.driver_within(FULL, &broker.drivers.to_string(), "sim-0");
    broker.until_listed("there", |drivers| drivers.len() == 1).await;
    let caller = story.caller(broker.channel().await);

    for _ in 0..3 {
        let called = ask(&caller, &Ask::new(Verb::Create, "m", PATIENCE)).await;
        let End::Failed { delivery: Delivery::Answered, code } = &called else {
            panic!("the driver says what is wrong: {called:?}");
        };
        assert!(code.starts_with("Unavailable"), "a retry may help: {code}");
        assert_eq!(story.vms(), 0);
        let files = std::fs::read_dir(story.world.path("cloud")).expect("the cloud").count();
        assert_eq!(files, 0, "nothing is left in a cloud that is full already");
    }
    driver.has_space();
    insist(&caller, &Ask::new(Verb::Create, "m", PATIENCE).calm()).await;
    insist(&caller, &Ask::new(Verb::Create, "m", PATIENCE).calm()).await;

    stop(driver).await;
    assert_eq!(story.verdict(&broker, descriptors).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_log_without_space_stops_nobody_and_owns_up_to_what_it_lost() {
    let story = Story::with(SPEC);
    let audit = story.world.path("audit.log");
    let broker = story.world.broker_within(FULL, "127.0.0.1:0", &["--audit", &audit]);
    let descriptors = broker.descriptors();
    let driver = story.driver(broker.drivers, "sim-0");
    broker.until_listed("there", |drivers| drivers.len() == 1).await;
    let caller = story.caller(broker.channel().await);
    for number in 0..20 {
        let ask = Ask::new(Verb::Create, &format!("m-{number}"), PATIENCE);
        insist(&caller, &ask.calm()).await;
    }
    // Each of them, and the driver's registration.
    let lost = broker.until_metric("machine_broker_audit_lines_lost_total", |lost| lost > 20).await;
    assert_eq!(std::fs::read(&audit).expect("it was made").len(), 0);

    broker.process.has_space();
    let owned_up = until(|| {
        let text = std::fs::read_to_string(&audit).expect("it can be read");
        text.contains(&format!(r#""lines":{lost}"#)).then_some(text)
    });
    let text = owned_up.unwrap_or_else(|| panic!("{lost} lines were never owned up to"));
    // The last of them may have waited to be written until there was space.
    assert!(text.lines().next().is_some_and(|line| line.contains("lines_lost")), "{text}");
    assert_eq!(text.matches("lines_lost").count(), 1, "{text}");
    insist(&caller, &Ask::new(Verb::Create, "after", PATIENCE).calm()).await;
    let written = until(|| {
        std::fs::read_to_string(&audit).expect("it can be read").contains("after").then_some(())
    });
    written.expect("lines are written again");

    stop(driver).await;
    assert_eq!(story.verdict(&broker, descriptors).await, 21);
}
