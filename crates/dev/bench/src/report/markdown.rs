//! The report's page.

use std::path::{Path, PathBuf};

use crate::record::{Line, Record};
use crate::table::{as_record, as_skipped, distinct, notes};

/// Formats tables by scenario, the plots, the use of cores, and the skipped contenders.
pub fn render(lines: &[Line], plots: &[(String, PathBuf)]) -> String {
    let records: Vec<&Record> = lines.iter().filter_map(as_record).collect();
    let mut page = String::from(
        "# Measurements\n\nMedians of interleaved runs, `[min - max]` behind them. Ratio: ours over the peer's, or the \
         peer's over ours for times and CPU use; above 1 is better for us.\n",
    );
    for scenario in distinct(records.iter().map(|record| record.case.scenario.as_str())) {
        let own: Vec<&Record> = records.iter().copied().filter(|record| record.case.scenario == scenario).collect();
        page.push_str(&format!("\n## {scenario}\n\n{}{}", table(&own), cores(&own)));
        let prefix = format!("{scenario}-");
        for (title, path) in plots.iter().filter(|(_, path)| name(path).starts_with(&prefix)) {
            page.push_str(&format!("\n![{title}]({})\n", name(path)));
        }
    }
    let skipped = distinct(lines.iter().filter_map(as_skipped));
    if !skipped.is_empty() {
        page.push_str("\n## Skipped\n\n");
        for one in skipped {
            page.push_str(&format!("- {} in {}: {}\n", one.contender, one.scenario, cell(&one.skipped)));
        }
    }
    page
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn table(records: &[&Record]) -> String {
    let mut text = String::from(
        "| scenario | variant | bytes | batch | ports | contender | median | unit | peer | peer median \
         | ratio | runs | notes |\n\
         |---|---|--:|--:|--:|---|--:|---|---|--:|--:|--:|---|\n",
    );
    for record in records {
        let case = &record.case;
        let ours = record.own().range();
        let (peer, theirs) = record.peer().map_or_else(Default::default, |peer| (peer.name, peer.range()));
        let ratio = record.ratio().map_or_else(String::new, |ratio| format!("**{ratio:.2}**"));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {ours} | {} | {peer} | {theirs} | {ratio} | {} | {} |\n",
            cell(&case.scenario),
            cell(&case.label()),
            case.frame_bytes,
            case.batch,
            case.ports,
            cell(&record.contender),
            case.unit,
            record.summary.runs,
            notes(record),
        ));
    }
    text
}

/// Escapes or replaces the characters that would end a table's cell or a list's item.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn cores(records: &[&Record]) -> String {
    let ours = records.iter().map(|record| record.own());
    let all = ours.chain(records.iter().filter_map(|record| record.peer())).map(|side| (side.name, side.cores));
    let lines = distinct(all).into_iter().map(|(who, cores)| format!("- {who}: {cores}\n"));
    format!("\nHow cores were used:\n\n{}", lines.collect::<String>())
}
