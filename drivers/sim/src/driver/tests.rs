use std::{sync::Arc, time::Duration};

use driver_client::{CancellationToken, Code, testing::TestOperation};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;

/// A driver and its cloud. The folder goes when the test does.
fn sim() -> (Sim, Cloud, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let cloud = Cloud::open(folder.path()).unwrap();
    (Sim::new(cloud.clone()), cloud, folder)
}

fn op(verb: Verb, machine: &str, spec: Value) -> Operation {
    TestOperation::new(verb, machine).spec(spec).build()
}

fn create(machine: &str, spec: Value) -> Operation {
    op(Verb::Create, machine, spec)
}

#[tokio::test]
async fn a_create_that_comes_again_finds_its_machine() {
    let (sim, cloud, _folder) = sim();
    let first = sim.create(&create("a", json!({}))).await.unwrap();
    let second = sim.create(&create("a", json!({}))).await.unwrap();
    assert_eq!(first, second);
    assert!(first.provider_id.starts_with("sim:///"));
    assert_eq!(cloud.all().unwrap().len(), 1);
}

#[tokio::test]
async fn a_deleted_machine_is_gone_and_deleting_it_again_succeeds() {
    let (sim, cloud, _folder) = sim();
    sim.create(&create("a", json!({}))).await.unwrap();
    sim.create(&create("b", json!({}))).await.unwrap();
    for _ in 0..2 {
        sim.delete(&op(Verb::Delete, "a", json!({}))).await.unwrap();
    }
    let names: Vec<_> = cloud.all().unwrap().into_iter().map(|vm| vm.name).collect();
    assert_eq!(names, ["b"]);
    let status = sim.get_status(&op(Verb::GetStatus, "a", json!({}))).await;
    assert_eq!(status.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_list_shows_the_class_or_the_one_asked_for() {
    let (sim, _cloud, _folder) = sim();
    let made = sim.create(&create("a", json!({}))).await.unwrap();
    sim.create(&create("b", json!({}))).await.unwrap();
    let listed = sim.list(&op(Verb::List, "", json!({}))).await.unwrap();
    assert_eq!(listed.len(), 2);
    let one = TestOperation::new(Verb::List, "").provider_id(&made.provider_id).build();
    let listed = sim.list(&one).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].machine_name, "a");
}

#[tokio::test]
async fn a_full_class_says_when_to_come_back_but_knows_its_own() {
    let (sim, _cloud, _folder) = sim();
    let spec = json!({"capacity": 1});
    sim.create(&create("a", spec.clone())).await.unwrap();
    sim.create(&create("a", spec.clone())).await.unwrap();
    let error = sim.create(&create("b", spec)).await.unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Code::ResourceExhausted, Some(RETRY_FULL)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_do_not_overfill_a_class() {
    let (one, cloud, folder) = sim();
    // Counting them takes a while, and there is one place left.
    let owner = Owner::from(create("m", json!({})).class_ref());
    for number in 0..99 {
        cloud.put(&Vm::new(&format!("old-{number}"), owner.clone())).unwrap();
    }
    // As two processes would, with one folder.
    let sims = [Arc::new(one), Arc::new(Sim::new(Cloud::open(folder.path()).unwrap()))];
    let mut creates = JoinSet::new();
    for number in 0..16 {
        let sim = sims[number % 2].clone();
        let op = create(&format!("m{number}"), json!({"capacity": 100}));
        creates.spawn(async move { sim.create(&op).await });
    }
    let made = creates.join_all().await.iter().filter(|created| created.is_ok()).count();
    assert_eq!((made, cloud.all().unwrap().len()), (1, 100));
}

#[tokio::test]
async fn a_machine_can_need_initialization() {
    let (sim, cloud, _folder) = sim();
    let spec = json!({"requireInitialize": true});
    let error = sim.create(&create("a", spec.clone())).await.unwrap_err();
    assert_eq!(error.code(), Code::Uninitialized);
    let id = &error.machine().expect("it tells the id").provider_id;
    let status = sim.get_status(&op(Verb::GetStatus, "a", spec.clone())).await;
    assert_eq!(status.unwrap_err().code(), Code::Uninitialized);

    let machine = sim.initialize(&op(Verb::Initialize, "a", spec.clone())).await.unwrap();
    assert_eq!(&machine.provider_id, id);
    assert!(sim.create(&create("a", spec.clone())).await.is_ok());
    assert!(sim.get_status(&op(Verb::GetStatus, "a", spec)).await.is_ok());
    assert_eq!(cloud.all().unwrap().len(), 1);
}

#[tokio::test]
async fn ordered_failures_have_no_effect() {
    let (sim, cloud, _folder) = sim();
    let spec = json!({"failures": [{"verb": "create", "code": "UNAVAILABLE", "rate": 1.0}]});
    let error = sim.create(&create("a", spec)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(cloud.all().unwrap().is_empty());
}

#[tokio::test]
async fn a_cancelled_create_leaves_nothing_behind() {
    let (sim, cloud, _folder) = sim();
    for spec in [json!({"createDelay": "1h"}), json!({"hang": ["create"]})] {
        let token = CancellationToken::new();
        token.cancel();
        let op = TestOperation::new(Verb::Create, "a").spec(spec).cancellation(token).build();
        let error = sim.create(&op).await.unwrap_err();
        assert_eq!(error.code(), Code::Cancelled);
    }
    assert!(cloud.all().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_create_cancelled_when_the_vm_is_there_takes_it_away() {
    let (sim, cloud, _folder) = sim();
    let token = CancellationToken::new();
    let op = TestOperation::new(Verb::Create, "a")
        .spec(json!({"createDelay": "10m"}))
        .cancellation(token.clone())
        .build();
    let watcher = async {
        while cloud.all().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        token.cancel();
    };
    let (created, ()) = tokio::join!(sim.create(&op), watcher);
    assert_eq!(created.unwrap_err().code(), Code::Cancelled);
    assert!(cloud.all().unwrap().is_empty());
}

#[tokio::test]
async fn user_data_and_secrets_are_read_and_never_written() {
    let (sim, _cloud, folder) = sim();
    let op = TestOperation::new(Verb::Create, "a")
        .secret([("token", "hunter2"), ("userData", "#cloud-config hunter2")])
        .build();
    sim.create(&op).await.unwrap();
    let file = folder.path().read_dir().unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(r#""userDataBytes": 21"#), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_name_cannot_lead_out_of_the_cloud() {
    let (sim, _cloud, folder) = sim();
    for name in ["../a", "a/b", ".hidden", "a\0", &"x".repeat(300)] {
        let error = sim.create(&create(name, json!({}))).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{name:?}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn volumes_have_the_ids_of_their_handles() {
    let (sim, _cloud, _folder) = sim();
    let specs = [json!({"csi": {"volumeHandle": "vol-1"}}), json!({"nfs": {}})];
    let op = TestOperation::new(Verb::GetVolumeIds, "")
        .volume_specs(specs.map(|spec| spec.to_string()).into())
        .build();
    assert_eq!(sim.get_volume_ids(&op).await.unwrap(), ["vol-1"]);
}
