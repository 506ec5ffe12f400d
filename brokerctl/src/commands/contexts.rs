//! `brokerctl contexts`: brokers by name, so that nobody types an address twice.

use std::path::{self, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;

use crate::{
    Exit, Failure,
    args::{Address, Credentials},
    contexts::{Context, Contexts as Known, File},
    output::{Look, Output, View},
    table::{self, Column},
};

const HELP: &str = "\
Examples:
  brokerctl contexts set prod --address broker.example:5000 --ca ca.crt --cert me.crt --key me.key
  brokerctl contexts use prod
  brokerctl --context dev drivers

They are kept in ~/.config/brokerctl/contexts.yaml, or where BROKERCTL_CONFIG says:
  current: dev
  contexts:
    dev: {address: 127.0.0.1:5000}
    prod: {address: broker.example:5000, ca: ca.crt, cert: me.crt, key: me.key}
    test: {address: test.example:5000, ca: ca.crt, serverName: broker, tokenFile: token}
In place of tokenFile there may be a token. None of them goes to an address that --broker names.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Contexts {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the contexts
    List,
    /// Make a context the current one
    Use(Name),
    /// Make a context, or replace one as a whole, with --ca, --cert, --key, --server-name and
    /// --token-file as they are given. The first one becomes the current one
    Set(Set),
    /// Forget a context
    Delete(Name),
}

#[derive(Debug, clap::Args)]
struct Name {
    /// The name of the context
    name: String,
}

#[derive(Debug, clap::Args)]
struct Set {
    /// The name of the context
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,

    /// Where its broker listens, as HOST[:PORT] or with https://
    #[arg(long, value_name = "ADDR")]
    address: Address,
}

impl Contexts {
    pub(crate) fn run(
        self,
        file: File,
        given: Credentials,
        output: &mut Output<'_, '_>,
    ) -> Result<(), Failure> {
        let known = file.load()?;
        match self.command {
            None | Some(Command::List) => list(&file, &known, output),
            Some(Command::Use(Name { name })) => choose(&file, known, name, output),
            Some(Command::Set(context)) => set(&file, known, context, given, output),
            Some(Command::Delete(Name { name })) => delete(&file, known, &name, output),
        }
    }
}

fn list(file: &File, known: &Known, output: &mut Output<'_, '_>) -> Result<(), Failure> {
    if known.contexts.is_empty() {
        output.remark(format!(
            "no contexts in {}\n  make one with `brokerctl contexts set NAME --address ADDR`",
            file.path().display()
        ));
    }
    output.print(&ContextList::new(known))
}

fn choose(
    file: &File,
    mut known: Known,
    name: String,
    output: &mut Output<'_, '_>,
) -> Result<(), Failure> {
    known.get(&name)?;
    output.remark(format!("context {name} is the current one now"));
    known.current = Some(name);
    file.save(&known)
}

fn set(
    file: &File,
    mut known: Known,
    Set { name, address }: Set,
    given: Credentials,
    output: &mut Output<'_, '_>,
) -> Result<(), Failure> {
    // Good from any folder, later.
    let absolute = |file: Option<PathBuf>| {
        file.map(path::absolute)
            .transpose()
            .map_err(|error| Failure::new(Exit::Usage, format!("a file has no good name: {error}")))
    };
    let context = Context {
        address: address.to_string(),
        token: None,
        token_file: absolute(given.token_file)?,
        ca: absolute(given.ca)?,
        cert: absolute(given.cert)?,
        key: absolute(given.key)?,
        server_name: given.server_name,
    };
    let done =
        if known.contexts.insert(name.clone(), context).is_some() { "replaced" } else { "made" };
    let first = known.current.is_none();
    let current = known.current.get_or_insert(name.clone());
    let remark = match (first, *current == name) {
        (true, _) => format!("context {name} {done}; it is the current one"),
        (false, true) => format!("context {name} {done}"),
        (false, false) => {
            format!("context {name} {done}; switch to it with `brokerctl contexts use {name}`")
        }
    };
    file.save(&known)?;
    output.remark(remark);
    Ok(())
}

fn delete(
    file: &File,
    mut known: Known,
    name: &str,
    output: &mut Output<'_, '_>,
) -> Result<(), Failure> {
    known.get(name)?;
    known.contexts.remove(name);
    let was_current = known.current.take_if(|current| current == name).is_some();
    file.save(&known)?;
    output.remark(format!("context {name} deleted"));
    if was_current {
        output.remark("there is no current context now: choose one with `brokerctl contexts use`");
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct ContextList {
    contexts: Vec<ContextView>,
}

/// A context without its secrets.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ContextView {
    name: String,
    current: bool,
    address: String,
    credentials: String,
}

const COLUMNS: &[Column<ContextView>] = &[
    Column::new("CURRENT", |context, _| {
        table::Cell::styled(if context.current { "*" } else { "" }, anstyle::Style::new())
    }),
    Column::new("NAME", |context, _| (&context.name).into()),
    Column::new("ADDRESS", |context, _| (&context.address).into()),
    Column::new("CREDENTIALS", |context, _| (&context.credentials).into()),
];

impl ContextList {
    fn new(known: &Known) -> Self {
        let view = |(name, context): (&String, &Context)| ContextView {
            name: name.clone(),
            current: known.current.as_ref() == Some(name),
            address: context.address.clone(),
            credentials: credentials(context),
        };
        Self { contexts: known.contexts.iter().map(view).collect() }
    }
}

/// What we show there, in words.
fn credentials(context: &Context) -> String {
    let token = match (&context.token, &context.token_file) {
        (Some(_), _) => Some("token".to_owned()),
        (None, Some(file)) => Some(format!("token in {}", file.display())),
        (None, None) => None,
    };
    let cert = context.cert.as_ref().map(|file| format!("certificate in {}", file.display()));
    cert.into_iter().chain(token).collect::<Vec<_>>().join(", ")
}

impl View for ContextList {
    fn text(&self, look: Look) -> String {
        table::of(COLUMNS, &self.contexts, look)
    }
}
