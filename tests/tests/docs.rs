//! Docs are run, not believed: every command of README and docs, in order, in an empty folder.
//!
//! A `console` block is commands (`$ …`) and what they print. Commands that serve go on in the
//! background, on free ports. For all others the printed text is compared, word by word, where a word
//! with a digit in it stands for any such word; tables have to have the same columns, each of them in
//! one line. A command without text prints nothing, but for remarks on stderr.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use broker_tests::process::{BrokerProcess, Process, binary, until};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).expect("the document is there")
}

/// The blocks of one language, in order.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == format!("```{language}") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push(block.join("\n"));
        }
    }
    found
}

/// Each command with the lines that it is said to print.
fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in blocks(text, "console").iter().flat_map(|block| block.lines()) {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => *output += &format!("{line}\n"),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    commands
}

/// A reader who types what a document says.
struct Reader {
    folder: tempfile::TempDir,
    broker: Option<BrokerProcess>,
    others: Vec<Process>,
}

impl Reader {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("classes")).expect("a folder");
        Self { folder, broker: None, others: Vec::new() }
    }

    fn follow(&mut self, document: &str) {
        let text = read(document);
        for (number, yaml) in blocks(&text, "yaml").iter().enumerate() {
            let file = match yaml.split(':').next() {
                Some("rules") => "policy.yaml".to_owned(),
                Some("tokens") => "tokens.yaml".to_owned(),
                _ => format!("classes/{number}.yaml"),
            };
            fs::write(self.folder.path().join(file), yaml).expect("a file");
        }
        for (command, output) in commands(&text) {
            self.type_in(&command, &output);
        }
    }

    fn type_in(&mut self, command: &str, expected: &str) {
        let words = shell_words::split(command).expect("a command");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            // This test is a part of it.
            ["cargo", "test", "--workspace"] => {}
            ["machine-broker", "certs", args @ ..] => {
                let mut certs = Command::new(binary("machine-broker"));
                let made = certs.arg("certs").args(args).current_dir(self.folder.path()).output();
                let made = made.expect("it runs");
                assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            }
            ["machine-broker", "policy", args @ ..] => {
                let mut check = Command::new(binary("machine-broker"));
                let check = check.arg("policy").args(args).current_dir(self.folder.path());
                let answer = check.output().expect("it runs");
                let complaint = String::from_utf8_lossy(&answer.stderr);
                assert_eq!(String::from_utf8_lossy(&answer.stdout), expected, "{complaint}");
            }
            ["machine-broker", "tokens", "new", name, ">", file] => {
                let mut make = Command::new(binary("machine-broker"));
                let made = make.args(["tokens", "new", name]).output().expect("it runs");
                assert!(String::from_utf8_lossy(&made.stderr).contains(&format!("name: {name}")));
                fs::write(self.folder.path().join(file), made.stdout).expect("a file");
            }
            ["sim-driver", args @ ..] => {
                let args = args.iter().map(|arg| self.real(arg));
                let cloud = self.folder.path().join("cloud");
                let mut driver = Command::new(binary("sim-driver"));
                let driver = self.program(driver.args(args).arg("--cloud").arg(cloud));
                self.others.push(driver);
            }
            ["cargo", "run", "--", args @ ..] | ["machine-broker", args @ ..] => {
                self.serve(args);
                let broker = self.broker.as_ref().expect("just started");
                for line in expected.lines().filter(|line| !line.is_empty()) {
                    let alike =
                        |printed: &str| same(line, printed) && columns(line) == columns(printed);
                    broker.process.line(line, |printed| alike(printed).then_some(()));
                }
            }
            ["cargo", "run", "-qp", "driver-client", "--example", name] => {
                let driver = self.program(&mut Command::new(example(name)));
                self.others.push(driver);
            }
            ["cargo", "run", "-qp", "brokerctl", "--", args @ ..] => {
                // The one thing a person does and a script forgets: look whether it is there.
                let args: Vec<String> = args.iter().map(|arg| self.real(arg)).collect();
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                // With the credentials that come before the command.
                let globals = args.chunks(2).take_while(|pair| pair[0].starts_with("--"));
                let look = ["drivers", "--no-headers"];
                let look: Vec<&str> = globals.flatten().copied().chain(look).collect();
                let listed = until(|| {
                    let drivers = self.brokerctl(&look);
                    (!drivers.stdout.is_empty()).then_some(())
                });
                assert!(listed.is_some(), "no driver came");
                let output = self.brokerctl(&args);
                let printed = String::from_utf8_lossy(&output.stdout);
                let complaint = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{command}\n{complaint}");
                let (expected, printed) = (expected.trim_end(), printed.trim_end());
                let lines = expected.lines().count();
                assert_eq!(printed.lines().count(), lines, "{command}\n{printed}");
                let header = expected.lines().next().unwrap_or_default();
                let is_table = header.len() > 1 && header == header.to_uppercase();
                for (said, printed) in expected.lines().zip(printed.lines()) {
                    assert!(same(said, printed), "{command}\n said: {said}\nprints: {printed}");
                    let in_line = !is_table || columns(said) == columns(header);
                    assert!(in_line, "{command}\nnot in line: {said}");
                    assert_eq!(columns(said).len(), columns(printed).len(), "{command}\n{printed}");
                }
            }
            _ => panic!("no test knows how to run: {command}"),
        }
    }

    fn serve(&mut self, args: &[&str]) {
        let folder = self.folder.path();
        let mut real: Vec<String> = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                // Free ports are given below.
                "--listen" | "--admin" => drop(args.next()),
                "--driver-command" => {
                    let program = args.next().expect("a command").replace("sim-driver", "{sim}");
                    let program =
                        program.replace("{sim}", binary("sim-driver").to_str().expect("UTF-8"));
                    let cloud = format!("--cloud {}", folder.join("cloud").display());
                    real.extend([(*arg).to_owned(), program.replace("--cloud cloud", &cloud)]);
                }
                "dir:classes" => real.push(format!("dir:{}", folder.join("classes").display())),
                other => real.push(self.real(other)),
            }
        }
        let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let real: Vec<&str> = real.iter().map(String::as_str).chain(free).collect();
        self.broker = Some(BrokerProcess::start(&real));
    }

    /// A word of a command, where one that names a certificate is in the reader's folder.
    fn real(&self, word: &str) -> String {
        match word.starts_with("certs/") {
            true => self.folder.path().join(word).to_str().expect("UTF-8").to_owned(),
            false => word.to_owned(),
        }
    }

    fn program(&self, program: &mut Command) -> Process {
        let broker = self.broker.as_ref().expect("a broker was started before");
        Process::start(program.env("BROKER_ADDRESS", broker.drivers.to_string()))
    }

    fn brokerctl(&self, args: &[&str]) -> Output {
        let broker = self.broker.as_ref().expect("a broker was started before");
        Command::new(binary("brokerctl"))
            .args(args)
            .env("BROKER_ADDRESS", broker.drivers.to_string())
            .output()
            .expect("brokerctl runs")
    }
}

