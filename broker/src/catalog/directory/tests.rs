use std::{os::unix::fs::symlink, time::Duration};

use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::*;

fn class(name: &str, size: u32) -> String {
    format!(
        "apiVersion: a.dev/v1\nkind: XClass\nmetadata:\n  name: {name}\nspec:\n  size: {size}\n"
    )
}

fn secret(name: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{t: {token}}}\n"
    )
}

fn id(name: &str) -> ClassId {
    ClassId {
        api_version: "a.dev/v1".into(),
        kind: "XClass".into(),
        namespace: "default".into(),
        name: name.into(),
    }
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        write(&folder, name, content);
    }
    folder
}

fn write(folder: &TempDir, name: &str, content: &str) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn names(catalog: &Directory) -> Vec<String> {
    catalog.classes().iter().map(|class| class.id.name.to_string()).collect()
}

/// The problems, each with its file's name alone.
fn problems(catalog: &Directory) -> Vec<String> {
    let root = format!("{}/", catalog.root.display());
    catalog.problems().iter().map(|problem| problem.to_string().replace(&root, "")).collect()
}

#[test]
fn a_folder_that_is_not_there_says_what_to_do() {
    let folder = folder(&[("file.yaml", "")]);
    let error = Directory::open(folder.path().join("none")).unwrap_err();
    assert!(matches!(error, Error::NoFolder(_)));
    assert!(error.to_string().contains("does not exist; create it"), "{error}");
    let error = Directory::open(folder.path().join("file.yaml")).unwrap_err();
    assert!(matches!(error, Error::NotAFolder(_)), "{error}");
}

#[test]
fn every_file_of_the_folder_and_below_is_read_except_dot_files() {
    let catalog = folder(&[
        ("a.yaml", &format!("{}---\n{}", class("a1", 1), class("a2", 1))),
        ("deep/er/b.yml", &class("b", 1)),
        (
            "c.json",
            "{\"apiVersion\":\"a.dev/v1\",\"kind\":\"XClass\",\n\t\"metadata\":{\"name\":\"c\"}}",
        ),
        (".hidden.yaml", &class("hidden", 1)),
        (".git/d.yaml", &class("git", 1)),
        ("README.md", "# no"),
        ("empty.yaml", "# nothing\n---\n"),
    ]);
    let catalog = Directory::open(catalog.path()).unwrap();
    assert_eq!(names(&catalog), ["a1", "a2", "b", "c"]);
    assert_eq!(problems(&catalog), [""; 0]);
}

#[test]
fn a_broken_file_is_reported_with_its_line_and_its_last_good_content_stays() {
    let folder = folder(&[("a.yaml", &class("a", 1)), ("b.yaml", &class("b", 1))]);
    let catalog = Directory::open(folder.path()).unwrap();
    let revision = catalog.class(&id("a")).unwrap().revision;

    write(&folder, "a.yaml", "apiVersion: a.dev/v1\nkind: XClass\nmetadata: {name: [\nspec: 1\n");
    write(&folder, "b.yaml", &class("b", 2));
    assert!(catalog.reload());
    assert_eq!(catalog.class(&id("a")).unwrap().revision, revision);
    assert!(catalog.class(&id("b")).unwrap().json.contains("\"size\":2"), "others go on");
    let told = problems(&catalog);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("a.yaml:3: "), "{told:?}");

    assert!(!catalog.reload(), "nothing new");
    assert_eq!(problems(&catalog), told);

    write(&folder, "a.yaml", &class("a", 3));
    assert!(catalog.reload());
    assert_ne!(catalog.class(&id("a")).unwrap().revision, revision);
    assert_eq!(problems(&catalog), [""; 0]);
}

#[test]
fn a_read_that_finds_nothing_wrong_is_noted_with_its_time() {
    let folder = folder(&[("a.yaml", &secret("s", "one")), ("b.yaml", &class("b", 1))]);
    let catalog = Directory::open(folder.path()).unwrap();
    let first = catalog.last_good().expect("it is right from the start");
    assert_eq!(catalog.secrets(), 1);
    catalog.reload();
    let second = catalog.last_good().unwrap();
    assert!(second > first, "the same again is good, too");
    write(&folder, "b.yaml", "kind: [");
    catalog.reload();
    catalog.reload();
    assert_eq!(catalog.last_good(), Some(second));
    write(&folder, "b.yaml", &class("b", 2));
    catalog.reload();
    assert!(catalog.last_good().unwrap() > second);
}

