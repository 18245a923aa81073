//! The file with the counters' numbers, and its history.

use std::collections::BTreeMap;

use crate::Findings;

/// Path of the file.
pub const FILE: &str = "xtask/counters.toml";

/// The counters' numbers, by the counters' names.
pub type CounterNumbers = BTreeMap<String, u64>;

/// Parses lines of the form `name = number`; `#` starts a comment. Any other non-empty line is a finding.
pub fn parse(text: &str) -> (CounterNumbers, Findings) {
    let mut numbers = CounterNumbers::new();
    let mut findings = Findings::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or(line).trim();
        if line.is_empty() {
            continue;
        }
        let pair = line.split_once('=').and_then(|(name, number)| Some((name.trim(), number.trim().parse().ok()?)));
        let place = format!("{FILE}:{}", index + 1);
        match pair {
            None => findings.push(format!("{place}: expected `name = number`, found {line:?}")),
            Some((name, number)) if numbers.insert(name.to_owned(), number).is_none() => {}
            Some((name, _)) => findings.push(format!("{place}: two lines for {name}; remove one")),
        }
    }
    (numbers, findings)
}

/// Returns findings for missing numbers, and for numbers without a counter.
pub fn compare_names(numbers: &CounterNumbers, known: &[&str]) -> Findings {
    let missing = known.iter().filter(|name| !numbers.contains_key(**name));
    let missing = missing.map(|name| format!("{FILE}: expected a line for {name}; write `{name} = NUMBER`"));
    let unknown = numbers.keys().filter(|name| !known.contains(&name.as_str()));
    let unknown = unknown.map(|name| format!("{FILE}: there is no counter called {name}; known: {}", known.join(", ")));
    missing.chain(unknown).collect()
}

/// Returns findings for numbers above the minimum of all `versions`, which are pairs of a commit and the file's text.
pub fn raised(numbers: &CounterNumbers, versions: &[(String, String)]) -> Findings {
    let mut lowest: BTreeMap<String, (u64, &str)> = BTreeMap::new();
    for (commit, text) in versions {
        for (name, number) in parse(text).0 {
            let kept = lowest.entry(name).or_insert((number, commit));
            *kept = (*kept).min((number, commit));
        }
    }
    let above = numbers.iter().filter_map(|(name, number)| {
        let (least, commit) = lowest.get(name)?;
        (number > least).then(|| {
            format!(
                "{FILE}: {name} was raised from {least} (commit {commit}) to {number}, and may only fall: undo what \
                 raised it, and write {least} again. If it has to count something else, give it a new name"
            )
        })
    });
    above.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> CounterNumbers {
        let (numbers, findings) = parse(text);
        assert!(findings.is_empty(), "{findings:?}");
        numbers
    }

    /// Objective: numbers and comments are parsed; other lines, and a second line for the same name, are findings with
    /// their line number.
    #[test]
    fn lines_are_read() {
        assert_eq!(
            numbers("# x = 1\n\na-b = 2 # why\nc=0").into_iter().collect::<Vec<_>>(),
            [("a-b".to_owned(), 2), ("c".to_owned(), 0)]
        );
        let (_, findings) = parse("a = 1\na = 2\nb\nc = -1\n");
        let places: Vec<_> = findings.iter().map(|finding| &finding[..FILE.len() + 2]).collect();
        assert_eq!(places, [2, 3, 4].map(|line| format!("{FILE}:{line}")));
    }

    /// Objective: each known counter must have a line, and each line must be for a known counter.
    #[test]
    fn lines_are_of_known_counters() {
        assert!(compare_names(&numbers("a = 1\nb = 2"), &["a", "b"]).is_empty());
        let findings = compare_names(&numbers("a = 1\nc = 2"), &["a", "b"]);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].contains("a line for b") && findings[1].contains("called c"), "{findings:?}");
    }

    /// Objective: a number above the minimum of its history is a finding, even if newer versions were also above it;
    /// equal and lower numbers, and numbers of new counters, are no findings.
    #[test]
    fn raises_are_found_in_history() {
        let versions = ["a = 9\nb = 1", "a = 7\nb = 1", "a = 8", ""].map(|text| ("c0ffee".to_owned(), text.to_owned()));
        assert!(raised(&numbers("a = 7\nb = 0\nnew = 50"), &versions).is_empty());
        let findings = raised(&numbers("a = 8\nb = 1"), &versions);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("a was raised from 7 (commit c0ffee) to 8"), "{findings:?}");
        assert!(raised(&numbers("a = 8"), &[]).is_empty());
    }
}
