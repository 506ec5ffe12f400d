//! What the program is called: `brokerctl`, or `kubectl broker` when kubectl found it as its plugin.

use std::{ffi::OsStr, path::Path};

use clap::Command;

/// As kubectl wants its plugins called.
const PLUGIN: &str = "kubectl-broker";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Program {
    #[default]
    Brokerctl,
    Plugin,
}

impl Program {
    /// By the first word of the command line, which is the name it was found under.
    pub(crate) fn of(first: Option<&OsStr>) -> Self {
        let name = first.and_then(|path| Path::new(path).file_stem());
        if name == Some(OsStr::new(PLUGIN)) { Self::Plugin } else { Self::Brokerctl }
    }

    /// The name of the file, which is what a shell completes.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Brokerctl => "brokerctl",
            Self::Plugin => PLUGIN,
        }
    }

    /// As people type it.
    pub(crate) fn typed(self) -> &'static str {
        match self {
            Self::Brokerctl => "brokerctl",
            Self::Plugin => "kubectl broker",
        }
    }

    /// The command line as this program has it: its help speaks of itself by the name it has.
    pub(crate) fn name(self, command: Command) -> Command {
        match self {
            Self::Brokerctl => command,
            Self::Plugin => {
                self.in_help(command).name(PLUGIN).bin_name(self.typed()).display_name(self.typed())
            }
        }
    }

    fn in_help(self, command: Command) -> Command {
        let own = |text: Option<&clap::builder::StyledStr>| {
            text.map(|text| text.to_string().replace("brokerctl ", &format!("{} ", self.typed())))
        };
        let (after, long) = (own(command.get_after_help()), own(command.get_after_long_help()));
        let mut command = command.mut_subcommands(|inner| self.in_help(inner));
        if let Some(after) = after {
            command = command.after_help(after);
        }
        if let Some(long) = long {
            command = command.after_long_help(long);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_decides() {
        let of = |word: &str| Program::of(Some(OsStr::new(word)));
        assert_eq!(of("/usr/local/bin/kubectl-broker"), Program::Plugin);
        assert_eq!(of("kubectl-broker.exe"), Program::Plugin);
        assert_eq!(of("./brokerctl"), Program::Brokerctl);
        assert_eq!(Program::of(None), Program::Brokerctl);
    }
}