fn example(name: &str) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "driver-client", "--example", name])
        .current_dir(ROOT)
        .status();
    assert!(built.expect("cargo runs").success());
    binary("examples").join(name)
}

/// Where each cell of a table's line begins: after two blanks or more.
fn columns(line: &str) -> Vec<usize> {
    let begins = |at: usize| line[at..].starts_with(|c: char| c != ' ');
    let starts = line.char_indices().map(|(at, _)| at);
    starts.filter(|at| begins(*at) && (*at == 0 || line[..*at].ends_with("  "))).collect()
}

fn same(said: &str, printed: &str) -> bool {
    let words = |line: &str| -> Vec<String> {
        let plain = |word: &str| !word.contains(|c: char| c.is_ascii_digit());
        line.split_whitespace()
            .map(|word| if plain(word) { word.to_owned() } else { "#".to_owned() })
            .collect()
    };
    words(said) == words(printed)
}

#[test]
fn what_the_readme_says_to_type_does_what_it_says() {
    Reader::new().follow("README.md");
}

#[test]
fn what_the_page_on_drivers_says_to_type_does_what_it_says() {
    Reader::new().follow("docs/writing-a-driver.md");
}

#[test]
fn what_the_page_on_running_says_to_type_does_what_it_says() {
    Reader::new().follow("docs/running.md");
}

