//! One line on stderr that says what is going on, when stderr is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress line. Nothing is drawn between two calls, so that a measurement is not disturbed.
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

    /// Shows what comes next.
    pub fn say(&self, what: String) {
        self.0.set_message(what);
    }

    /// One measurement more is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Prints a line above the progress line, also without a terminal.
    pub fn note(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
