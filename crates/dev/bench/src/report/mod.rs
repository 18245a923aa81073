//! `netvale-bench report`: makes a Markdown page with tables and SVG plots from result files.

mod bars;
pub mod curves;
mod distribution;
mod markdown;
pub mod marks;
pub mod plot;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{BenchError, Result};
use crate::record::read_lines;
use crate::table::as_record;

/// Reads the result files (`netvale-bench --json`), and writes `report.md` and its plots to `folder`. Returns the files
/// written.
pub fn report(files: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    let mut lines = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).map_err(BenchError::io(format!("reading {}", file.display())))?;
        lines.extend(read_lines(&text, file)?);
    }
    if lines.is_empty() {
        return Err(BenchError::Usage("found no results; make some with `netvale-bench --json … > FILE.jsonl`".into()));
    }
    fs::create_dir_all(folder).map_err(BenchError::io(format!("creating {}", folder.display())))?;
    let records: Vec<_> = lines.iter().filter_map(as_record).collect();
    let mut plots = Vec::new();
    for plot in [curves::find, bars::find, distribution::find].into_iter().flat_map(|find| find(&records)) {
        let title = plot.title.clone();
        let path = folder.join(&plot.file_name);
        plot::draw(plot, &path)?;
        plots.push((title, path));
    }
    let page = folder.join("report.md");
    fs::write(&page, markdown::render(&lines, &plots))
        .map_err(BenchError::io(format!("writing {}", page.display())))?;
    Ok(std::iter::once(page).chain(plots.into_iter().map(|(_, path)| path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Unit;
    use crate::record::tests::sample;
    use crate::record::{Line, Record};

    fn sweep() -> Vec<Record> {
        let mut records = Vec::new();
        for (batch, ours, theirs) in [(1, 10.0, 8.0), (32, 80.0, 29.0), (256, 110.0, 30.0)] {
            for peer in ["dpdk-memif", "dpdk-memif-zc"] {
                let mut record = sample(Some(peer));
                record.case.batch = batch;
                record.summary.median = ours;
                if let Some(against) = &mut record.against {
                    against.peer_median = theirs;
                }
                records.push(record);
            }
        }
        let mut latency = sample(Some("eventfd"));
        latency.case.scenario = "latency".into();
        latency.case.unit = Unit::Micros;
        latency.percentiles = vec![(1.0, 0.5), (50.0, 0.8), (99.0, 2.0), (100.0, 40.0)];
        if let Some(against) = &mut latency.against {
            against.peer_percentiles = vec![(1.0, 30.0), (50.0, 34.0), (100.0, 900.0)];
        }
        records.push(latency);
        records
    }

    fn write(folder: &Path, text: &str) -> PathBuf {
        let file = folder.join("results.jsonl");
        fs::write(&file, text).expect("a file");
        file
    }

    /// Objective: a sweep and a latency become a page, a curve and a distribution; axes have units, legends have all
    /// contenders, and the page links to the plots.
    #[test]
    fn results_become_a_page_with_plots() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let to_json = |record: Record| crate::record::to_json(&Line::Record(Box::new(record))).expect("finite");
        let text: Vec<String> = sweep().into_iter().map(to_json).collect();
        let file = write(folder.path(), &text.join("\n"));
        let written = report(&[file], &folder.path().join("out")).expect("good results");
        assert_eq!(written.len(), 3, "{written:?}");
        let content: Vec<String> = written.iter().map(|file| fs::read_to_string(file).expect("written")).collect();
        let [page, curve, cumulated] = &content[..] else { panic!("three files") };
        assert!(page.contains("| pipe | touched | 60 | 256 |") && page.contains(".svg)"), "{page}");
        for wanted in ["frames a batch", "Mpps", "netvale", "dpdk-memif-zc", "256"] {
            assert!(curve.contains(wanted), "{wanted} is missing in the curve");
        }
        for wanted in ["one-way time, us", "percent", "netvale", "eventfd"] {
            assert!(cumulated.contains(wanted), "{wanted} is missing in the distribution");
        }
    }

    /// Objective: for a malformed line, the file and the line's number are reported; empty results are refused, with
    /// what to do.
    #[test]
    fn broken_results_are_named_by_file_and_number() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = write(folder.path(), "\n{\"scenario\": 1}\n");
        let error = report(&[file], folder.path()).expect_err("no result").to_string();
        assert!(error.contains("results.jsonl:2"), "{error}");
        let file = write(folder.path(), "\n");
        assert!(report(&[file], folder.path()).expect_err("nothing").to_string().contains("--json"));
    }
}