#[test]
fn what_the_page_on_operating_says_to_type_does_what_it_says() {
    Reader::new().follow("docs/operating.md");
}

#[test]
fn what_the_page_on_security_says_to_type_does_what_it_says() {
    Reader::new().follow("docs/security.md");
}

#[test]
fn the_page_on_drivers_shows_the_example_as_it_is() {
    let example = read("driver-client/examples/minimal.rs");
    assert!(read("docs/writing-a-driver.md").contains(example.trim()));
}

/// Lines without what is around them, so that a method can be shown without its `impl`.
fn plain(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn all_rust_of_the_page_on_drivers_is_from_an_example_that_compiles() {
    let examples = ["minimal", "typed", "traced"]
        .map(|name| read(&format!("driver-client/examples/{name}.rs")));
    let examples = examples.each_ref().map(|example| plain(example));
    let blocks = blocks(&read("docs/writing-a-driver.md"), "rust");
    assert!(blocks.len() > 1);
    for paragraph in blocks.iter().flat_map(|block| block.split("\n\n")) {
        let lines = plain(paragraph);
        let shown = |example: &Vec<&str>| example.windows(lines.len()).any(|part| part == lines);
        assert!(examples.iter().any(shown), "no example has\n{paragraph}");
    }
}

#[test]
fn every_reason_of_an_error_is_on_the_page_on_running() {
    let page = read("docs/running.md");
    let source = read("broker/src/grpc/status.rs");
    let quoted = source.split('"').skip(1).step_by(2);
    let reason =
        |text: &&str| text.len() > 3 && text.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let missing: Vec<&str> =
        quoted.filter(reason).filter(|r| !page.contains(&format!("`{r}`"))).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn every_flag_of_the_page_on_running_exists() {
    let help = Command::new(binary("machine-broker")).args(["serve", "--help"]).output();
    let help = String::from_utf8(help.expect("it runs").stdout).expect("UTF-8");
    let page = read("docs/running.md");
    for flag in page.split(['`', ' ', '\'']).filter(|word| word.starts_with("--") && word.len() > 3)
    {
        let flag = flag.split('=').next().expect("split gives one");
        // Those of a driver program in an example.
        if !["--cloud", "--help"].contains(&flag) {
            assert!(help.contains(flag), "{flag} is not in --help");
        }
    }
}

/// Everything of the form `room::…::test` in backticks, and `file::*` for all tests of a file.
#[test]
fn every_claim_of_the_threat_model_names_a_test_that_is_there() {
    let text = read("docs/threat-model.md");
    let sources = [sources(Path::new(ROOT).join("broker")), sources(Path::new(ROOT).join("tests"))];
    let claims: Vec<&str> = text.split('`').filter(|word| word.contains("::")).collect();
    assert!(claims.len() > 20, "{claims:?}");
    for claim in claims.iter().filter(|claim| **claim != "file::test") {
        let (room, test) = claim.rsplit_once("::").expect("two parts");
        let found = match test {
            "*" => {
                Path::new(ROOT).join(format!("tests/tests/{room}.rs")).is_file() || {
                    let file = room.trim_end_matches("::tests").replace("::", "/");
                    Path::new(ROOT).join(format!("broker/src/{file}.rs")).is_file()
                }
            }
            test => sources.concat().iter().any(|text| text.contains(&format!("fn {test}("))),
        };
        assert!(found, "there is no test {claim}");
    }
}

/// The texts of all Rust files below a folder.
fn sources(folder: PathBuf) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            texts.extend(sources(path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            texts.push(fs::read_to_string(path).expect("a text"));
        }
    }
    texts
}