#[test]
fn every_wrong_object_of_a_file_is_named_with_its_line_and_no_secret_is_quoted() {
    let folder = folder(&[(
        "a.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {password: hunter2!}\n\
         ---\nkind: XClass\n---\napiVersion: a.dev/v1\nkind: XClass\nmetadata: {name: UP}\n",
    )]);
    let catalog = Directory::open(folder.path()).unwrap();
    let told = problems(&catalog);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("a.yaml:1: Secret s: data.password is not valid"), "{told:?}");
    assert_eq!(told[1], "a.yaml:6: not a Kubernetes object: apiVersion is missing");
    assert!(told[2].starts_with("a.yaml:8: XClass (without a valid name): "), "{told:?}");
    assert!(!told.concat().contains("hunter2"));
}

#[test]
fn a_syntax_error_beside_a_secret_does_not_quote_it() {
    for text in [
        "stringData:\n  password: hunter2: x\n",
        "stringData:\n  password: \"hunter2\n",
        "stringData:\n  password: !!int hunter2\n",
        "stringData:\n  password: !!binary hunter2!\n",
        "stringData:\n  password: *hunter2\n",
        "stringData:\n  password: 'hunter2' hunter2\n",
        "stringData:\n  password: !!float hunter2\n",
        "stringData:\n  password: !!bool hunter2\n",
    ] {
        let folder = folder(&[("s.yaml", text)]);
        let told = problems(&Directory::open(folder.path()).unwrap());
        assert_eq!(told.len(), 1, "{text:?}");
        assert!(!told[0].contains("hunter2"), "{told:?}");
    }
}

#[test]
fn the_first_path_wins_among_equals_and_both_files_are_named() {
    let folder = folder(&[("b.yaml", &class("same", 2)), ("a/z.yaml", &class("same", 1))]);
    let catalog = Directory::open(folder.path()).unwrap();
    assert!(catalog.class(&id("same")).unwrap().json.contains("\"size\":1"));
    assert_eq!(
        problems(&catalog),
        ["b.yaml:1: XClass default/same is already defined in a/z.yaml:1; that one is in force"]
    );
    fs::remove_file(folder.path().join("a/z.yaml")).unwrap();
    assert!(catalog.reload());
    assert!(catalog.class(&id("same")).unwrap().json.contains("\"size\":2"));
    assert_eq!(problems(&catalog), [""; 0]);
}

#[test]
fn a_class_without_its_secret_is_a_problem_until_the_secret_comes() {
    let folder = folder(&[("a.yaml", &format!("{}  secretRef: {{name: s}}\n", class("a", 1)))]);
    let catalog = Directory::open(folder.path()).unwrap();
    assert_eq!(names(&catalog), ["a"]);
    assert_eq!(
        problems(&catalog),
        ["a.yaml:1: XClass default/a refers to the secret default/s, which does not exist"]
    );
    write(&folder, "s.yaml", &secret("s", "one"));
    catalog.reload();
    assert_eq!(problems(&catalog), [""; 0]);
}

#[test]
fn a_removed_file_removes_its_objects_even_if_it_was_broken() {
    let folder = folder(&[("a.yaml", &class("a", 1)), ("b.yaml", &class("b", 1))]);
    let catalog = Directory::open(folder.path()).unwrap();
    write(&folder, "a.yaml", "{");
    catalog.reload();
    assert_eq!(names(&catalog), ["a", "b"]);
    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    catalog.reload();
    assert_eq!(names(&catalog), ["b"]);
    assert_eq!(problems(&catalog), [""; 0]);
}

#[test]
fn a_folder_that_goes_away_leaves_everything_in_force() {
    let outer = tempfile::tempdir().unwrap();
    let (here, away) = (outer.path().join("here"), outer.path().join("away"));
    fs::create_dir(&here).unwrap();
    fs::write(here.join("a.yaml"), class("a", 1)).unwrap();
    let catalog = Directory::open(&here).unwrap();
    fs::rename(&here, &away).unwrap();
    assert!(catalog.reload());
    assert_eq!(names(&catalog), ["a"]);
    assert_eq!(catalog.problems().len(), 1);
    assert!(!catalog.reload());
    fs::rename(&away, &here).unwrap();
    assert!(catalog.reload());
    assert_eq!(catalog.problems(), []);
}

