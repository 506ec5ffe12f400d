//! Flags, variables and the file, together.

use clap::{Args as _, FromArgMatches as _};

use super::*;

fn command() -> clap::Command {
    Options::augment_args(clap::Command::new("serve"))
}

fn checked(args: &[&str]) -> anyhow::Result<Config> {
    let matches = command().try_get_matches_from([&["serve"], args].concat())?;
    Options::from_arg_matches(&matches)?.check()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn every_flag_is_also_a_variable_and_a_line_of_the_file() {
    for flag in command().get_arguments() {
        let id = flag.get_id().as_str();
        let variable = format!("BROKER_{}", id.to_uppercase());
        assert_eq!(flag.get_env(), Some(variable.as_ref()), "--{id}");
        if id != "config" {
            let mut words = id.split('_');
            let mut field = words.next().unwrap().to_owned();
            for word in words {
                field.push_str(&word[..1].to_uppercase());
                field.push_str(&word[1..]);
            }
            let read = serde_saphyr::from_str::<Options>(&format!("{field}: []"));
            let error = read.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.contains("unknown field"), "{field}: {error}");
        }
    }
}

#[test]
fn a_flag_wins_over_the_file_and_that_over_the_default() {
    let file = file("queue: 5\nreplica: from-file\ndeadAfter: 40s\nseatingOf: [A=standby]\n");
    let path = file.path().to_str().unwrap();
    let config = checked(&["--config", path, "--replica", "from-flag"]).unwrap();
    assert_eq!(config.admission.replica, "from-flag");
    assert_eq!(config.admission.queue, 5);
    assert_eq!(config.admission.times.dead_after, Duration::from_secs(40));
    assert_eq!(config.seating.kinds["A"], Policy::Standby);
    assert_eq!(config.grace, Duration::from_secs(30));
}

#[test]
fn leases_are_kept_in_a_cluster_by_who_can_be_reached() {
    let of = |args: &[&str]| checked(args).unwrap().neighbours;
    assert!(!of(&["--catalog", "kubernetes"]).leases);
    assert!(!of(&["--advertise", "a:1", "--replica", "Mine"]).leases, "in no cluster");
    assert!(of(&["--catalog", "kubernetes", "--advertise", "[::1]:5000"]).leases);
    assert!(of(&["--advertise", "a:1", "--lease-namespace", "brokers"]).leases);
    let file = file("peers: [one:1, two:2]\nadvertise: one:1\n");
    let listed = of(&["--config", file.path().to_str().unwrap()]);
    assert_eq!(listed.peers, ["one:1", "two:2"]);
    assert_eq!(listed.advertise.as_deref(), Some("one:1"));
    assert_eq!(of(&["--peers", "a:1,b:2"]).peers, ["a:1", "b:2"]);
}

#[test]
fn drivers_are_shown_where_the_broker_runs_unless_it_is_told_otherwise() {
    let shown = |args: &[&str]| {
        let args = [&["--catalog", "kubernetes"], args].concat();
        checked(&args).unwrap().driver_resources
    };
    assert_eq!(shown(&[]), DriverResources::Here);
    assert_eq!(shown(&["--driver-resources", "off"]), DriverResources::Off);
    let machines = DriverResources::In("machines".to_owned());
    assert_eq!(shown(&["--driver-resources", "machines"]), machines);
    let file = file("driverResources: machines\n");
    assert_eq!(shown(&["--config", file.path().to_str().unwrap()]), machines);
}

#[test]
fn what_cannot_work_is_refused_with_a_reason() {
    let wrong = file("quue: 5\n");
    for (args, reason) in [
        (&["--listen", "0.0.0.0:5000"][..], "--insecure"),
        (&["--listen", "0.0.0.0:5000"], "--tls-cert"),
        (&["--tls-cert", "broker.crt"], "--tls-key"),
        (&["--tls-cert", "broker.crt", "--tls-key", "broker.key"], "--policy"),
        (&["--recheck", "0s"], "at least"),
        (&["--driver-resources", "Machines"], "is no namespace"),
        (&["--driver-resources", "machines", "--catalog", "dir:x"], "--catalog kubernetes"),
        (&["--client-ca", "ca.crt"], "--tls-cert"),
        (&["--ping-every", "20s"], "--suspect-after"),
        (&["--ping-every", "0s"], "at least"),
        (&["--queue", "18446744073709551615"], "at most"),
        (&["--config", wrong.path().to_str().unwrap()], "quue"),
        (&["--config", "/does/not/exist"], "/does/not/exist"),
        (&["--seating-of", "A=best"], "exclusive"),
        (&["--otlp-endpoint", "https://collector:4317"], "without TLS"),
        (&["--max-drivers", "0"], "--max-drivers must be at least 1"),
        (&["--newcomer-time", "1ms"], "at least 1s"),
        (&["--max-headers", "1KiB"], "at least 4KiB"),
        (&["--max-headers", "8GiB"], "--max-headers"),
        (&["--identity-share", "0"], "more than 0"),
        (&["--identity-share", "NaN"], "more than 0"),
        (&["--otlp-sample", "1.5"], "from 0 to 1"),
        (&["--peers", "one:1,two"], "\"two\" is not HOST:PORT"),
        (&["--advertise", "http://one:1"], "is not HOST:PORT"),
        (&["--lease-namespace", "brokers"], "needs --advertise"),
        (&["--lease-namespace", "A", "--advertise", "a:1"], "not the name of a namespace"),
        (
            &["--catalog", "kubernetes", "--advertise", "a:1", "--replica", "Mine"],
            "cannot name a Lease",
        ),
        (&["--otlp-sample", "NaN"], "from 0 to 1"),
    ] {
        let error = format!("{:#}", checked(args).unwrap_err());
        assert!(error.contains(reason), "{args:?}: {error}");
    }
}
