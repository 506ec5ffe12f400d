//! The real binaries as processes, to be killed.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use broker_proto::v1::{
    Driver, ListDriversRequest, ListOperationsRequest, Operation, registry_client::RegistryClient,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::transport::{Channel, Endpoint};

/// How long anything here may take on a busy machine before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many lines of a process's output are kept.
const KEPT_LINES: usize = 10_000;

/// Where a binary of this workspace is, built as this program was if need be: `cargo test -p
/// broker-tests` alone would not have built the other crates' binaries.
pub fn binary(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let packages = ["-p", "broker", "-p", "brokerctl", "-p", "sim-driver"];
        let mut cargo = Command::new(env!("CARGO"));
        // What cargo told this test of itself. The build script of ring runs again when that changes,
        // and then so does the compiler for all that depends on ring: there and back with every run.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(&*name);
            }
        }
        let built = cargo
            .args(["build", "--quiet", "--bins"])
            .args(packages)
            .args((!cfg!(debug_assertions)).then_some("--release"))
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the binaries must build");
        let program = std::env::current_exe().expect("a program has a path");
        // target/debug/deps/test, or target/debug/program
        let folder = program.parent().expect("programs are built below target");
        let is_test = folder.ends_with("deps");
        if is_test { folder.parent().expect("it has a name") } else { folder }.to_owned()
    });
    folder.join(name)
}

/// A process of ours. Dropping it kills it.
pub struct Process {
    child: Child,
    lines: Lines,
}

type Lines = Arc<Mutex<VecDeque<String>>>;

impl Process {
    /// Starts a program; what it prints can be waited for.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let lines = Lines::default();
        let stdout = child.stdout.take().expect("piped");
        let stderr = child.stderr.take().expect("piped");
        collect(stdout, Arc::clone(&lines));
        collect(stderr, Arc::clone(&lines));
        Self { child, lines }
    }

    /// Starts a program within a limit, as the shell's `ulimit` takes it. A file that would get too
    /// large is an error for it, as it is on a full disk, and not its end.
    pub fn start_within(limit: &str, command: &Command) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ && ulimit $0 && exec \"$@\"", limit]);
        Self::start(shell.arg(command.get_program()).args(command.get_args()))
    }

    /// Lets it write to files again, whatever limit it was started within.
    pub fn has_space(&self) {
        let pid = Pid::from_raw(self.id().try_into().expect("a number")).expect("not zero");
        let (resource, none) = (Resource::Fsize, Rlimit { current: None, maximum: None });
        prlimit(Some(pid), resource, none).expect("it is ours");
    }

    /// Waits for a line that `wanted` makes something of.
    pub fn line<T>(&self, what: &str, wanted: impl Fn(&str) -> Option<T>) -> T {
        let found = until(|| self.lines.lock().expect("no panic").iter().find_map(|l| wanted(l)));
        found.unwrap_or_else(|| panic!("no line with {what} in:\n{}", self.output()))
    }

    pub fn output(&self) -> String {
        self.lines.lock().expect("no panic").make_contiguous().join("\n")
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and no word more.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for its end; `None` if it does not come.
    pub fn end(&mut self) -> Option<std::process::ExitStatus> {
        until(|| self.child.try_wait().expect("it is ours"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn collect(stream: impl std::io::Read + Send + 'static, lines: Lines) {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut lines = lines.lock().expect("no panic");
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    });
}

/// Looks again and again until there is something, or patience is over.
pub fn until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= give_up {
            return found;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A `machine-broker` process.
pub struct BrokerProcess {
    pub process: Process,
    pub drivers: SocketAddr,
    pub admin: SocketAddr,
}

impl BrokerProcess {
    /// Starts `machine-broker ARGS` and waits until it listens.
    pub fn start(args: &[&str]) -> Self {
        Self::of(Process::start(Command::new(binary("machine-broker")).args(args)))
    }

    /// The same, where the system lets it open no more than so many files.
    pub fn start_with_files(files: usize, args: &[&str]) -> Self {
        Self::start_within(&format!("-n {files}"), args)
    }

    /// The same within a limit, as the shell's `ulimit` takes it.
    pub fn start_within(limit: &str, args: &[&str]) -> Self {
        let mut command = Command::new(binary("machine-broker"));
        Self::of(Process::start_within(limit, command.args(args)))
    }

    fn of(process: Process) -> Self {
        let (drivers, admin) = process.line("the addresses", |line| {
            let field = |name: &str| {
                let (_, rest) = line.split_once(&format!(" {name}="))?;
                rest.split_whitespace().next()?.parse().ok()
            };
            line.contains("listening").then(|| Some((field("drivers")?, field("admin")?)))?
        });
        Self { process, drivers, admin }
    }

    pub async fn channel(&self) -> Channel {
        channel(self.drivers).await
    }

    /// What a metric of `/metrics` is at the moment, by its name with its labels.
    pub async fn metric(&self, name: &str) -> Option<u64> {
        let mut admin = TcpStream::connect(self.admin).await.ok()?;
        admin.write_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n").await.ok()?;
        let mut text = String::new();
        admin.read_to_string(&mut text).await.ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.parse().ok()
    }

    /// Waits until a metric is `right`.
    pub async fn until_metric(&self, name: &str, right: impl Fn(u64) -> bool) -> u64 {
        let seen = self.watch_metric(name, right).await;
        seen.unwrap_or_else(|value| panic!("{name} was never right, but {value:?}"))
    }

    /// Whether a metric comes to be `right`, as long as patience lasts.
    pub async fn comes_to(&self, name: &str, right: impl Fn(u64) -> bool) -> bool {
        self.watch_metric(name, right).await.is_ok()
    }

    async fn watch_metric(
        &self,
        name: &str,
        right: impl Fn(u64) -> bool,
    ) -> Result<u64, Option<u64>> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let value = self.metric(name).await;
            match value {
                Some(value) if right(value) => return Ok(value),
                _ if Instant::now() >= give_up => return Err(value),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Its drivers, as the registry lists them.
    pub async fn listed(&self) -> Vec<Driver> {
        let mut registry = RegistryClient::new(self.channel().await);
        let listed = registry.list_drivers(ListDriversRequest::default()).await;
        listed.map(|listed| listed.into_inner().drivers).unwrap_or_default()
    }

    /// Waits until its drivers are `right`.
    pub async fn until_listed(&self, what: &str, right: impl Fn(&[Driver]) -> bool) -> Vec<Driver> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let drivers = self.listed().await;
            if right(&drivers) {
                return drivers;
            }
            assert!(Instant::now() < give_up, "the drivers never were {what}, but {drivers:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Operations that run or wait.
    pub async fn running(&self) -> Vec<Operation> {
        let mut registry = RegistryClient::new(self.channel().await);
        let listed = registry.list_operations(ListOperationsRequest::default()).await;
        let operations = listed.expect("operations are listed").into_inner().operations;
        operations.into_iter().filter(|operation| !operation.finished).collect()
    }

    /// The memory that it has, in KiB.
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    pub fn threads(&self) -> u64 {
        self.status("Threads:")
    }

    pub fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(path).expect("it lives").count()
    }

    fn status(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

/// A connection that comes up by itself whenever the broker does.
pub async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect_timeout(Duration::from_secs(1)).connect_lazy()
}