#[test]
fn too_large_and_strange_files_do_no_harm() {
    let folder = folder(&[("good.yaml", &class("good", 1))]);
    // Sparse: a hundred megabytes that take no space.
    let huge = fs::File::create(folder.path().join("huge.yaml")).unwrap();
    huge.set_len(100 << 20).unwrap();
    fs::write(folder.path().join("binary.yaml"), b"a: 1\nb: \xff\xfe\n").unwrap();
    symlink("nowhere.yaml", folder.path().join("link.yaml")).unwrap();
    symlink(folder.path(), folder.path().join("loop")).unwrap();
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for n in 1..12 {
        let last = n - 1;
        bomb += &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{last}"); 10].join(","));
    }
    write(&folder, "bomb.yaml", &bomb);
    write(&folder, "deep.yaml", &"[".repeat(100_000));
    write(&folder, "deep.json", &"[".repeat(100_000));

    let catalog = Directory::open(folder.path()).unwrap();
    assert_eq!(names(&catalog), ["good"]);
    let told = problems(&catalog);
    assert_eq!(told.len(), 6, "{told:?}");
    for says in [
        "huge.yaml: has more than 8 MiB",
        "binary.yaml:2: this is not UTF-8 text",
        "link.yaml: cannot be read",
        "bomb.yaml:",
        "deep.yaml:1: ",
        "deep.json:1: ",
    ] {
        assert!(told.iter().any(|problem| problem.starts_with(says)), "{says} in {told:?}");
    }
}

#[test]
fn ordinary_kubernetes_yaml_is_read_as_kubectl_reads_it() {
    let folder = folder(&[(
        "all.yaml",
        r#"
apiVersion: v1
kind: List
items:
- apiVersion: machine.sapcloud.io/v1alpha1
  kind: MachineClass
  metadata:
    name: "123"
    labels: &labels {worker.gardener.cloud/pool: pool-1, empty: ""}
    annotations: *labels
  provider: AWS
  providerSpec:
    version: "1.10"
    mode: 0644
    country: no
    date: 2020-01-01
    yes: true
    nothing: ~
    script: |
      #!/bin/sh
      echo "a: b"
    folded: >-
      one
      two
    blockDevices: [{ebs: {volumeSize: 50}}]
  secretRef: {name: s}
- apiVersion: v1
  kind: Secret
  metadata: {name: s}
  type: Opaque
  data:
    binary: AAEC/w==
    wrapped: |
      b25l
      dHdv
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: not-a-class}
spec: {}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: not-a-machine-class}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
"#,
    )]);
    let catalog = Directory::open(folder.path()).unwrap();
    assert_eq!(problems(&catalog), [""; 0]);
    assert_eq!(names(&catalog), ["123"]);
    let class: serde_json::Value = serde_json::from_str(&catalog.classes()[0].json).unwrap();
    assert_eq!(
        class["providerSpec"],
        serde_json::json!({
            "version": "1.10", "mode": 420, "country": "no", "date": "2020-01-01", "yes": true,
            "nothing": null, "script": "#!/bin/sh\necho \"a: b\"\n", "folded": "one two",
            "blockDevices": [{"ebs": {"volumeSize": 50}}],
        })
    );
    assert_eq!(class["metadata"]["annotations"]["worker.gardener.cloud/pool"], "pool-1");
    let secret = catalog.secret(&SecretName::new("default", "s")).unwrap();
    let secret: serde_json::Value = serde_json::from_str(&secret.to_json()).unwrap();
    assert_eq!(secret["data"], serde_json::json!({"binary": "AAEC/w==", "wrapped": "b25ldHdv"}));
}

#[test]
fn the_log_says_what_is_in_force_and_what_was_taken_in() {
    let folder = folder(&[("a.yaml", &class("a", 1))]);
    let catalog = Directory::open(folder.path()).unwrap();
    let reload = || logged(|| assert!(catalog.reload()));

    write(&folder, "a.yaml", "{");
    let log = reload();
    assert!(log.contains("; what the file said before stays in force"), "{log}");
    assert!(!log.contains("reloaded"), "nothing was taken in: {log}");

    write(&folder, "new.yaml", "{");
    let log = reload();
    assert!(log.contains("; nothing of this file is in force"), "{log}");
    assert!(!log.contains("reloaded") && !log.contains("before"), "{log}");

    write(&folder, "a.yaml", &class("a", 2));
    let log = reload();
    assert!(log.contains("a.yaml is in order again") && log.contains("catalog reloaded"), "{log}");
}

