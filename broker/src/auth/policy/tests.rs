use super::*;

const POLICY: &str = r#"
# who may do what
rules:
- who: spiffe://cluster/driver/*
  driver: {kinds: [SimMachineClass], namespaces: [default, test]}
- who: spiffe://cluster/driver/aws
  driver: {kinds: [machine.dev/v1/MachineClass], providers: [aws]}
- who: [spiffe://cluster/controller, "token:ci"]
  controller: {kinds: ["*"], verbs: [create, list], namespaces: [default]}
- who: cn:alice
  operator: read
- who: cn:root
  operator: steer
- who: dns:autoscaler.example
  autoscaler: {kinds: [SimMachineClass]}
"#;

fn policy() -> Policy {
    Policy::read(POLICY).unwrap()
}

fn key(api_version: &str, kind: &str, provider: Option<&str>) -> DriverKey {
    DriverKey {
        api_version: api_version.into(),
        kind: kind.into(),
        provider: provider.map(Into::into),
    }
}

fn named(name: &str) -> Identity {
    Identity::named(name).unwrap()
}

fn line(who: &str, act: Act<'_>) -> Option<u64> {
    policy().allows(&named(who), act).ok()
}

fn in_namespace(kind: &'static str, namespace: &'static str) -> Subject<'static> {
    Subject { api_version: "", kind, namespace }
}

#[test]
fn a_driver_registers_the_kinds_that_rules_give_it_and_no_others() {
    let (sim, other) = (key("sim.dev/v1", "SimMachineClass", None), key("v1", "Other", None));
    assert_eq!(line("spiffe://cluster/driver/a", Act::Register(&sim)), Some(4));
    assert_eq!(line("spiffe://cluster/driver/a", Act::Register(&other)), None);
    assert_eq!(line("spiffe://cluster/driverx", Act::Register(&sim)), None);
    assert_eq!(line("spiffe://cluster/controller", Act::Register(&sim)), None);
}

#[test]
fn a_driver_of_one_provider_cannot_register_for_another_or_for_all() {
    let aws = |provider| key("machine.dev/v1", "MachineClass", provider);
    let who = "spiffe://cluster/driver/aws";
    assert_eq!(line(who, Act::Register(&aws(Some("aws")))), Some(6));
    assert_eq!(line(who, Act::Register(&aws(Some("gcp")))), None);
    assert_eq!(line(who, Act::Register(&aws(None))), None);
    let elsewhere = key("other.dev/v1", "MachineClass", Some("aws"));
    assert_eq!(line(who, Act::Register(&elsewhere)), None);
}

#[test]
fn the_territory_of_a_driver_is_that_of_all_its_rules() {
    let sim = key("sim.dev/v1", "SimMachineClass", None);
    let two = format!("{POLICY}- who: spiffe://cluster/driver/b\n  driver: {{kinds: [\"*\"]}}\n");
    let who = named("spiffe://cluster/driver/b");
    let territory = policy().territory(&who, &sim).unwrap();
    assert!(territory.contains("test") && !territory.contains("prod"));
    let territory = Policy::read(&two).unwrap().territory(&who, &sim).unwrap();
    assert_eq!(territory, Namespaces::All);
    let refused = policy().territory(&named("cn:alice"), &sim).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cn:alice may not register as driver of SimMachineClass (sim.dev/v1)"
    );
}

#[test]
fn a_controller_is_held_to_its_verbs_and_namespaces() {
    let create =
        |namespace| Act::Operate { verb: Verb::Create, class: in_namespace("A", namespace) };
    let delete = Act::Operate { verb: Verb::Delete, class: in_namespace("A", "default") };
    assert_eq!(line("token:ci", create("default")), Some(8));
    assert_eq!(line("token:ci", create("prod")), None);
    assert_eq!(line("token:ci", delete), None);
    assert_eq!(line("token:cie", create("default")), None);
}

#[test]
fn steering_includes_reading_and_not_the_other_way_round() {
    assert_eq!(line("cn:alice", Act::Read), Some(10));
    assert_eq!(line("cn:alice", Act::Steer), None);
    assert_eq!(line("cn:root", Act::Read), Some(12));
    assert_eq!(line("cn:root", Act::Steer), Some(12));
}

#[test]
fn an_autoscaler_is_held_to_its_kinds() {
    let who = "dns:autoscaler.example";
    assert_eq!(line(who, Act::Autoscale(in_namespace("SimMachineClass", "any"))), Some(14));
    assert_eq!(line(who, Act::Autoscale(in_namespace("Other", "any"))), None);
}

