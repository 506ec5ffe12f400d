//! `machine-broker certs init`: a CA and certificates to try TLS with.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use broker_tls::issue::{Authority, Subject};

const VALID: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// In every file, and in the name of the CA, where it is seen wherever a certificate is looked at.
const MARK: &str = "NOT FOR PRODUCTION";
const DOMAIN: &str = "spiffe://machine-broker.dev";
/// Those who dial in, beside the broker itself.
const CLIENTS: [&str; 3] = ["driver", "controller", "operator"];
const PRIVATE_FILE: u32 = 0o600;
const PUBLIC_FILE: u32 = 0o644;
const PRIVATE_FOLDER: u32 = 0o700;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a CA, and certificates of a broker, a driver, a controller and an operator, for trying
    /// things out. They are good for 30 days and not for production
    Init(Init),
}

#[derive(Debug, clap::Args)]
struct Init {
    /// The folder for them; made if it is not there
    dir: PathBuf,

    /// Another name or address of the broker, beside localhost, 127.0.0.1 and ::1; may be given
    /// several times
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,

    /// Overwrite what is there
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let Command::Init(init) = args.command;
    init.run()?;
    println!("{}", advice(&init.dir));
    Ok(())
}

impl Init {
    fn run(&self) -> anyhow::Result<()> {
        let files = self.make().context("cannot make the certificates")?;
        let dir = self.dir.display();
        let there: Vec<&str> = files
            .iter()
            .map(|file| file.name.as_str())
            .filter(|name| self.dir.join(name).symlink_metadata().is_ok())
            .collect();
        if !there.is_empty() && !self.force {
            bail!("{dir} has {} already; --force overwrites them", there.join(", "));
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_FOLDER)
            .create(&self.dir)
            .with_context(|| format!("cannot make the folder {dir}"))?;
        for file in files {
            let path = self.dir.join(&file.name);
            file.write(&path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    fn make(&self) -> Result<Vec<File>, broker_tls::issue::Error> {
        let authority =
            Authority::new(&Subject::new(format!("Machine Broker test CA, {MARK}"), VALID))?;
        let mut files = vec![
            File::public("ca.crt", &authority.certificate()),
            File::private("ca.key", &authority.key()),
            File { name: "README.txt".to_owned(), content: readme(), mode: PUBLIC_FILE },
            File { name: "policy.yaml".to_owned(), content: policy(), mode: PUBLIC_FILE },
        ];
        let mut issue = |name: &str, subject: Subject| -> Result<(), broker_tls::issue::Error> {
            let issued = authority.issue(&subject.uri(format!("{DOMAIN}/{name}")))?;
            files.push(File::public(&format!("{name}.crt"), &issued.certificate));
            files.push(File::private(&format!("{name}.key"), &issued.key));
            Ok(())
        };
        let broker = Subject::new("broker", VALID);
        let hosts = ["localhost", "127.0.0.1", "::1"].into_iter();
        let hosts = hosts.chain(self.name.iter().map(String::as_str));
        issue("broker", hosts.fold(broker, Subject::host))?;
        for client in CLIENTS {
            issue(client, Subject::new(client, VALID))?;
        }
        Ok(files)
    }
}

struct File {
    name: String,
    content: String,
    mode: u32,
}

impl File {
    fn public(name: &str, pem: &str) -> Self {
        Self { name: name.to_owned(), content: marked(pem), mode: PUBLIC_FILE }
    }

    fn private(name: &str, pem: &str) -> Self {
        Self { mode: PRIVATE_FILE, ..Self::public(name, pem) }
    }

    /// Under another name first, so that a broker that reads it meanwhile never sees half of it.
    fn write(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("new");
        // What a run that was killed left behind.
        fs::remove_file(&draft).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(self.mode).open(&draft)?;
        file.write_all(self.content.as_bytes())?;
        fs::rename(&draft, path)
    }
}

/// Readers of PEM skip what is before the first section.
fn marked(pem: &str) -> String {
    format!("# Made by `machine-broker certs init` to try things out: {MARK}.\n{pem}")
}

fn readme() -> String {
    format!(
        "{MARK}\n\n\
         Made by `machine-broker certs init` to try TLS. The key of this CA lies beside its\n\
         certificates, unprotected: whoever reads ca.key can be anybody.\n\n\
         ca.crt, ca.key           the CA: --ca of clients, --client-ca of the broker\n\
         broker.crt, broker.key   --tls-cert and --tls-key of the broker\n\
         driver.*, controller.*,\n\
         operator.*               --cert and --key of those who dial in; they are known by\n\
         \x20                        {DOMAIN}/driver and so on\n\
         policy.yaml              --policy of the broker: what each of them may do\n\n\
         All are good for 30 days. Run it again with --force for new ones.\n"
    )
}

/// What each of them may do.
fn policy() -> String {
    format!(
        "# Who may do what, by `machine-broker certs init`: {MARK}.\n\
         # Nothing is allowed that no rule names. The broker reads this again when it changes.\n\
         rules:\n\
         - who: {DOMAIN}/driver\n  driver: {{kinds: [\"*\"]}}\n\
         - who: {DOMAIN}/controller\n  controller: {{kinds: [\"*\"]}}\n\
         - who: {DOMAIN}/operator\n  operator: steer\n\
         # Driver programs that the broker starts itself (--driver-command).\n\
         - who: child:*\n  driver: {{kinds: [\"*\"]}}\n"
    )
}

/// What to type next.
fn advice(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "\
A CA and certificates for trying things out are in {dir}. They are good for 30 days. {MARK}.

Serve with them:

  machine-broker serve --catalog dir:classes --tls-cert {dir}/broker.crt --tls-key {dir}/broker.key \\
    --client-ca {dir}/ca.crt --policy {dir}/policy.yaml

Dial in, as a driver and as an operator:

  sim-driver --ca {dir}/ca.crt --cert {dir}/driver.crt --key {dir}/driver.key
  brokerctl --ca {dir}/ca.crt --cert {dir}/operator.crt --key {dir}/operator.key drivers"
    )
}
