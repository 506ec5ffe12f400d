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
            let file = self.folder.path().join(format!("classes/{number}.yaml"));
            fs::write(file, yaml).expect("a file");
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
                let driver = self.program(&example(name));
                self.others.push(driver);
            }
            ["cargo", "run", "-qp", "brokerctl", "--", args @ ..] => {
                // The one thing a person does and a script forgets: look whether it is there.
                let listed = until(|| {
                    let drivers = self.brokerctl(&["drivers", "--no-headers"]);
                    (!drivers.stdout.is_empty()).then_some(())
                });
                assert!(listed.is_some(), "no driver came");
                let output = self.brokerctl(args);
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
                other => real.push(other.to_owned()),
            }
        }
        let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let real: Vec<&str> = real.iter().map(String::as_str).chain(free).collect();
        self.broker = Some(BrokerProcess::start(&real));
    }

    fn program(&self, path: &Path) -> Process {
        let broker = self.broker.as_ref().expect("a broker was started before");
        Process::start(Command::new(path).env("BROKER_ADDRESS", broker.drivers.to_string()))
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
fn the_page_on_drivers_shows_the_example_as_it_is() {
    let example = read("driver-client/examples/minimal.rs");
    assert!(read("docs/writing-a-driver.md").contains(example.trim()));
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
