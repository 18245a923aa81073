//! The report as text.

use super::DoctorReport;
use super::row::{CheckRow, CheckState};

/// Maximum width of a line in columns.
const WIDTH: usize = 100;
/// Width of the column with the checks' names.
const NAME: usize = 13;

/// Formats the report for a terminal of `terminal` columns, or, if the output is no terminal, for the maximum width.
/// With `verbose`, the report includes the checks without a result.
pub fn render(report: &DoctorReport, verbose: bool, terminal: Option<usize>) -> String {
    let those = |state| report.checks.iter().filter(move |row| row.state == state);
    let mut page = WrappedReport { text: String::new(), width: terminal.unwrap_or(WIDTH).min(WIDTH) };
    page.block("", 0, &verdict(report.advice));
    page.block("", 0, &scope(report));
    if report.advice > 0 {
        page.text.push('\n');
    }
    for row in those(CheckState::Advice) {
        page.advice(row);
    }
    page.section("Nothing to improve:", those(CheckState::Ok));
    if verbose {
        page.section("Without a result:", those(CheckState::Unknown));
    }
    page.text
}

/// The text of the report so far, wrapped to `width` columns.
struct WrappedReport {
    text: String,
    width: usize,
}

fn verdict(advice: usize) -> String {
    match advice {
        0 => "Found nothing that would make netvale faster here.".to_owned(),
        1 => "One thing would make netvale faster here.".to_owned(),
        many => format!("{many} things would make netvale faster here."),
    }
}

/// Describes what was watched, and for how long.
fn scope(report: &DoctorReport) -> String {
    let daemon = match (&report.daemon, &report.no_daemon) {
        (Some(daemon), _) => {
            let pid = daemon.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            format!("with the daemon in {}{pid}", daemon.run_dir)
        }
        (None, reason) => {
            let reason = reason.as_deref().unwrap_or("no daemon");
            format!("without a daemon and its workers and ports ({reason})")
        }
    };
    format!("Watched for {:.1} s, {daemon}.", report.seconds)
}

impl WrappedReport {
    fn advice(&mut self, row: &CheckRow) {
        self.block(row.check, NAME, &row.found);
        self.block("", NAME, &row.why);
        self.block("", NAME, &format!("-> {}", row.what_to_do));
        self.text.push('\n');
    }

    fn section<'a>(&mut self, title: &str, rows: impl Iterator<Item = &'a CheckRow>) {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return;
        }
        if !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
        self.text.push_str(&format!("{title}\n"));
        for row in rows {
            self.block(row.check, NAME, &row.found);
        }
    }

    /// Appends `words` in lines indented by `indent` columns; `name` precedes the first line.
    fn block(&mut self, name: &str, indent: usize, words: &str) {
        let mut line = format!("{name:<indent$}");
        let mut is_empty = true;
        for word in pieces(words) {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > self.width {
                self.text.push_str(&line);
                self.text.push('\n');
                line = " ".repeat(indent);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(&word);
            is_empty = false;
        }
        self.text.push_str(&line);
        self.text.push('\n');
    }
}

/// Splits a text into words; a number and its unit are one word.
fn pieces(words: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        match pieces.last_mut() {
            Some(number) if number.chars().all(|c| c.is_ascii_digit() || c == '.') => *number += &format!(" {word}"),
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(checks: Vec<CheckRow>) -> DoctorReport {
        let advice = checks.iter().filter(|row| row.state == CheckState::Advice).count();
        DoctorReport { seconds: 1.0, daemon: None, no_daemon: Some("no daemon runs in /run/x".into()), advice, checks }
    }

    /// Objective: advice comes first with its reason and action, then rows without advice, and last, on request, rows
    /// without a result.
    #[test]
    fn advice_comes_first_with_reason_and_action() {
        let rows = vec![
            CheckRow::ok("cpus", "64 CPUs"),
            CheckRow::ok("clock", "hpet: 1200 ns").advise("It is slow.", "use tsc"),
            CheckRow::unknown("governor", "no cpufreq"),
        ];
        let expected = "\
One thing would make netvale faster here.
Watched for 1.0 s, without a daemon and its workers and ports (no daemon runs in /run/x).

clock        hpet: 1200 ns
             It is slow.
             -> use tsc

Nothing to improve:
cpus         64 CPUs
";
        assert_eq!(render(&report(rows.clone()), false, None), expected);
        let unknown = "\nWithout a result:\ngovernor     no cpufreq\n";
        assert_eq!(render(&report(rows), true, None), format!("{expected}{unknown}"));
    }

    /// Objective: no line ends between a number and its unit.
    #[test]
    fn no_line_ends_between_a_number_and_its_unit() {
        assert_eq!(pieces("yes (pid 8) 77 %, 1.5 of 2 CPUs"), ["yes", "(pid", "8)", "77 %,", "1.5 of", "2 CPUs"]);
    }

    /// Objective: no line exceeds the terminal's width or the maximum that is easy to read, unless a single word is
    /// longer than that.
    #[test]
    fn no_line_is_longer_than_the_width() {
        for (terminal, width) in [(None, WIDTH), (Some(300), WIDTH), (Some(80), 80)] {
            let text = render(&report(vec![CheckRow::ok("cpus", "several words ".repeat(40))]), false, terminal);
            let longest = text.lines().map(str::len).max().unwrap();
            assert!((width - 10..=width).contains(&longest), "{text}");
            assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
        }
        let text = render(&report(vec![CheckRow::ok("cpus", "x".repeat(200))]), false, None);
        assert!(text.contains(&format!("cpus         {}\n", "x".repeat(200))), "{text}");
    }
}
