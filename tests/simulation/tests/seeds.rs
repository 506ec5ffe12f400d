//! Some seeds with every `cargo test`; more with `cargo xtask simulate --seeds N`.

use std::process::Command;

/// About half a minute on two cores.
const SEEDS: &str = "100";

fn simulate(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(args)
        .env_remove("BROKER_SIM_SEED")
        .output()
        .expect("the simulation starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{printed}\n{errors}", output.status);
    printed
}

#[test]
fn whatever_goes_wrong_no_promise_is_broken() {
    let seeds = std::env::var("BROKER_SIM_SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
    print!("{}", simulate(&["--seeds", &seeds]));
}

#[test]
fn the_same_seed_is_the_same_run() {
    simulate(&["--from", "1000", "--seeds", "10", "--twice"]);
}
