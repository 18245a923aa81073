//! The progress line on standard error, for work that takes more than a second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress line. It is silent if standard error is not a terminal, and removed on drop.
#[derive(Debug)]
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Creates the line with a spinner.
    #[must_use]
    pub fn spinner() -> Self {
        // indicatif, which draws the line, hides it if standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Shows `what` as the current step.
    pub fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
