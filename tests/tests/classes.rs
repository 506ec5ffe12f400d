//! What drivers can learn of machine classes and secrets, and what they cannot.

use std::{sync::Arc, time::Duration};

use broker::catalog::Static;
use broker_proto::v1::{ClassRef, broker_side::Control};
use broker_tests::{
    API_VERSION, Controller, Driver, Hello, KIND, Service, TestBroker,
    catalog::{self, OTHER_API_VERSION, OTHER_KIND, catalog_text},
    hello, kind,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

const PATH: &str =
    "/apis/sim.machinebroker.dev/v1alpha1/namespaces/default/simmachineclasses/small";
const NO_SUCH_THING: &str = "there is no such class or secret among those of this driver";

fn parsed(data: &str) -> Value {
    serde_json::from_str(data).expect("JSON")
}

fn start() -> (TestBroker, Arc<Static>) {
    let catalog = catalog::catalog();
    (TestBroker::of_catalog(catalog.clone()), catalog)
}

#[tokio::test(start_paused = true)]
async fn a_class_is_found_under_each_form_of_its_name() {
    let (broker, _) = start();
    let native = broker.driver("a").await;
    let historic = broker.historic().await;
    for driver in [&native, &historic] {
        for name in ["small", "default/small", PATH] {
            let class = driver.get_class(name).await.expect(name);
            assert_eq!((class.error.as_str(), class.revision != 0), ("", true));
            let object = parsed(&class.data);
            assert_eq!(object["kind"], KIND);
            assert_eq!(object["metadata"], json!({"name": "small", "namespace": "default"}));
        }
        let there = parsed(&driver.get_class("team-b/small").await.unwrap().data);
        assert_eq!(there["metadata"]["namespace"], "team-b");
    }
    native.vanish();
    historic.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_comes_merged_with_the_credentials_which_win() {
    let (broker, _) = start();
    let native = broker.driver("a").await;
    let historic = broker.historic().await;
    let merged = json!({"userData": "aGVsbG8=", "token": "Zmlyc3Q="});
    for driver in [&native, &historic] {
        let secret = driver.get_secret("default", "base").await.unwrap();
        assert_eq!(parsed(&secret.data)["data"], merged);
        assert_ne!(secret.revision, 0);
        let plain = driver.get_secret("default", "credentials").await.unwrap();
        assert_eq!(parsed(&plain.data)["data"], json!({"token": "Zmlyc3Q="}));
    }
    let of_class = native.get_secret_of(Controller::class()).await.unwrap();
    assert_eq!(parsed(&of_class.data)["data"], merged);

    // What an operation announces is what a question then answers.
    historic.vanish();
    broker.until_drivers(1).await;
    let mut native = native;
    let create = broker.controller().await.creating("w");
    let params = native.serve_one().await.params.unwrap();
    create.answer().await.unwrap();
    assert_eq!(params.secret_revision, of_class.revision);
    let class = native.get_class(&params.machine_class.as_ref().unwrap().name).await.unwrap();
    assert_eq!(params.machine_class.unwrap().revision, class.revision);
    native.vanish();
    broker.at_rest().await;
}

/// What a driver reads that may not have it: a native one in the status, a historic one in the reply.
fn refusal(native: bool, answer: Result<String, Status>) -> (Code, String) {
    match answer {
        Ok(error) => {
            assert!(!native, "a status for a native driver");
            (Code::Ok, error)
        }
        Err(status) => {
            assert!(native, "a word in the reply for a historic driver, but {status}");
            (status.code(), status.message().to_owned())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_is_not_the_drivers_own_is_denied_in_the_same_words() {
    let (broker, _) = start();
    let native = broker.driver("a").await;
    let historic = broker.historic().await;
    let other_path =
        "/apis/other.machinebroker.dev/v1/namespaces/default/othermachineclasses/other";
    for (is_native, driver) in [(true, &native), (false, &historic)] {
        let denied = if is_native { Code::NotFound } else { Code::Ok };
        for name in ["other", "default/other", other_path, "absent", "team-c/small"] {
            let answer = driver.get_class(name).await.map(|class| {
                assert_eq!(class.data, "", "{name}");
                class.error
            });
            assert_eq!(refusal(is_native, answer), (denied, NO_SUCH_THING.to_owned()), "{name}");
        }
        for (namespace, name) in [
            ("default", "of-other"),
            ("default", "unreferenced"),
            ("default", "absent"),
            ("team-b", "base"),
            ("", ""),
            ("default", "../default/of-other"),
        ] {
            let answer = driver.get_secret(namespace, name).await.map(|secret| {
                assert_eq!(secret.data, "", "{name}");
                secret.error.clone()
            });
            assert_eq!(refusal(is_native, answer), (denied, NO_SUCH_THING.to_owned()), "{name}");
        }
    }
    let other = catalog::class(OTHER_API_VERSION, OTHER_KIND, "other");
    let status = native.get_secret_of(other).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, NO_SUCH_THING));
    native.vanish();
    historic.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_path_that_tries_to_climb_is_no_name() {
    let (broker, _) = start();
    let native = broker.driver("a").await;
    let historic = broker.historic().await;
    for name in [
        "../small",
        "default/../default/small",
        "/apis/../../etc/passwd",
        "/apis/sim.machinebroker.dev/v1alpha1/namespaces/default/simmachineclasses/../secrets/base",
        "/api/v1/namespaces/default/secrets/base%2f..",
        "/apis/sim.machinebroker.dev/v1alpha1/namespaces/default/simmachineclasses/small?watch=1",
        "",
        &"a/".repeat(1_000),
    ] {
        let status = native.get_class(name).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{name:?}");
        let answer = historic.get_class(name).await.unwrap();
        assert!(answer.data.is_empty() && !answer.error.is_empty(), "{name:?}");
    }
    // A secret is not a class, whatever the path.
    let secret = "/api/v1/namespaces/default/secrets/base";
    assert_eq!(native.get_class(secret).await.unwrap_err().code(), Code::NotFound);
    native.vanish();
    historic.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn who_has_no_session_gets_nothing() {
    let (broker, _) = start();
    let unregistered = Driver::dial(broker.channel().await, Service::Infra).await;
    let registered = broker.historic().await;
    let mut stranger = Driver::dial(broker.channel().await, Service::Today).await;
    for token in ["", "0123456789abcdef0123456789abcdef"] {
        stranger.token = token.to_owned();
        let class = stranger.get_class("small").await.unwrap_err();
        let secret = stranger.get_secret("default", "base").await.unwrap_err();
        assert_eq!(class.code(), Code::FailedPrecondition);
        assert_eq!(secret.code(), Code::FailedPrecondition);
    }
    let early = unregistered.get_class("small").await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    registered.get_class("small").await.expect("its own connection is enough");
    drop((unregistered, registered, stranger));
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_is_good_on_any_connection_for_as_long_as_its_session_lives() {
    let (broker, _) = start();
    let driver = broker.driver("a").await;
    let mut elsewhere = Driver::dial(broker.channel().await, Service::Today).await;
    elsewhere.token = driver.token.clone();
    elsewhere.get_secret("default", "base").await.expect("the token says who asks");

    driver.vanish();
    broker.until_drivers(0).await;
    let status = elsewhere.get_secret("default", "base").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);

    // Nor does a new session of the same driver bring the old token back.
    let again = broker.driver("a").await;
    assert_ne!(again.token, elsewhere.token);
    assert!(elsewhere.get_class("small").await.is_err());
    drop((again, elsewhere));
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_for_one_provider_sees_only_that_providers_classes() {
    let (broker, _) = start();
    let mut of_aws = kind(catalog::SHARED_API_VERSION, catalog::SHARED_KIND);
    of_aws.provider = "aws".to_owned();
    let driver = broker.driver_with(Hello { kinds: vec![of_aws], ..hello("aws") }).await;
    driver.get_class("on-aws").await.expect("its own");
    let status = driver.get_class("on-gcp").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, NO_SUCH_THING));
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_a_class_shows_in_the_next_operation_and_nowhere_else() {
    let (broker, catalog) = start();
    let mut driver = broker.driver("a").await;
    let controller = broker.controller().await;
    let mut revisions = Vec::new();
    for edit in ["spec: {", "spec: {", "spec: {size: 2, "] {
        catalog.replace(&catalog_text("first").replacen("spec: {", edit, 1)).unwrap();
        let create = controller.creating("w");
        let params = driver.serve_one().await.params.unwrap();
        create.answer().await.unwrap();
        revisions.push((params.machine_class.unwrap().revision, params.secret_revision));
    }
    assert_eq!(revisions[0], revisions[1], "nothing changed");
    assert_ne!(revisions[1].0, revisions[2].0, "the class did");
    assert_eq!(revisions[1].1, revisions[2].1, "its secret did not");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_rotated_secret_is_pushed_to_those_who_may_see_it_and_to_nobody_else() {
    let (broker, catalog) = start();
    let mut mine = broker.driver("mine").await;
    let kinds = vec![kind(OTHER_API_VERSION, OTHER_KIND)];
    let mut other = broker.driver_with(Hello { kinds, ..hello("other") }).await;
    let mut historic = broker.historic().await;
    let before = mine.get_secret_of(Controller::class()).await.unwrap().revision;

    catalog.replace(&catalog_text("second")).unwrap();
    let (_, Control::SecretChanged(changed)) = mine.next_control().await else {
        panic!("the driver is told")
    };
    assert_eq!((changed.namespace.as_str(), changed.name.as_str()), ("default", "credentials"));
    assert_ne!(mine.get_secret_of(Controller::class()).await.unwrap().revision, before);
    mine.hears_nothing_for(Duration::from_secs(10)).await;
    other.hears_nothing_for(Duration::from_secs(1)).await;
    historic.hears_nothing_for(Duration::from_secs(1)).await;
    drop((mine, other, historic));
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_goes_away_is_forgotten_by_those_who_had_it() {
    let (broker, catalog) = start();
    let mut driver = broker.driver("a").await;
    let text = catalog_text("first");
    let without = text.replace("metadata: {name: credentials}", "metadata: {name: renamed}");
    catalog.replace(&without).expect("a class may name a secret that is not there");
    let (_, Control::SecretChanged(changed)) = driver.next_control().await else {
        panic!("the driver is told")
    };
    assert_eq!(changed.name, "credentials");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_fits_classes_of_two_kinds_is_not_guessed() {
    let yaml = "
apiVersion: a.dev/v1
kind: AClass
metadata: {name: small}
---
apiVersion: b.dev/v1
kind: BClass
metadata: {name: small}
";
    let broker = TestBroker::of_catalog(Static::from_yaml(yaml).unwrap());
    let kinds = vec![kind("a.dev/v1", "AClass"), kind("b.dev/v1", "BClass")];
    let driver = broker.driver_with(Hello { kinds, ..hello("a") }).await;
    let status = driver.get_class("small").await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let path = "/apis/b.dev/v1/namespaces/default/bclasses/small";
    assert_eq!(parsed(&driver.get_class(path).await.unwrap().data)["kind"], "BClass");
    driver.vanish();
    broker.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_without_a_secret_says_so() {
    let (broker, _) = start();
    let mut driver = broker.driver("a").await;
    let class =
        ClassRef { namespace: "team-b".to_owned(), ..catalog::class(API_VERSION, KIND, "small") };
    let list = broker.controller().await;
    let (listed, operation) = tokio::join!(list.list_of(class.clone()), driver.serve_one());
    listed.unwrap();
    assert_eq!(operation.params.unwrap().secret_revision, 0);
    assert_eq!(driver.get_secret_of(class).await.unwrap_err().code(), Code::NotFound);
    driver.vanish();
    broker.at_rest().await;
}
