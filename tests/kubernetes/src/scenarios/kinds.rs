//! Kinds that are not there, or not for us, and the others beside them.

use broker_proto::v1::ClassRef;
use tonic::Code;

use crate::{
    actors::{Beginning, World, install_text},
    cluster::Cluster,
};

const OXEN: &str = "oxen.e2e.machinebroker.dev";

/// A kind whose plural nobody guesses.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: oxen.e2e.machinebroker.dev}
spec:
  group: e2e.machinebroker.dev
  scope: Namespaced
  names: {kind: OxClass, plural: oxen, singular: ox}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

fn ox(world: &World<'_>) -> ClassRef {
    ClassRef {
        api_version: "e2e.machinebroker.dev/v1".to_owned(),
        kind: "OxClass".to_owned(),
        ..world.class_ref("ox")
    }
}

pub(super) async fn a_kind_is_served_once_its_definition_is_installed(cluster: &Cluster) {
    let world = World::new(cluster);
    let args = ["--kind=OxClass", "--api-version=e2e.machinebroker.dev/v1"];
    let _driver = world.driver_of(&args).await;
    let says = "the API server knows no OxClass (e2e.machinebroker.dev/v1): install its";
    world.until_status(says, &["status"], |text| text.contains(says)).await;
    world.until_status(says, &["drivers", "describe", "sim-0"], |text| text.contains(says)).await;
    let unknown = world.create("worker-0", ox(&world)).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unavailable, "{unknown:?}");
    assert!(unknown.message().contains("knows no OxClass"), "{unknown:?}");

    install_text(cluster, OXEN, DEFINITION);
    cluster.apply(&format!(
        "apiVersion: e2e.machinebroker.dev/v1\nkind: OxClass\n\
         metadata: {{name: ox, namespace: {}}}\nspec: {{}}\n",
        world.namespace
    ));
    world.create_patiently("worker-0", ox(&world)).await;
    world.until_status("all well", &["status"], |text| !text.contains("OxClass")).await;
    cluster.kubectl(&["delete", "customresourcedefinition", OXEN]);
    // Its machines can still be deleted.
    world.until_status(says, &["status"], |text| text.contains(says)).await;
    world.delete("worker-0", ox(&world)).await.unwrap();
    assert_eq!(world.vm("worker-0"), None);
}

pub(super) async fn a_kind_is_served_once_the_broker_may_read_it(cluster: &Cluster) {
    let world = World::begin(cluster, Beginning { no_rights: true, ..Beginning::default() });
    world.class("small", "{}");
    let _driver = world.driver().await;
    let says = "the broker may not read SimMachineClass";
    let status = world.until_status(says, &["status"], |text| text.contains(says)).await;
    assert!(status.contains("list and watch"), "{status}");
    let unknown = world.create("worker-0", world.class_ref("small")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unavailable, "{unknown:?}");

    world.install();
    world.create_patiently("worker-0", world.class_ref("small")).await;
    world.until_status("all well", &["status"], |text| !text.contains(says)).await;
}