#[test]
fn who_is_in_no_rule_may_do_nothing() {
    let policy = policy();
    for need in [Need::AnyRole, Need::Driver, Need::Controller, Need::Read, Need::Steer] {
        let refused = policy.meets(&Identity::anonymous(), need).unwrap_err();
        assert_eq!(refused, Refusal::Unnamed(Identity::anonymous()), "{need:?}");
    }
    assert_eq!(policy.meets(&Identity::anonymous(), Need::Nothing), Ok(()));
}

#[test]
fn a_star_stands_for_all_who_are_known_and_not_for_nobody() {
    let policy = Policy::read("rules:\n- who: \"*\"\n  operator: steer\n").unwrap();
    assert!(policy.allows(&named("cn:anyone"), Act::Steer).is_ok());
    assert!(policy.allows(&Identity::anonymous(), Act::Read).is_err());
    let policy = Policy::read("rules:\n- who: anonymous\n  operator: read\n").unwrap();
    assert!(policy.allows(&Identity::anonymous(), Act::Read).is_ok());
}

#[test]
fn each_role_opens_its_own_services_only() {
    let policy = policy();
    for (who, opens) in [
        ("spiffe://cluster/driver/a", vec![Need::Driver]),
        ("token:ci", vec![Need::Controller]),
        ("cn:alice", vec![Need::Read]),
        ("cn:root", vec![Need::Read, Need::Steer]),
        ("dns:autoscaler.example", vec![]),
    ] {
        for need in [Need::Driver, Need::Controller, Need::Read, Need::Steer] {
            let met = policy.meets(&named(who), need).is_ok();
            assert_eq!(met, opens.contains(&need), "{who} {need:?}");
        }
    }
}

#[test]
fn a_mistake_is_named_with_its_line() {
    for (rule, problem) in [
        ("who: a b\n  operator: read", "line 2: \"a b\" is no identity"),
        ("who: cn:a*b\n  operator: read", "line 2: \"cn:a*b\" is no identity"),
        ("who: alice\n  operator: read", "line 2: nobody is called \"alice\""),
        ("who: []\n  operator: read", "line 2: `who` names nobody"),
        ("who: cn:a", "line 2: the rule gives no role"),
        ("who: cn:a\n  operator: write", "line 3: \"write\": an operator may"),
        (
            "who: cn:a\n  controller:\n    kinds: [A]\n    verbs: [crate]",
            "line 5: \"crate\" is no verb",
        ),
        ("who: cn:a\n  driver: {kinds: []}", "line 2: `kinds` is empty"),
        ("who: cn:a\n  driver: {kinds: [\"A*\"]}", "line 3: \"A*\" is no kind"),
        ("who: cn:a\n  driver: {kinds: [A], namespaces: []}", "line 2: `namespaces` is empty"),
        ("who: cn:a\n  driver: {kinds: [A], namespaces: [\"x*\"]}", "a star stands for all"),
        ("who: cn:a\n  driver: {namespaces: [A]}", "kinds"),
        ("who: cn:a\n  opertor: read", "opertor"),
    ] {
        let error = Policy::read(&format!("rules:\n- {rule}\n")).unwrap_err().to_string();
        assert!(error.contains(problem), "{rule}: {error}");
        assert!(error.contains("line"), "{rule}: {error}");
    }
}

#[test]
fn an_empty_policy_is_valid_and_allows_nothing() {
    let policy = Policy::read("rules: []\n").unwrap();
    assert!(policy.is_empty());
    assert!(policy.allows(&named("cn:a"), Act::Read).is_err());
    assert!(Policy::read("").is_err(), "an empty file is rather a mistake");
}

#[test]
fn secrets_of_other_namespaces_have_to_be_named() {
    let policy = Policy::read(
        "rules:
         - {who: token:plain, driver: {kinds: [A]}}
         - {who: token:named, driver: {kinds: [A], secretsFrom: [vault]}}
         - {who: token:any, driver: {kinds: [A], secretsFrom: ['*']}}
        ",
    )
    .unwrap();
    let key = key("a.b/v1", "A", None);
    let from = |who| policy.secrets_from(&Identity::token(who), &key);
    assert!(!from("plain").contains("vault"));
    assert!(from("named").contains("vault") && !from("named").contains("prod"));
    assert!(from("any").contains("prod"));
    assert!(!from("nobody").contains("vault"));
}
