//! Who gets in, and to whose secrets.

use std::{fs, time::Duration};

use broker_tests::{Controller, process::PATIENCE};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{
    actors::{Beginning, DRIVER, World},
    cluster::{AUDIENCE, Cluster},
    manifests::Overlay,
};

/// A secret of another namespace, which the broker may read as far as the cluster goes.
fn foreign_secret(world: &World<'_>) -> String {
    let other = world.cluster.namespace();
    world.cluster.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: foreign, namespace: {other}}}\n\
         stringData: {{userData: stolen}}\n"
    ));
    let folder = tempfile::tempdir().expect("a folder");
    Overlay::of_classes(&other, &world.namespace, folder.path()).apply(world.cluster);
    world.class("thief", &format!("{{secretRef: {{name: foreign, namespace: {other}}}}}"));
    other
}

pub(super) async fn a_secret_of_another_namespace_is_denied(cluster: &Cluster) {
    let world = World::new(cluster);
    let other = foreign_secret(&world);
    world.class("plain", "{}");
    let _driver = world.driver().await;
    world.create_patiently("worker-0", world.class_ref("plain")).await;
    let denied = world.create("worker-1", world.class_ref("thief")).await.unwrap_err();
    assert!(denied.message().contains("another namespace"), "{denied:?}");
    assert_eq!(world.vm("worker-1"), None);
    let says = format!("refers to the secret {other}/foreign of another namespace, which no rule");
    world.until_status(&says, &["status"], |text| text.contains(&says)).await;
    assert!(world.audit().contains("secret_denied"), "{}", world.audit());
}

pub(super) async fn a_secret_of_another_namespace_is_served_where_the_policy_says_so(
    cluster: &Cluster,
) {
    let allowed = Beginning { driver_rule: ", secretsFrom: ['*']", ..Beginning::default() };
    let world = World::begin(cluster, allowed);
    foreign_secret(&world);
    let _driver = world.driver().await;
    let vm = world.create_patiently("worker-0", world.class_ref("thief")).await;
    assert_eq!(vm.user_data_bytes, "stolen".len());
}

pub(super) async fn a_token_that_expires_or_is_for_others_gets_nobody_in(cluster: &Cluster) {
    let world = World::new(cluster);
    world.class("plain", "{}");
    let _driver = world.driver().await;
    world.create_patiently("worker-0", world.class_ref("plain")).await;
    let controller = Controller::new(world.broker.channel().await);
    let call = |token: &str| {
        let (controller, request) =
            (controller.clone(), world.request("worker-1", world.class_ref("plain"), token));
        async move { controller.create_with(request).await }
    };

    let for_others = cluster.token(&world.namespace, "controller", Some("somebody-else"));
    let for_the_api = cluster.token(&world.namespace, "controller", None);
    let forged = cluster.short_token(&world.namespace, "controller", Duration::from_secs(60));
    let forged = format!("{}AAAA", &forged[..forged.len() - 4]);
    for wrong in [&for_others, &for_the_api, &forged] {
        let denied = call(wrong).await.unwrap_err();
        assert_eq!(denied.code(), Code::Unauthenticated, "{denied:?}");
    }
    // Known, and yet nobody to the policy.
    cluster.kubectl(&["create", "serviceaccount", "stranger", "-n", &world.namespace]);
    let stranger = cluster.token(&world.namespace, "stranger", Some(AUDIENCE));
    let denied = call(&stranger).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied:?}");
    assert!(denied.message().contains(":stranger"), "{denied:?}");

    // Also on the stream of a driver, which comes back with the new token in its file.
    let short = cluster.short_token(&world.namespace, "controller", Duration::from_secs(8));
    call(&short).await.expect("it is good for some seconds");
    let give_up = Instant::now() + PATIENCE;
    loop {
        match call(&short).await {
            Ok(_) => assert!(Instant::now() < give_up, "it never expired"),
            Err(denied) => {
                assert_eq!(denied.code(), Code::Unauthenticated, "{denied:?}");
                break;
            }
        }
        sleep(Duration::from_millis(200)).await;
    }
}

pub(super) async fn a_revoked_account_loses_its_open_stream(cluster: &Cluster) {
    let world = World::new(cluster);
    world.class("plain", "{}");
    // First with a token that expires: the stream ends, and the driver comes back with the next.
    let short = cluster.short_token(&world.namespace, DRIVER, Duration::from_secs(8));
    fs::write(world.path("driver.token"), short).expect("a file");
    let _driver = world.start_driver(&[]);
    world.until_status("a driver", &["drivers"], |text| text.contains("Ready")).await;
    let next = cluster.token(&world.namespace, DRIVER, Some(AUDIENCE));
    fs::write(world.path("driver.token"), next).expect("a file");
    let came_back = |text: &str| text.matches("registered").count() >= 2;
    world.until_status("it came back", &["drivers", "describe", "sim-0"], came_back).await;
    world.create_patiently("worker-0", world.class_ref("plain")).await;

    cluster.kubectl(&["delete", "serviceaccount", DRIVER, "-n", &world.namespace]);
    world
        .until_status("no driver", &["drivers"], |text| text.contains("no driver is connected"))
        .await;
    let alone = world.create("worker-1", world.class_ref("plain")).await.unwrap_err();
    assert_eq!(alone.code(), Code::Unavailable, "{alone:?}");
}
