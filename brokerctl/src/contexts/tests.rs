use super::*;

fn file(text: &str) -> (tempfile::TempDir, File) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("contexts.yaml");
    fs::write(&path, text).expect("a file");
    (folder, File { path })
}

const TWO: &str = "\
current: dev
contexts:
  dev: {address: '127.0.0.1:5000', token: hush-hush}
  prod: {address: broker.example, tokenFile: prod.token}
";

#[test]
fn the_named_context_goes_before_the_current_one() {
    let (_folder, file) = file(TWO);
    let contexts = file.load().expect("a good file");
    assert_eq!(contexts.choose(None).expect("is there").expect("is set").0, "dev");
    assert_eq!(contexts.choose(Some("prod")).expect("is there").expect("is set").0, "prod");
    let unknown = contexts.choose(Some("test")).expect_err("is not there");
    assert_eq!(unknown.to_string(), "error: there is no context \"test\"\n  there are: dev, prod");
    assert_eq!(unknown.exit(), Exit::Usage);
}

#[test]
fn no_file_is_no_contexts() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = File { path: folder.path().join("nothing.yaml") };
    assert_eq!(file.load().expect("nothing is fine"), Contexts::default());
    assert!(file.load().expect("nothing is fine").choose(None).expect("none").is_none());
}

#[test]
fn a_token_is_sent_and_never_printed() {
    let (folder, file) = file(TWO);
    let contexts = file.load().expect("a good file");
    let bearer = |name: &str| file.bearer(name, &contexts.contexts[name]);
    let sent = bearer("dev").expect("a token").expect("is set");
    assert_eq!(sent.to_str().expect("ASCII"), "Bearer hush-hush");
    assert!(!format!("{sent:?} {contexts:?}").contains("hush"), "{sent:?} {contexts:?}");

    // The name of a token's file is relative to the file of contexts.
    assert!(bearer("prod").is_err());
    fs::write(folder.path().join("prod.token"), "quiet\n").expect("a file");
    assert_eq!(bearer("prod").expect("a token").expect("is set"), "Bearer quiet");
    fs::write(folder.path().join("prod.token"), "\n").expect("a file");
    assert!(bearer("prod").is_err());
}

#[test]
fn a_wrong_file_is_told_without_its_tokens() {
    for text in
        ["contexts: {dev: {token: hush}}", "contexts: {dev: {address: a, tokn: hush}}", "- hush"]
    {
        let (_folder, file) = file(text);
        let told = file.load().expect_err("is wrong").to_string();
        assert!(told.contains("contexts.yaml is no file of contexts: "), "{told}");
        assert!(!told.contains("hush"), "{told}");
    }
}

#[test]
fn a_saved_file_is_for_its_owner_alone_and_reads_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let saved = File { path: folder.path().join("new/contexts.yaml") };
    let (_other, two) = file(TWO);
    let contexts = two.load().expect("a good file");
    saved.save(&contexts).expect("is written");
    saved.save(&contexts).expect("is written again");
    let mode = fs::metadata(&saved.path).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!saved.is_open());
    assert_eq!(saved.load().expect("a good file"), contexts);
    let left = fs::read_dir(folder.path().join("new")).expect("a folder").count();
    assert_eq!(left, 1, "drafts are left over");
}
