//! How a benchmark is to measure.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};

use crate::{report::output::Output, way::Timing};

#[derive(Debug, clap::Args)]
pub(crate) struct How {
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Little and once: to see that it works, not for its figures
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Draw it
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// How a benchmark of several parts is to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct HowMuch {
    #[command(flatten)]
    pub(crate) how: How,
    /// Only what has these words in its name
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["document", "plot"])]
    only: Option<String>,
}

impl HowMuch {
    pub(crate) fn is_whole(&self) -> bool {
        self.has_all_parts() && !self.how.quick
    }

    pub(crate) fn has_all_parts(&self) -> bool {
        self.only.is_none()
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|words| name.contains(words))
    }
}

impl How {
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds }
    }

    pub(crate) fn timing(&self) -> Timing {
        Timing::new(self.quick)
    }

    /// Writes the picture, if one is wanted.
    pub(crate) fn draw(&self, picture: impl FnOnce() -> String) -> anyhow::Result<()> {
        let Some(file) = &self.plot else { return Ok(()) };
        fs::write(file, picture()).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Refuses to be asked for a picture where there is none.
    pub(crate) fn draws_nothing(&self) -> anyhow::Result<()> {
        ensure!(self.plot.is_none(), "there is nothing to draw: leave --plot out");
        Ok(())
    }
}
