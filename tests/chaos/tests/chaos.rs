//! A few kills with every `cargo test`; twenty with `cargo xtask chaos --kill broker`.

use std::process::Command;

/// Whether it succeeded, and its last line.
fn chaos(args: &[&str], settle: Option<&str>) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_broker-chaos"));
    command.arg("chaos").args(args).env_remove("BROKER_SETTLE");
    let output = command.envs(settle.map(|settle| ("BROKER_SETTLE", settle))).output();
    let output = output.expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    eprintln!("{}\n{printed}", String::from_utf8_lossy(&output.stderr));
    (output.status.success(), printed.lines().last().unwrap_or_default().to_owned())
}

fn stays_exact(victim: &str) {
    let args = ["--kill", victim, "--creates", "120", "--kills", "3", "--seed", "1"];
    let (well, last) = chaos(&args, None);
    assert_eq!(last, "chaos: asked=120 vms=120 wrong=0 hung=0 kills=3 seed=1");
    assert!(well);
}

#[test]
fn killing_the_broker_again_and_again_makes_no_vm_twice_and_loses_none() {
    stays_exact("broker");
}

#[test]
fn killing_drivers_again_and_again_makes_no_vm_twice_and_loses_none() {
    stays_exact("driver");
}

#[test]
fn a_broker_that_does_not_wait_for_its_drivers_is_found_out() {
    let args = ["--kill", "broker", "--creates", "150", "--kills", "5", "--seed", "1"];
    let (well, last) = chaos(&args, Some("0s"));
    assert!(!well && !last.contains(" wrong=0 "), "{last}");
}
