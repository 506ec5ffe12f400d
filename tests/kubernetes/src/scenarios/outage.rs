//! The API server goes away under load, and comes back.

use futures::future::join_all;

use crate::{
    actors::{World, until},
    cluster::Cluster,
};

/// As many as the driver runs, and some that wait.
const AT_ONCE: usize = 50;

pub(super) async fn work_goes_on_while_the_api_server_is_away(cluster: &Cluster) {
    let world = World::new(cluster);
    world.secret("credentials", 7);
    world.class("small", "{secretRef: {name: credentials}}");
    let _driver = world.driver().await;
    world.create_patiently("worker", world.class_ref("small")).await;

    cluster.kill_api_server();
    let is_away = || world.brokerctl(&["status"]).contains("the API server cannot be reached for");
    let mut made = 0;
    // Long enough that every review of a token has to be asked for again, and cannot be.
    while made < 300 || !is_away() {
        let names: Vec<_> = (made..made + AT_ONCE).map(|number| format!("away-{number}")).collect();
        let creates = names.iter().map(|name| world.create(name, world.class_ref("small")));
        for (name, created) in names.iter().zip(join_all(creates).await) {
            created.unwrap_or_else(|status| panic!("{name}: {status:?}"));
        }
        made += AT_ONCE;
    }
    let old = world.create("away-last", world.class_ref("small")).await;
    old.expect("what is known is enough");
    until("the age is in the audit log", || world.audit().contains("catalogAgeMs")).await;
    let unknown = world.create("away", world.class_ref("made-meanwhile")).await.unwrap_err();
    assert!(unknown.message().contains("cannot be reached"), "{unknown:?}");
    assert_eq!(world.vm("away-0").expect("it was made").user_data_bytes, 7);

    cluster.start_api_server();
    world.class("made-meanwhile", "{secretRef: {name: credentials}}");
    world.secret("credentials", 11);
    until("in touch again", || !is_away()).await;
    world.create_patiently("back", world.class_ref("made-meanwhile")).await;
    let mut number = 0;
    loop {
        number += 1;
        let machine = format!("rotated-{number}");
        if world.create_patiently(&machine, world.class_ref("small")).await.user_data_bytes == 11 {
            break;
        }
        assert!(number < 1000, "the rotation was never noticed");
    }
}
