//! The policy as it is written, with the lines of what is wrong in it.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::Spanned;

use super::{
    super::identity, Controller, Driver, Kind, Namespaces, Operator, Pattern, Policy, Reach, Rule,
};
use crate::driver::Verb;

/// What is wrong in a policy file, with its lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    rules: Vec<Spanned<RuleText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    who: OneOrMore,
    driver: Option<DriverText>,
    controller: Option<ControllerText>,
    operator: Option<Spanned<String>>,
    autoscaler: Option<ReachText>,
}

/// A name, or a list of them.
struct OneOrMore(Vec<String>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DriverText {
    kinds: Vec<Spanned<String>>,
    namespaces: Option<Vec<Spanned<String>>>,
    providers: Option<Vec<Spanned<String>>>,
    #[serde(rename = "secretsFrom")]
    secrets_from: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ControllerText {
    kinds: Vec<Spanned<String>>,
    namespaces: Option<Vec<Spanned<String>>>,
    verbs: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReachText {
    kinds: Vec<Spanned<String>>,
    namespaces: Option<Vec<Spanned<String>>>,
}

pub(super) fn read(text: &str) -> Result<Policy, Error> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: PolicyFile = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| Error(error.to_string()))?;
    let rules = file.rules.into_iter().map(rule).collect::<Result<_, _>>()?;
    Ok(Policy { rules })
}

fn rule(text: Spanned<RuleText>) -> Result<Rule, Error> {
    let line = text.referenced.line();
    let text = text.value;
    let who =
        text.who.0.into_iter().map(|who| pattern(line, who)).collect::<Result<Vec<_>, _>>()?;
    if who.is_empty() {
        return Err(wrong(line, "`who` names nobody"));
    }
    let rule = Rule {
        line,
        who,
        driver: text.driver.map(|text| driver(line, text)).transpose()?,
        controller: text.controller.map(|text| controller(line, text)).transpose()?,
        operator: text.operator.map(operator).transpose()?,
        autoscaler: text
            .autoscaler
            .map(|text| reach(line, text.kinds, text.namespaces))
            .transpose()?,
    };
    if rule.driver.is_none()
        && rule.controller.is_none()
        && rule.operator.is_none()
        && rule.autoscaler.is_none()
    {
        let roles = "give at least one of `driver`, `controller`, `operator`, `autoscaler`";
        return Err(wrong(line, format!("the rule gives no role: {roles}")));
    }
    Ok(rule)
}

fn pattern(line: u64, who: String) -> Result<Pattern, Error> {
    let beginning = who.strip_suffix('*').unwrap_or(&who);
    if who != "*" && !identity::is_usable(beginning) {
        let problem = format!(
            "{who:?} is no identity: a star may stand at its end only, and there is no white space"
        );
        return Err(wrong(line, problem));
    }
    if who != "*" && !identity::has_form(beginning) {
        return Err(wrong(line, format!("nobody is called {who:?}: {}", identity::FORMS)));
    }
    Ok(Pattern(who))
}

fn driver(line: u64, text: DriverText) -> Result<Driver, Error> {
    let providers = text.providers.map(|all| names(line, "providers", all)).transpose()?;
    let secrets_from = match text.secrets_from {
        None => Namespaces::Only([].into()),
        Some(all) => namespaces(line, "secretsFrom", all)?,
    };
    Ok(Driver { reach: reach(line, text.kinds, text.namespaces)?, providers, secrets_from })
}

fn controller(line: u64, text: ControllerText) -> Result<Controller, Error> {
    let verbs = match text.verbs {
        None => None,
        Some(all) if all.iter().any(|verb| verb.value == "*") => None,
        Some(all) if all.is_empty() => return Err(wrong(line, "`verbs` is empty")),
        Some(all) => Some(all.into_iter().map(verb).collect::<Result<_, _>>()?),
    };
    Ok(Controller { reach: reach(line, text.kinds, text.namespaces)?, verbs })
}

fn verb(text: Spanned<String>) -> Result<Verb, Error> {
    Verb::from_wire(&text.value).ok_or_else(|| {
        let known: Vec<_> = Verb::ALL.into_iter().map(Verb::as_str).collect();
        let problem = format!("{:?} is no verb; there are {}", text.value, known.join(", "));
        wrong(text.referenced.line(), problem)
    })
}

fn operator(text: Spanned<String>) -> Result<Operator, Error> {
    match text.value.as_str() {
        "read" => Ok(Operator::Read),
        "steer" => Ok(Operator::Steer),
        other => {
            let problem = format!("{other:?}: an operator may `read`, or `read` and `steer`");
            Err(wrong(text.referenced.line(), problem))
        }
    }
}

fn reach(
    line: u64,
    kinds: Vec<Spanned<String>>,
    within: Option<Vec<Spanned<String>>>,
) -> Result<Reach, Error> {
    if kinds.is_empty() {
        return Err(wrong(line, "`kinds` is empty; [\"*\"] stands for all"));
    }
    let namespaces = match within {
        None => Namespaces::All,
        Some(all) => namespaces(line, "namespaces", all)?,
    };
    Ok(Reach { kinds: kinds.into_iter().map(kind).collect::<Result<_, _>>()?, namespaces })
}

fn namespaces(line: u64, field: &str, all: Vec<Spanned<String>>) -> Result<Namespaces, Error> {
    if all.iter().any(|name| name.value == "*") {
        return Ok(Namespaces::All);
    }
    Ok(Namespaces::Only(names(line, field, all)?.into()))
}

fn kind(text: Spanned<String>) -> Result<Kind, Error> {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c))
    };
    match text.value.rsplit_once('/') {
        _ if text.value == "*" => Ok(Kind::Any),
        None if is_name(&text.value) => Ok(Kind::Named(text.value)),
        Some((api_version, kind)) if is_name(api_version) && is_name(kind) => {
            Ok(Kind::Exactly { api_version: api_version.to_owned(), kind: kind.to_owned() })
        }
        _ => {
            let problem =
                format!("{:?} is no kind: write Kind, apiVersion/Kind or \"*\"", text.value);
            Err(wrong(text.referenced.line(), problem))
        }
    }
}

fn names(line: u64, field: &str, all: Vec<Spanned<String>>) -> Result<Vec<String>, Error> {
    if all.is_empty() {
        return Err(wrong(line, format!("`{field}` is empty; leave it out for all")));
    }
    all.into_iter()
        .map(|name| match name.value.as_str() {
            "" => Err(wrong(name.referenced.line(), format!("a name in `{field}` is empty"))),
            text if text.contains('*') => {
                let problem = format!("{text:?} in `{field}`: a star stands for all, alone");
                Err(wrong(name.referenced.line(), problem))
            }
            _ => Ok(name.value),
        })
        .collect()
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> de::Visitor<'de> for Names {
            type Value = OneOrMore;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an identity or a list of them")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore(vec![name.to_owned()]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, names: A) -> Result<OneOrMore, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(names)).map(OneOrMore)
            }
        }

        from.deserialize_any(Names)
    }
}

fn wrong(line: u64, problem: impl Into<String>) -> Error {
    Error(format!("line {line}: {}", problem.into()))
}
