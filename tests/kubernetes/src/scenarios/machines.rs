//! Machines from classes and secrets in the cluster.

use broker_proto::v1::ClassRef;
use tonic::Code;

use crate::{
    actors::{World, until},
    cluster::Cluster,
};

pub(super) async fn a_machine_is_made_from_a_class_and_a_secret_of_the_cluster(cluster: &Cluster) {
    let world = World::new(cluster);
    world.secret("credentials", 7);
    world.class("small", "{secretRef: {name: credentials}}");
    let _driver = world.driver().await;
    let vm = world.create_patiently("worker-0", world.class_ref("small")).await;
    assert_eq!(vm.user_data_bytes, 7, "the user data of the secret");
    world.delete("worker-0", world.class_ref("small")).await.unwrap();
    assert_eq!(world.vm("worker-0"), None);
    let absent = world.create("worker-1", world.class_ref("none")).await.unwrap_err();
    assert_eq!(absent.code(), Code::NotFound, "{absent:?}");
}

pub(super) async fn an_edited_class_and_a_rotated_secret_reach_the_driver(cluster: &Cluster) {
    let world = World::new(cluster);
    world.secret("credentials", 7);
    world.class("small", "{secretRef: {name: credentials}}");
    let _driver = world.driver().await;
    world.create_patiently("before", world.class_ref("small")).await;
    let listed = || world.brokerctl(&["classes"]);
    let first = listed();
    assert!(first.contains("small"), "{first}");

    world.class("small", "{secretRef: {name: credentials}, addresses: [{type: A, address: x}]}");
    until("another revision", || listed() != first).await;
    world.create_patiently("edited", world.class_ref("small")).await;
    assert_eq!(world.vm("edited").unwrap().addresses[0].address, "x");

    let edited = listed();
    world.secret("credentials", 11);
    until("another revision of the secret", || listed() != edited).await;
    let vm = world.create_patiently("rotated", world.class_ref("small")).await;
    assert_eq!(vm.user_data_bytes, 11);

    // The same content has the same revisions, and a label is no content.
    cluster.kubectl(&["label", "simmachineclass", "small", "seen=yes", "-n", &world.namespace]);
    world.class("small", "{secretRef: {name: credentials}}");
    world.secret("credentials", 7);
    until("the first revisions", || listed() == first).await;
}

pub(super) async fn a_class_of_today_is_served_by_its_provider(cluster: &Cluster) {
    let world = World::new(cluster);
    world.secret("base", 5);
    world.secret_with("credentials", "{token: t}");
    cluster.apply(&format!(
        "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\n\
         metadata: {{name: aws, namespace: {}}}\n\
         provider: AWS\nproviderSpec: {{secretKeys: [token, userData]}}\n\
         secretRef: {{name: base}}\ncredentialsSecretRef: {{name: credentials}}\n\
         nodeTemplate: {{instanceType: m5.large, region: eu, zone: eu-1, capacity: {{cpu: '2'}}}}\n",
        world.namespace
    ));
    let of =
        ["--kind=MachineClass", "--api-version=machine.sapcloud.io/v1alpha1", "--provider=AWS"];
    let _driver = world.driver_of(&of).await;
    let class = ClassRef {
        api_version: "machine.sapcloud.io/v1alpha1".to_owned(),
        kind: "MachineClass".to_owned(),
        name: "aws".to_owned(),
        ..world.class_ref("aws")
    };
    let vm = world.create_patiently("worker-0", class).await;
    assert_eq!(vm.user_data_bytes, 5);
}

pub(super) async fn a_class_without_a_secret_works(cluster: &Cluster) {
    let world = World::new(cluster);
    world.class("plain", "{}");
    let _driver = world.driver().await;
    let vm = world.create_patiently("worker-0", world.class_ref("plain")).await;
    assert_eq!(vm.user_data_bytes, 0);
}

pub(super) async fn a_secret_without_the_expected_keys_is_named_by_the_driver(cluster: &Cluster) {
    let world = World::new(cluster);
    world.secret_with("credentials", "{password: p}");
    world.class("small", "{secretKeys: [token], secretRef: {name: credentials}}");
    world.class("ready", "{secretRef: {name: credentials}}");
    world.class("dangling", "{secretRef: {name: none}}");
    let _driver = world.driver().await;
    world.create_patiently("worker-0", world.class_ref("ready")).await;

    let wrong = world.create("worker-1", world.class_ref("small")).await.unwrap_err();
    assert_eq!(wrong.code(), Code::FailedPrecondition, "{wrong:?}");
    assert!(wrong.message().contains("no key \"token\""), "{wrong:?}");
    let says = format!("refers to the secret {}/none, which does not exist", world.namespace);
    world.until_status(&says, &["status"], |text| text.contains(&says)).await;
    assert!(world.create("worker-2", world.class_ref("dangling")).await.is_err());
}

pub(super) async fn a_class_of_one_mebibyte_reaches_the_driver(cluster: &Cluster) {
    let world = World::new(cluster);
    let large = "x".repeat(1024 * 1024);
    world.class("large", &format!("{{machineType: {large}, capacity: 1}}"));
    let _driver = world.driver().await;
    world.create_patiently("worker-0", world.class_ref("large")).await;
    // The rest of it was read as well.
    let full = world.create("worker-1", world.class_ref("large")).await.unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted, "{full:?}");
}
