//! Times of the test tiers: measurements, limits, and the times that pages state.
//!
//! A test run writes `docs/internals/test-times.toml`: a table for each tier (`[test]`, `[test-system]`, `[test-long]`)
//! with `total = SECONDS` and a line for each stage. Pages may state a time only between marks, `<!-- time:test -->15
//! minutes<!-- /time -->`: `cargo run -p xtask -- times` writes these times, and the check `counters` compares them
//! with the measurements. The check refuses times without marks on a line with a tier's command, and in the help lines
//! of the Makefile.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Findings;
use crate::files::read;
use crate::source::whole_words;

/// The tiers, by the names of their make targets.
const TIERS: [&str; 3] = ["test", "test-system", "test-long"];
/// Names of the tiers' limits in the file of the counters.
pub const LIMITS: [&str; 3] = ["seconds-test", "seconds-test-system", "seconds-test-long"];
/// The file with the measurements.
const MEASURED: &str = "docs/internals/test-times.toml";
/// Pages that may state a time.
const PAGES: [&str; 2] = ["README.md", "CONTRIBUTING.md"];
/// The file with a help line for each target.
const MAKEFILE: &str = "Makefile";
/// Words that state a time.
const UNITS: [&str; 4] = ["minute", "minutes", "hour", "hours"];

const BEGIN: &str = "<!-- time:";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- /time -->";
/// The form of a time on a page.
const MARKS: &str = "<!-- time:TIER -->TIME<!-- /time -->";

/// Each tier's total in seconds.
type TierTotals = BTreeMap<String, u64>;

/// Compares the measurements with the limits and with the pages.
pub fn check(root: &Path, limits: &BTreeMap<String, u64>) -> Result<Findings, String> {
    let mut findings = help_findings(&read(root, MAKEFILE)?);
    let totals = measured(root)?;
    if let Some(totals) = &totals {
        findings.extend(too_long(totals, limits));
    }
    for page in PAGES {
        let text = read(root, page)?;
        let (whole, refused) = with_times(page, &text, totals.as_ref().unwrap_or(&TierTotals::new()));
        findings.extend(refused.into_iter().filter(|_| totals.is_some()));
        findings.extend(unmarked(page, &text));
        if whole != text {
            findings.push(format!("{page}: states other times than {MEASURED}; run `cargo run -p xtask -- times`"));
        }
    }
    Ok(findings)
}

/// Writes the measurements between the marks of the pages.
pub fn write(root: &Path) -> Result<Findings, String> {
    let Some(totals) = measured(root)? else {
        return Err(format!("{MEASURED} does not exist; a test run (`make test`) writes it"));
    };
    let mut findings = Findings::new();
    for page in PAGES {
        let text = read(root, page)?;
        let (whole, refused) = with_times(page, &text, &totals);
        findings.extend(refused);
        if whole != text {
            fs::write(root.join(page), whole).map_err(|e| format!("{page}: {e}"))?;
            println!("times: wrote {page}");
        }
    }
    Ok(findings)
}

fn measured(root: &Path) -> Result<Option<TierTotals>, String> {
    match fs::read_to_string(root.join(MEASURED)) {
        Ok(text) => parse(&text).map(Some),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{MEASURED}: {e}")),
    }
}

/// Parses each tier's total; the lines of stages are ignored.
fn parse(text: &str) -> Result<TierTotals, String> {
    let mut totals = TierTotals::new();
    let mut table = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let name = line.strip_prefix('[').and_then(|rest| rest.split(']').next());
        table = name.map_or(table, str::trim);
        let pair = line.split_once('=').filter(|(key, _)| key.trim() == "total");
        let Some((_, value)) = pair else { continue };
        let value = value.split('#').next().unwrap_or(value).trim();
        let seconds = value.parse().map_err(|_| {
            format!(
                "{MEASURED}:{}: expected whole seconds, found {value:?}; run the tests again to write it",
                index + 1
            )
        })?;
        totals.insert(table.to_owned(), seconds);
    }
    match totals.keys().find(|table| !TIERS.contains(&table.as_str())) {
        Some(table) => Err(format!("{MEASURED}: unknown tier {table:?}; known: {}", TIERS.join(", "))),
        None => Ok(totals),
    }
}

fn too_long(totals: &TierTotals, limits: &BTreeMap<String, u64>) -> Findings {
    let pairs = totals.iter().filter_map(|(tier, total)| Some((tier, total, limits.get(&format!("seconds-{tier}"))?)));
    let above = pairs.filter(|(_, total, limit)| total > limit);
    above
        .map(|(tier, total, limit)| {
            format!(
                "`make {tier}` took {total} s ({MEASURED}): the limit is {limit} s (seconds-{tier}): make its slowest \
                 stages faster, or move one to a later tier"
            )
        })
        .collect()
}

