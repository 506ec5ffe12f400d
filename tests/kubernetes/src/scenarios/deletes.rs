//! What is left of a class that is gone.

use tonic::Code;

use crate::{
    actors::{World, until},
    cluster::Cluster,
};

pub(super) async fn machines_are_deleted_after_their_class_and_secret_are_gone(cluster: &Cluster) {
    let world = World::new(cluster);
    world.secret("credentials", 7);
    world.class("small", "{secretRef: {name: credentials}}");
    world.class("large", "{secretRef: {name: credentials}}");
    let mut driver = world.driver().await;
    world.create_patiently("worker-0", world.class_ref("small")).await;
    world.create_patiently("worker-1", world.class_ref("large")).await;

    let namespace = world.namespace.as_str();
    cluster.kubectl(&["delete", "simmachineclass", "small", "-n", namespace]);
    cluster.kubectl(&["delete", "secret", "credentials", "-n", namespace]);
    until("the class is marked", || world.brokerctl(&["classes"]).contains("small (deleted)"))
        .await;
    let says = "which was deleted: it is kept to delete machines";
    world.until_status(says, &["status"], |text| text.contains(says)).await;

    for (machine, class) in [("worker-2", "small"), ("worker-3", "large")] {
        let refused = world.create(machine, world.class_ref(class)).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        assert!(refused.message().contains("was deleted"), "{refused:?}");
    }
    // A driver that has just come has nothing in its cache: all of it is the broker's.
    driver.kill();
    let _driver = world.driver().await;
    world.delete("worker-0", world.class_ref("small")).await.unwrap();
    world.delete("worker-1", world.class_ref("large")).await.unwrap();
    assert_eq!(world.vm("worker-0"), None);
    assert_eq!(world.vm("worker-1"), None);
    // Lines are gathered for a moment before they are written.
    until("the audit log tells", || world.audit().contains("\"classDeleted\":true")).await;

    // Both come back, and so do creates.
    world.secret("credentials", 3);
    world.class("small", "{secretRef: {name: credentials}}");
    let vm = world.create_patiently("worker-4", world.class_ref("small")).await;
    assert_eq!(vm.user_data_bytes, 3);
}
