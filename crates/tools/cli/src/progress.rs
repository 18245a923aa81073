//! The progress line on standard error, for work that takes more than a second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress line. It is silent if standard error is not a terminal, and removed on drop.
#[derive(Debug)]
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Creates a progress bar for `steps` steps.
    #[must_use]
    pub fn steps(steps: u64) -> Self {
        Self::with(Some(steps), "{bar:24} {pos}/{len} {wide_msg}")
    }

    /// Creates a spinner, for work of unknown length.
    #[must_use]
    pub fn spinner() -> Self {
        let progress = Self::with(None, "{spinner} {elapsed} {wide_msg}");
        progress.0.enable_steady_tick(Duration::from_millis(200));
        progress
    }

    fn with(steps: Option<u64>, template: &str) -> Self {
        // indicatif, which draws the line, hides it if standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows `what` as the current step.
    pub fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// Sets the number of steps that are done.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Counts one more step as done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Hides the line while `print` writes to the terminal.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
