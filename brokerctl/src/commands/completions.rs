//! `brokerctl completions`: so that the tab key knows the commands.

use clap::{CommandFactory as _, ValueEnum};

use crate::{Args, Failure, args::Program, output::Output};

const HELP: &str = "\
Examples:
  source <(brokerctl completions bash)
  brokerctl completions zsh > \"${fpath[1]}/_brokerctl\"
  brokerctl completions fish > ~/.config/fish/completions/brokerctl.fish";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Completions {
    /// The shell to complete in
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    pub(crate) fn run(self, program: Program, output: &mut Output<'_, '_>) -> Result<(), Failure> {
        let shell = match self.shell {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), program.file(), &mut script);
        output.write(&String::from_utf8_lossy(&script)).map(drop)
    }
}
