//! A progress line on stderr, if stderr is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress line. It is drawn only during calls, so that it does not disturb a measurement.
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a progress line for `steps` measurements.
    pub fn new(steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("[{pos}/{len}] {wide_msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows `what` as the current step.
    pub fn say(&self, what: String) {
        self.0.set_message(what);
    }

    /// Adds one finished measurement.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Prints a line on stderr: above the progress line if there is one, and also if stderr is not a terminal.
    pub fn note(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