#[test]
fn of_two_equals_the_log_blames_the_one_that_is_not_in_force() {
    let folder = folder(&[("b.yaml", &class("same", 2))]);
    let catalog = Directory::open(folder.path()).unwrap();
    // The newcomer comes first in the order of paths.
    write(&folder, "a.yaml", &class("same", 1));
    let log = logged(|| assert!(catalog.reload()));
    let error = log.lines().find(|line| line.contains("ERROR")).expect("an error");
    let error = error.replace(&format!("{}/", folder.path().display()), "");
    assert!(error.contains("catalog: b.yaml:1: "), "{error}");
    assert!(error.contains("a.yaml:1; that one is in force"), "{error}");
    assert!(catalog.class(&id("same")).unwrap().json.contains("\"size\":1"));

    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    let log = logged(|| assert!(catalog.reload()));
    assert!(log.contains("catalog: this is over: ") && log.contains("reloaded"), "{log}");
}

/// What is logged meanwhile.
fn logged(act: impl FnOnce()) -> String {
    let log = Arc::new(Mutex::new(Vec::new()));
    let writer = Log(log.clone());
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, act);
    String::from_utf8(log.lock().unwrap().clone()).unwrap()
}

#[derive(Clone)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A directory that is being watched, and the end of it.
struct Watched {
    catalog: Arc<Directory>,
    shutdown: CancellationToken,
    task: JoinSet<()>,
}

impl Watched {
    fn start(folder: &Path) -> Self {
        let catalog = Directory::open(folder).unwrap();
        let shutdown = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(catalog.clone().watch(shutdown.clone()));
        Self { catalog, shutdown, task }
    }

    async fn until(&self, what: &str, condition: impl Fn(&Directory) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition(&self.catalog) {
            assert!(Instant::now() < deadline, "in vain: {what}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task.join_all()).await.unwrap();
    }
}

#[tokio::test]
async fn an_edit_is_seen_without_a_restart() {
    let folder = folder(&[("a.yaml", &class("a", 1)), ("s.yaml", &secret("s", "one"))]);
    let watched = Watched::start(folder.path());
    let revision = watched.catalog.class(&id("a")).unwrap().revision;
    let mut changes = watched.catalog.changes();

    write(&folder, "a.yaml", &class("a", 2));
    watched
        .until("new revision", |c| c.class(&id("a")).is_some_and(|c| c.revision != revision))
        .await;
    write(&folder, "new/folder/b.yaml", &class("b", 1));
    watched.until("new file in a new folder", |c| c.class(&id("b")).is_some()).await;
    write(&folder, "s.yaml", &secret("s", "two"));
    let changed = tokio::time::timeout(Duration::from_secs(20), changes.recv()).await;
    assert_eq!(changed.unwrap().unwrap(), SecretName::new("default", "s"));
    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    watched.until("removed file", |c| c.class(&id("a")).is_none()).await;
    watched.stop().await;
}

#[tokio::test]
async fn the_swap_of_a_mounted_config_map_is_seen() {
    // As the kubelet does it: ..data points to a folder with the time in its name, the visible
    // files point through ..data, and an update renames a new link over ..data.
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let version = |name: &str, size| {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("a.yaml"), class("a", size)).unwrap();
    };
    version("..2026_01_01", 1);
    symlink("..2026_01_01", root.join("..data")).unwrap();
    symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
    let watched = Watched::start(root);
    assert_eq!(names(&watched.catalog), ["a"]);

    version("..2026_01_02", 2);
    symlink("..2026_01_02", root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    fs::remove_dir_all(root.join("..2026_01_01")).unwrap();
    watched
        .until("swap", |c| c.class(&id("a")).is_some_and(|c| c.json.contains("\"size\":2")))
        .await;
    assert_eq!(problems(&watched.catalog), [""; 0]);
    watched.stop().await;
}

#[tokio::test]
async fn a_folder_at_rest_is_left_at_rest() {
    let folder = folder(&[("a.yaml", &class("a", 1))]);
    let nudge = Arc::new(tokio::sync::Notify::new());
    let watcher = super::watch::start(folder.path(), nudge.clone()).unwrap();
    Directory::open(folder.path()).unwrap().reload();
    let woken = tokio::time::timeout(Duration::from_millis(300), nudge.notified()).await;
    assert!(woken.is_err(), "our own reading woke the watch");
    drop(watcher);
}
