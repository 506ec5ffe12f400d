//! The command line of a driver program.

use std::{ffi::OsString, path::Path, str::FromStr};

/// A program and its arguments, from one text with quotes as in a shell. No shell reads it, so
/// variables, pipes and wildcards mean nothing in it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct DriverCommand {
    program: OsString,
    args: Vec<OsString>,
    name: String,
    env: Vec<(&'static str, String)>,
}

/// Why a text is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("the driver command is empty; it should name a program and its arguments")]
    Empty,
    #[error("a quote in the driver command is not closed: {0}")]
    Unbalanced(String),
}

impl DriverCommand {
    pub fn new<A: Into<OsString>>(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let program = program.into();
        let name = Path::new(&program).file_name().unwrap_or("driver".as_ref());
        let name = name.to_string_lossy().into_owned();
        let args = args.into_iter().map(Into::into).collect();
        Self { program, args, name, env: Vec::new() }
    }

    /// The same command under another name than that of its program.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same command with one more variable in its environment.
    pub fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// The program as it was given.
    pub fn program(&self) -> &str {
        self.program.to_str().unwrap_or("(a name that is not UTF-8)")
    }

    /// What people call it: the program's name without its folders, unless told otherwise.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program, followed by its arguments.
    pub(super) fn words(&self) -> impl Iterator<Item = &OsString> {
        std::iter::once(&self.program).chain(&self.args)
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.env.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

impl FromStr for DriverCommand {
    type Err = CommandError;

    fn from_str(text: &str) -> Result<Self, CommandError> {
        let words = shell_words::split(text)
            .map_err(|_| CommandError::Unbalanced(text.trim().to_owned()))?;
        match words.split_first() {
            Some((program, args)) if !program.is_empty() => Ok(Self::new(program, args)),
            _ => Err(CommandError::Empty),
        }
    }
}

impl TryFrom<String> for DriverCommand {
    type Error = CommandError;

    fn try_from(text: String) -> Result<Self, CommandError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_work_as_in_a_shell() {
        let command: DriverCommand =
            r#" /opt/sim-driver --name 'a b' "c \"d\"" e\ f "" "#.parse().unwrap();
        let expected =
            DriverCommand::new("/opt/sim-driver", ["--name", "a b", "c \"d\"", "e f", ""]);
        assert_eq!(command, expected);
        assert_eq!(command.name(), "sim-driver");
        assert_eq!(command.named("sim").name(), "sim");
    }

    #[test]
    fn an_empty_or_unbalanced_command_is_refused() {
        for empty in ["", "  \n", "''", "\"\" a"] {
            assert_eq!(empty.parse::<DriverCommand>(), Err(CommandError::Empty), "{empty:?}");
        }
        let error = "driver 'oops".parse::<DriverCommand>().unwrap_err();
        assert_eq!(error.to_string(), "a quote in the driver command is not closed: driver 'oops");
    }

    #[test]
    fn a_command_can_stand_in_a_configuration_file() {
        let command: DriverCommand = serde_json::from_str("\"a 'b c'\"").unwrap();
        assert_eq!(command, DriverCommand::new("a", ["b c"]));
        assert!(serde_json::from_str::<DriverCommand>("\"\"").is_err());
    }
}
