//! `machine-broker policy check`: is the file right, and who may do what by it?

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};

use crate::{
    auth::{Act, FORMS, Identity, Policy, Subject},
    catalog::DEFAULT_NAMESPACE,
    driver::{DriverKey, Verb},
};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check a policy file, or ask it whether somebody may do something, and why
    #[command(after_help = EXAMPLES)]
    Check(Check),
}

const EXAMPLES: &str = "\
Examples:
  machine-broker policy check policy.yaml
  machine-broker policy check policy.yaml --as spiffe://cluster/driver/sim --can register --kind SimMachineClass
  machine-broker policy check policy.yaml --as token:ci --can delete --kind SimMachineClass --namespace prod
  machine-broker policy check policy.yaml --as cn:alice --can steer

Exit code: 0 for yes (or a file that is right), 1 for no, 2 for a file or question that is wrong.";

#[derive(Debug, clap::Args)]
pub struct Check {
    /// The policy file
    file: PathBuf,

    /// Who: spiffe://…, dns:NAME, cn:NAME, token:NAME, child:NAME or anonymous
    #[arg(long = "as", value_name = "IDENTITY", requires = "can")]
    who: Option<String>,

    /// What: register, read, steer, autoscale, or a verb: create, initialize, delete, get_status,
    /// list, get_volume_ids
    #[arg(long, value_name = "ACT", requires = "who")]
    can: Option<String>,

    /// The kind of the machine classes, where the act has one: Kind or apiVersion/Kind
    #[arg(long, value_name = "KIND", requires = "can")]
    kind: Option<String>,

    /// The provider that a driver registers for, if it does
    #[arg(long, value_name = "NAME", requires = "can")]
    provider: Option<String>,

    /// The namespace of the machine classes [default: default]
    #[arg(long, value_name = "NAME", requires = "can")]
    namespace: Option<String>,
}

impl Check {
    /// Prints the answer; the exit code is for scripts.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let text = fs::read_to_string(&self.file)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let policy = Policy::read(&text)
            .with_context(|| format!("in the policy {}", self.file.display()))?;
        let Some((who, act)) = self.who.as_ref().zip(self.can.as_ref()) else {
            println!("{} is right: {} rules", self.file.display(), policy.len());
            return Ok(ExitCode::SUCCESS);
        };
        let named = Identity::named(who);
        let who = named.with_context(|| format!("--as {who}: nobody is called so; {FORMS}"))?;
        let (allowed, answer) = self.ask(&policy, &who, act)?;
        println!("{answer}");
        Ok(if allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn ask(&self, policy: &Policy, who: &Identity, act: &str) -> anyhow::Result<(bool, String)> {
        let namespace = self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let (api_version, kind) = match self.kind.as_deref().map(|kind| kind.rsplit_once('/')) {
            Some(Some(both)) => both,
            Some(None) => ("", self.kind.as_deref().unwrap_or_default()),
            None => ("", ""),
        };
        let class = Subject { api_version, kind, namespace };
        let key = DriverKey {
            api_version: api_version.into(),
            kind: kind.into(),
            provider: self.provider.as_deref().map(Into::into),
        };
        let act = match act {
            "register" => Act::Register(&key),
            "read" => Act::Read,
            "steer" => Act::Steer,
            "autoscale" => Act::Autoscale(class),
            verb => match Verb::from_wire(verb) {
                Some(verb) => Act::Operate { verb, class },
                None => bail!("--can {verb:?}: there is no such act; --help lists them"),
            },
        };
        if kind.is_empty() && !matches!(act, Act::Read | Act::Steer) {
            bail!("--can {words} needs --kind", words = self.can.as_deref().unwrap_or_default());
        }
        // A kind without its apiVersion stands for itself in messages.
        let words = act.to_string().replace(" ()", "");
        Ok(match policy.allows(who, act) {
            Ok(line) => match act {
                Act::Register(key) if !policy.territory(who, key)?.contains(namespace) => {
                    let answer = format!("no: {who} may {words}, but not in namespace {namespace}");
                    (false, answer)
                }
                _ => (true, format!("yes: {who} may {words}, by the rule in line {line}")),
            },
            Err(_) => (false, format!("no: {}", why_not(policy, who, &words))),
        })
    }
}

fn why_not(policy: &Policy, who: &Identity, act: &str) -> String {
    let lines: Vec<String> = policy.lines_about(who).iter().map(ToString::to_string).collect();
    match lines.as_slice() {
        [] => format!("no rule names {who}, and nothing is allowed that no rule names"),
        [line] => format!("{who} may not {act}: the rule in line {line} names it, not this"),
        lines => {
            format!(
                "{who} may not {act}: the rules in lines {} name it, none of them this",
                lines.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Args {
        #[command(flatten)]
        check: Check,
    }

    const POLICY: &str = "\
rules:
- who: spiffe://c/driver/*
  driver: {kinds: [Sim], namespaces: [default]}
- who: token:ci
  controller: {kinds: [Sim], verbs: [create]}
- who: token:ci
  operator: read
";

    fn answer(args: &str) -> (bool, String) {
        let check = Args::parse_from(format!("x policy.yaml {args}").split(' ')).check;
        let who = Identity::named(check.who.as_deref().unwrap()).unwrap();
        let policy = Policy::read(POLICY).unwrap();
        check.ask(&policy, &who, check.can.as_deref().unwrap()).unwrap()
    }

    #[test]
    fn every_answer_says_why() {
        for (args, expected) in [
            (
                "--as spiffe://c/driver/a --can register --kind Sim",
                "yes: spiffe://c/driver/a may register as driver of Sim, by the rule in line 2",
            ),
            (
                "--as spiffe://c/driver/a --can register --kind Sim --namespace prod",
                "no: spiffe://c/driver/a may register as driver of Sim, but not in namespace prod",
            ),
            (
                "--as token:ci --can create --kind v1/Sim --namespace prod",
                "yes: token:ci may create machines of Sim (v1) in namespace prod, by the rule in line 4",
            ),
            (
                "--as token:ci --can delete --kind Sim",
                "no: token:ci may not delete machines of Sim in namespace default: the rules in \
                 lines 4, 6 name it, none of them this",
            ),
            (
                "--as spiffe://c/driver/a --can read",
                "no: spiffe://c/driver/a may not read as operator: the rule in line 2 names it, not this",
            ),
            (
                "--as anonymous --can steer",
                "no: no rule names anonymous, and nothing is allowed that no rule names",
            ),
        ] {
            let (allowed, text) = answer(args);
            assert_eq!(text, expected, "{args}");
            assert_eq!(allowed, expected.starts_with("yes"), "{args}");
        }
    }
}
