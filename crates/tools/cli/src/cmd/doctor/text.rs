//! The report as text.

use super::Report;
use super::row::{Row, State};

/// Maximum columns of a line.
const WIDTH: usize = 100;
/// Columns of a check's name.
const NAME: usize = 13;

/// The report, for a terminal of that many columns. `verbose`: includes unknown rows.
pub fn render(report: &Report, verbose: bool, terminal: Option<usize>) -> String {
    let those = |state| report.checks.iter().filter(move |row| row.state == state);
    let mut page = Wrapped { text: String::new(), width: terminal.unwrap_or(WIDTH).min(WIDTH) };
    page.block("", 0, &verdict(report.advice));
    page.block("", 0, &scope(report));
    if report.advice > 0 {
        page.text.push('\n');
    }
    for row in those(State::Advice) {
        page.advice(row);
    }
    page.section("Fine as it is:", those(State::Ok));
    if verbose {
        page.section("Could not be found out:", those(State::Unknown));
    }
    page.text
}

/// The report so far, wrapped to that many columns.
struct Wrapped {
    text: String,
    width: usize,
}

fn verdict(advice: usize) -> String {
    match advice {
        0 => "Nothing was found that would make netvale faster here.".to_owned(),
        1 => "One thing would make netvale faster here.".to_owned(),
        many => format!("{many} things would make netvale faster here."),
    }
}

/// The scope of the report.
fn scope(report: &Report) -> String {
    let daemon = match (&report.daemon, &report.no_daemon) {
        (Some(daemon), _) => match daemon.pid {
            Some(pid) => format!("with the daemon in {} (pid {pid})", daemon.run_dir),
            None => format!("with the daemon in {}", daemon.run_dir),
        },
        (None, reason) => {
            let reason = reason.as_deref().unwrap_or("none was asked");
            format!("without a daemon and its workers and ports ({reason})")
        }
    };
    format!("Watched for {:.1} s, {daemon}.", report.seconds)
}

impl Wrapped {
    fn advice(&mut self, row: &Row) {
        self.block(row.check, NAME, &row.found);
        self.block("", NAME, &row.why);
        self.block("", NAME, &format!("-> {}", row.what_to_do));
        self.text.push('\n');
    }

    fn section<'a>(&mut self, title: &str, rows: impl Iterator<Item = &'a Row>) {
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

    /// Appends `words` in lines, indented by `indent` columns; `name` precedes the first line.
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

/// The words, with a number and its unit as one.
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

    fn report(checks: Vec<Row>) -> Report {
        let advice = checks.iter().filter(|row| row.state == State::Advice).count();
        Report { seconds: 1.0, daemon: None, no_daemon: Some("no daemon runs in /run/x".into()), advice, checks }
    }

    /// Objective: advice comes first with its reason and action, fine rows last, and unknown ones only on request.
    #[test]
    fn sections() {
        let rows = vec![
            Row::ok("cpus", "64 CPUs"),
            Row::ok("clock", "hpet: 1200 ns").advise("It is slow.", "use tsc"),
            Row::unknown("governor", "no cpufreq"),
        ];
        let expected = "\
One thing would make netvale faster here.
Watched for 1.0 s, without a daemon and its workers and ports (no daemon runs in /run/x).

clock        hpet: 1200 ns
             It is slow.
             -> use tsc

Fine as it is:
cpus         64 CPUs
";
        assert_eq!(render(&report(rows.clone()), false, None), expected);
        let unknown = "\nCould not be found out:\ngovernor     no cpufreq\n";
        assert_eq!(render(&report(rows), true, None), format!("{expected}{unknown}"));
    }

    /// Objective: no line ends between a number and its unit.
    #[test]
    fn units() {
        assert_eq!(pieces("yes (pid 8) 77 %, 1.5 of 2 CPUs"), ["yes", "(pid", "8)", "77 %,", "1.5 of", "2 CPUs"]);
    }

    /// Objective: no line is longer than the terminal's width, or than is easily read, except a single longer word.
    #[test]
    fn wrapping() {
        for (terminal, width) in [(None, WIDTH), (Some(300), WIDTH), (Some(80), 80)] {
            let text = render(&report(vec![Row::ok("cpus", "several words ".repeat(40))]), false, terminal);
            let longest = text.lines().map(str::len).max().unwrap();
            assert!((width - 10..=width).contains(&longest), "{text}");
            assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
        }
        let text = render(&report(vec![Row::ok("cpus", "x".repeat(200))]), false, None);
        assert!(text.contains(&format!("cpus         {}\n", "x".repeat(200))), "{text}");
    }
}
