//! The page: each figure with printed and measured values, the differences of the set-up, and an interpretation.

use std::fs;
use std::path::Path;

use super::drawing::plot_of;
use super::figures::{ALL, DOCUMENTS, PaperFigure};
use super::kept::Kept;
use super::versions::{self, VersionTable};
use super::{FigureResults, shapes};
use crate::error::{BenchError, Result};
use crate::report::plot::draw;

/// The folder of the plots, beside the page.
const PLOTS: &str = "plots/papers";

/// Returns the page's text in Markdown.
pub fn render(all: &[FigureResults], machine: &str, versions: &VersionTable) -> String {
    let mut text = format!(
        "# The papers' figures\n\nnetvale implements the designs of four documents. This page repeats their \
         experiments: each table has the printed values (paper) and those that `netvale-bench papers` measured on \
         {machine} (here). Measured values are medians of five interleaved runs, with the smallest and the largest in \
         brackets; \\* marks values that other work on the machine disturbed. × is the ratio to the table's base row, \
         within the paper and within the measurement. A dash means: not printed, or not measured.\n\n\
         Where several processors take part, figures depend on the time that a cache line takes from one to another. \
         The hypervisor of a virtual machine may change that time at any moment, by moving the processors between \
         cores with and without a common cache (51 and 255 ns were seen on one machine within half a minute). Two \
         rates of one program, far from each other, have this cause. Newer results record the time.\n"
    );
    for document in DOCUMENTS {
        let mut figures = all.iter().filter(|one| one.figure.document() == document).peekable();
        if figures.peek().is_none() {
            continue;
        }
        text.push_str(&format!(
            "\n## {}. {}\n\nMeasured there on: {}.\n",
            document.number, document.title, document.machine
        ));
        figures.for_each(|one| text.push_str(&section(one.figure, &one.kept, versions)));
    }
    text
}

fn section(figure: &PaperFigure, kept: &Kept, versions: &VersionTable) -> String {
    let PaperFigure { number, title, about, here, see, .. } = figure;
    let mut text = format!("\n### {number} {title}\n\n{about} {here}\n\n");
    for (number, table) in figure.tables.iter().enumerate() {
        if let Some(plot) = plot_of(figure, number, table, kept) {
            text.push_str(&format!("![{}]({PLOTS}/{})\n\n", plot.title, plot.file_name));
        }
        text.push_str(&format!("{}\n", table.render(kept)));
    }
    if *number == versions::FIGURE {
        text.push_str(&format!("{}\n", versions.render()));
    }
    if kept.is_empty() {
        text.push_str("Not measured yet.\n");
    } else {
        text.push_str(&format!("{see}\n"));
    }
    if let Some((shortest, longest)) = kept.line_times() {
        text.push_str(&format!("\nA cache line took {shortest:.0} to {longest:.0} ns between the CPUs.\n"));
    }
    for (shape, holds) in shapes::judged(number, kept) {
        let word = if holds { "Confirmed" } else { "**Not confirmed**" };
        text.push_str(&format!("\n{word}: {}.\n", shape.says));
    }
    let skipped = kept.skipped();
    let missing = figure.missing.iter().map(|line| format!("- {line}\n"));
    let skipped = skipped.iter().map(|(who, why)| format!("- {who}: {}\n", why.replace('\n', " ")));
    let lines: String = missing.chain(skipped).collect();
    if !lines.is_empty() {
        text.push_str(&format!("\nMissing:\n\n{lines}"));
    }
    text
}

/// Writes the page and its plots.
pub fn write(path: &Path, text: &str, all: &[FigureResults]) -> Result<()> {
    let plots = path.parent().unwrap_or(Path::new(".")).join(PLOTS);
    fs::create_dir_all(&plots).map_err(BenchError::io(format!("creating {}", plots.display())))?;
    for FigureResults { figure, kept, .. } in all {
        for plot in figure.tables.iter().enumerate().filter_map(|(number, table)| plot_of(figure, number, table, kept))
        {
            let file = plots.join(&plot.file_name);
            draw(plot, &file)?;
        }
    }
    fs::write(path, text).map_err(BenchError::io(format!("writing {}", path.display())))
}

/// Describes this machine: number and model of its processors, and the kernel's release.
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown model", |(_, model)| model);
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let release = read("/proc/sys/kernel/osrelease");
    format!("{} processors ({model}), Linux {}", count.max(1), release.trim())
}

/// Returns the figures with the given numbers, and all figures of documents with these numbers; without numbers, all
/// figures.
pub fn chosen(numbers: &[String]) -> Result<Vec<&'static PaperFigure>> {
    let fits = |figure: &PaperFigure, wanted: &String| figure.number == wanted || figure.document().number == wanted;
    if let Some(unknown) = numbers.iter().find(|wanted| !ALL.iter().any(|figure| fits(figure, wanted))) {
        let known: Vec<_> = ALL.iter().map(|figure| figure.number).collect();
        return Err(BenchError::Unknown("figure", unknown.clone(), known.join(", ")));
    }
    let wanted = |figure: &&PaperFigure| numbers.is_empty() || numbers.iter().any(|number| fits(figure, number));
    Ok(ALL.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: figures are chosen by number or document, and an unknown number is refused with a list of the known
    /// numbers.
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

    /// Objective: the page has each figure with its title, lists what is missing, and interprets only measured figures.
    #[test]
    fn page() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |figure: &'static PaperFigure| FigureResults {
            figure,
            is_chosen: true,
            kept: Kept::open(folder.path(), figure.number, false).expect("none yet"),
        };
        let all: Vec<_> = ALL.iter().map(open).collect();
        let text = render(&all, "a machine", &VersionTable::default());
        for figure in ALL {
            assert!(text.contains(&format!("### {} {}", figure.number, figure.title)));
            assert!(figure.missing.iter().all(|line| text.contains(line)));
            assert!(!text.contains(figure.see));
        }
    }
}