/// Returns `text` with the measured times between its marks, and findings for marks without a measured time.
fn with_times(page: &str, text: &str, totals: &TierTotals) -> (String, Findings) {
    let mut whole = String::new();
    let mut findings = Findings::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let marked = after.split_once(BEGIN_END).and_then(|(tier, after)| Some((tier, after.split_once(END)?)));
        let Some((tier, (stated, after))) = marked else {
            findings.push(format!("{page}: expected {MARKS}, found no end mark; complete the marks"));
            break;
        };
        let time = totals.get(tier).map(|total| minutes(*total));
        if time.is_none() {
            let known = TIERS.join(", ");
            findings.push(format!(
                "{page}: states the time of {tier:?}, which {MEASURED} does not have; run `make {tier}`, or remove the \
                 marks (tiers are: {known})"
            ));
        }
        whole.extend([before, BEGIN, tier, BEGIN_END, time.as_deref().unwrap_or(stated), END]);
        rest = after;
    }
    whole.push_str(rest);
    (whole, findings)
}

/// Formats seconds as whole minutes, rounded up.
fn minutes(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        1 => "1 minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// Returns findings for lines that have a tier's command and a time outside marks.
fn unmarked(page: &str, text: &str) -> Findings {
    let mut findings = Findings::new();
    for (index, line) in text.lines().enumerate() {
        if line.contains("make test") && has_time(&without_marked(line)) {
            let place = format!("{page}:{}", index + 1);
            findings.push(format!("{place}: states a time beside `make test`; omit it, or put it into {MARKS}"));
        }
    }
    findings
}

fn without_marked(line: &str) -> String {
    let mut parts = line.split(BEGIN);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| line + part.split_once(END).map_or(part, |(_, after)| after))
}

fn help_findings(makefile: &str) -> Findings {
    let mut findings = Findings::new();
    for (index, line) in makefile.lines().enumerate() {
        let target = line.split(':').next().unwrap_or_default();
        let help = line.split_once("## ").map_or("", |(_, help)| help);
        if TIERS.contains(&target) && has_time(help) {
            let place = format!("{MAKEFILE}:{}", index + 1);
            findings.push(format!("{place}: the help of {target} states a time; remove it: {MEASURED} has it"));
        }
    }
    findings
}

fn has_time(text: &str) -> bool {
    let text = text.to_lowercase();
    UNITS.iter().any(|unit| !whole_words(&text, unit).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: &str =
        "machine = \"a\"\n[test]\ntotal = 601\nunit = 400\n\n[test-long]\ndate = \"2026-01-02\"\ntotal = 60 # s\n";

    fn totals() -> TierTotals {
        parse(TIMES).expect("times")
    }

    /// Objective: each tier's total is parsed, and its stages are skipped; other tables and other values are refused.
    #[test]
    fn totals_are_read() {
        assert_eq!(totals(), TierTotals::from([("test".to_owned(), 601), ("test-long".to_owned(), 60)]));
        assert!(parse("[tests]\ntotal = 1").is_err_and(|e| e.contains("test-system")));
        assert!(parse("[test]\ntotal = 1.5").is_err_and(|e| e.contains(":2: expected whole seconds")));
    }

    /// Objective: a total above its limit is a finding; a total at its limit, or without a limit, is not.
    #[test]
    fn totals_have_limits() {
        let limits = |test| BTreeMap::from([("seconds-test".to_owned(), test)]);
        assert!(too_long(&totals(), &limits(601)).is_empty());
        let findings = too_long(&totals(), &limits(600));
        assert!(findings.len() == 1 && findings[0].contains("took 601 s"), "{findings:?}");
    }

    /// Objective: marked times are replaced by the measured times, in minutes rounded up; the rest of the page is
    /// unchanged.
    #[test]
    fn marked_times_are_written() {
        let page = "a <!-- time:test -->x<!-- /time --> b <!-- time:test-long -->9 minutes<!-- /time --> c";
        let (whole, findings) = with_times("P", page, &totals());
        assert_eq!(
            whole,
            "a <!-- time:test -->11 minutes<!-- /time --> b <!-- time:test-long -->1 minute<!-- /time --> c"
        );
        assert!(findings.is_empty());
        assert_eq!(with_times("P", &whole, &totals()), (whole.clone(), Findings::new()));
    }

    /// Objective: unterminated marks, and marks of a tier without a measurement, are findings, and their text is
    /// unchanged.
    #[test]
    fn marks_that_cannot_be_written_stay() {
        for page in ["a <!-- time:test -->x", "<!-- time:test-system -->x<!-- /time --> b"] {
            let (whole, findings) = with_times("P", page, &totals());
            assert_eq!((whole.as_str(), findings.len()), (page, 1));
        }
    }

    /// Objective: a time on the same line as a tier's command must have marks; other times need none.
    #[test]
    fn times_beside_commands_are_marked() {
        assert_eq!(unmarked("P", "`make test` takes an hour").len(), 1);
        assert_eq!(unmarked("P", "make test-long # 10 Minutes, <!-- time:test -->1 minute<!-- /time -->").len(), 1);
        let fine =
            "`make test` takes <!-- time:test -->11 minutes<!-- /time -->.\nIt takes an hour.\n`make demo`: a minute";
        assert!(unmarked("P", fine).is_empty());
    }

    /// Objective: the help of the tiers' targets may not state a time; the help of other targets may.
    #[test]
    fn help_states_no_time() {
        assert!(
            help_findings("demo: ## under a minute\ntest: ## all tests\ntest-long:\n\t@sleep 60 # minutes\n")
                .is_empty()
        );
        assert_eq!(help_findings("x:\ntest-system: y ## about three quarters of an hour\n").len(), 1);
    }
}
