//! The page: each figure with what is printed, what was measured here, what is different, and what to see.

use std::fs;
use std::path::Path;

use super::figures::{ALL, DOCUMENTS, Figure};
use super::kept::Kept;
use super::versions::{self, VersionTable};
use crate::error::{BenchError, Result};

/// Its text.
pub fn render(kept: &[(&Figure, Kept)], machine: &str, versions: &VersionTable) -> String {
    let mut text = format!(
        "# The papers' figures\n\nnetvale builds what four documents describe. Here are their experiments: the values \
         that they print, and what `netvale-bench papers` measured on {machine}. Medians of runs that were taken in \
         turn, `[min – max]` behind them, \\* where other work on the machine disturbed a run; × is the ratio to the \
         first row's, in the paper and here. A dash: not printed, or not measured.\n"
    );
    for document in DOCUMENTS {
        let of = |(figure, _): &&(&Figure, Kept)| figure.document() == document;
        let mut figures = kept.iter().filter(of).peekable();
        if figures.peek().is_none() {
            continue;
        }
        text.push_str(&format!("\n## {}. {}\n\nThere: {}.\n", document.number, document.title, document.machine));
        figures.for_each(|(figure, kept)| text.push_str(&section(figure, kept, versions)));
    }
    text
}

fn section(figure: &Figure, kept: &Kept, versions: &VersionTable) -> String {
    let Figure { number, title, about, here, see, .. } = figure;
    let mut text = format!("\n### {number} {title}\n\n{about} {here}\n\n");
    for table in figure.tables {
        text.push_str(&format!("{}\n", table.render(kept)));
    }
    if *number == versions::FIGURE {
        text.push_str(&format!("{}\n", versions.render()));
    }
    text.push_str(&format!("{see}\n"));
    let skipped = kept.skipped();
    let missing = figure.missing.iter().map(|line| format!("- {line}\n"));
    let skipped = skipped.iter().map(|(who, why)| format!("- {who}: {}\n", why.replace('\n', " ")));
    let lines: String = missing.chain(skipped).collect();
    if !lines.is_empty() {
        text.push_str(&format!("\nNot here:\n\n{lines}"));
    }
    text
}

/// Writes it.
pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(BenchError::io(format!("writing {}", path.display())))
}

/// The machine, in words.
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("a processor that does not say its name", |(_, model)| model);
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let release = read("/proc/sys/kernel/osrelease");
    format!("{} processors ({model}), Linux {}", count.max(1), release.trim())
}

/// The figures of these numbers, or of these documents; all, if there are none.
pub fn chosen(numbers: &[String]) -> Result<Vec<&'static Figure>> {
    let fits = |figure: &Figure, wanted: &String| figure.number == wanted || figure.document().number == wanted;
    if let Some(unknown) = numbers.iter().find(|wanted| !ALL.iter().any(|figure| fits(figure, wanted))) {
        let known: Vec<_> = ALL.iter().map(|figure| figure.number).collect();
        return Err(BenchError::Unknown("figure", unknown.clone(), known.join(", ")));
    }
    let wanted = |figure: &&Figure| numbers.is_empty() || numbers.iter().any(|number| fits(figure, number));
    Ok(ALL.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: figures are chosen by number or document, and an unknown one is refused with those that there are.
    #[test]
    fn choice() {
        let numbers = |words: &[&str]| -> Vec<&str> {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            chosen(&words).expect("known").iter().map(|figure| figure.number).collect()
        };
        assert_eq!(numbers(&[]).len(), ALL.len());
        assert_eq!(numbers(&["2.1"]), ["2.1"]);
        assert!(numbers(&["2"]).iter().all(|number| number.starts_with("2.")));
        assert!(chosen(&["9".into()]).expect_err("none").to_string().contains("2.1"));
    }

    /// Objective: the page has each figure with its title, and says what is not there.
    #[test]
    fn page() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |figure: &'static Figure| Kept::open(folder.path(), figure.number, false).expect("none yet");
        let kept: Vec<_> = ALL.iter().map(|figure| (figure, open(figure))).collect();
        let text = render(&kept, "a machine", &VersionTable::default());
        for figure in ALL {
            assert!(text.contains(&format!("### {} {}", figure.number, figure.title)));
            assert!(figure.missing.iter().all(|line| text.contains(line)));
        }
    }
}
