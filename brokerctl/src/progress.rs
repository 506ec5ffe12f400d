//! A sign of life on the terminal while an operation runs.

use std::{borrow::Cow, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// Spins, and counts the time, until it is dropped; then it leaves no trace.
#[must_use = "it stops when dropped"]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Shows `what` on stderr, or nothing at all unless `live`.
    pub(crate) fn start(live: bool, what: impl Into<Cow<'static, str>>) -> Self {
        if !live {
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
            .expect("the template is a constant");
        let bar = ProgressBar::new_spinner().with_style(style).with_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
