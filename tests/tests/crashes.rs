//! What is left when processes are killed. That nothing is lost and nothing made twice is for
//! `tests/chaos` to show.

use broker_tests::{
    process::{self, binary},
    world::World,
};

#[tokio::test]
async fn a_broker_that_is_killed_leaves_no_driver_program_behind() {
    let world = World::default();
    let program = format!("{} --cloud {}", binary("sim-driver").display(), world.path("cloud"));
    let mut broker = world.broker("127.0.0.1:0", &["--driver-command", &program]);
    broker.until_listed("there", |drivers| drivers.len() == 1).await;
    assert_ne!(processes_with(&world.path("cloud")), 0);

    broker.process.kill();

    let gone = process::until(|| (processes_with(&world.path("cloud")) == 0).then_some(()));
    assert!(gone.is_some(), "the driver program outlived the broker");
}

/// How many processes have `text` in their command line.
fn processes_with(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("a Linux");
    let lines =
        entries.flatten().filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}
