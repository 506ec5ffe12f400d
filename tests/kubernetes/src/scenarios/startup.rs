//! What is wrong from the start.

use std::process::Command;

use broker_tests::process::binary;

use crate::cluster::Cluster;

pub(super) async fn a_kubeconfig_that_cannot_be_used_is_told_at_the_start(_: &Cluster) {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "clusters: [").expect("a file");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "apiVersion: v1\nkind: Config\n").expect("a file");
    // One that cannot be read, for whoever it is: the reader of these scenarios may be root.
    let unreadable = folder.path().join("folder");
    std::fs::create_dir(&unreadable).expect("a folder");
    for file in [folder.path().join("absent"), broken, empty, unreadable] {
        let source = format!("--catalog=kubernetes:{}", file.display());
        let output = Command::new(binary("machine-broker"))
            .args(["serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", &source])
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{text}");
        let says = format!("the kubeconfig {} cannot be used", file.display());
        assert!(text.contains(&says), "{text}");
    }
}

pub(super) async fn a_broker_without_any_cluster_says_where_it_looked(_: &Cluster) {
    let home = tempfile::tempdir().expect("a folder");
    let output = Command::new(binary("machine-broker"))
        .args(["serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--catalog=kubernetes"])
        .env_clear()
        .env("HOME", home.path())
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("KUBECONFIG") && text.contains("kubernetes:FILE"), "{text}");
}
