//! The page on reliability names tests that exist, for every fault of the list.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

const FAULTS: usize = 35;

/// The text of every Rust file below `folder`, by its name; a folder's `tests.rs` by the folder's.
fn sources(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let stem =
                |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
            let name = match stem(&path).as_str() {
                "tests" => stem(path.parent().expect("a folder")),
                name => name.to_owned(),
            };
            found.entry(name).or_default().push_str(&fs::read_to_string(path).expect("a file"));
        }
    }
}

#[test]
fn every_fault_has_a_line_and_every_test_that_is_named_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources_by_name = BTreeMap::new();
    for folder in ["broker/src", "driver-client/src", "tests/tests", "tests/chaos/tests"] {
        sources(&root.join(folder), &mut sources_by_name);
    }
    let page = fs::read_to_string(root.join("docs/reliability.md")).expect("the page");
    let lines = page.lines().filter(|line| line.starts_with("| "));
    let numbered: Vec<usize> =
        lines.filter_map(|line| line.split('|').nth(1)?.trim().parse().ok()).collect();
    for fault in 1..=FAULTS {
        assert!(numbered.contains(&fault), "fault {fault} has no line");
    }
    // Between backticks is every second part.
    let mut named = 0;
    for (file, test) in page.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::"))
    {
        named += 1;
        let text = sources_by_name.get(file).unwrap_or_else(|| panic!("there is no {file}"));
        assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
    }
    assert!(named > FAULTS, "only {named} tests are named");
}

/// `cargo xtask mutants` takes minutes; that its patches fit the code is seen at once.
#[test]
fn every_mutation_applies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let patches = fs::read_dir(root.join("tests/mutations")).expect("a folder");
    let patches: Vec<_> = patches.map(|entry| entry.expect("an entry").path()).collect();
    assert!(patches.len() > 5, "{patches:?}");
    for patch in patches {
        let mut check = Command::new("git");
        let check = check.args(["apply", "--check"]).arg(&patch).current_dir(&root);
        let checked = check.output().expect("git runs");
        let complaint = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{}: {complaint}", patch.display());
    }
}
