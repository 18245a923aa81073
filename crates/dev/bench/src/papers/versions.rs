//! The rates of netvale's versions in the PVP test (a generator, a vhost port and a guest that forwards): a table in
//! the repository, to which each release appends a row.

use std::path::Path;
use std::process::Command;

use super::kept::Kept;
use crate::error::{BenchError, Result};
use crate::record::figure;
use crate::sys::child::run;
use crate::sys::{append_line, read_if_present};

/// The figure that measures the rates and shows the table.
pub const FIGURE: &str = "4.3";
/// The variants of the PVP test whose rates a row contains.
const VARIANTS: [&str; 2] = ["mac mergeable", "io mergeable"];
/// The first line of the table's file: Mpps of both variants, and whether other work on the machine disturbed a run.
const HEAD: &str = "version\tdate\tcommit\tmachine\tmac_median\tmac_min\tmac_max\tio_median\tio_min\tio_max\tdisturbed";

/// The table: rows of fields, as in its file.
#[derive(Debug, Default)]
pub struct VersionTable {
    rows: Vec<Vec<String>>,
}

impl VersionTable {
    /// Reads the table from its file; if the file does not exist, the table has no rows.
    pub fn read(path: &Path) -> Result<VersionTable> {
        read_if_present(path)?.map_or_else(|| Ok(VersionTable::default()), |text| parse(&text, path))
    }

    /// Formats the table as Markdown.
    pub fn render(&self) -> String {
        if self.rows.is_empty() {
            return "No version of netvale has been measured yet.\n".to_owned();
        }
        let mut text = "netvale's vhost under DPDK's driver, by version, Mpps:\n\n\
            | version | date | commit | mac mergeable | io mergeable | machine |\n|---|---|---|--:|--:|---|\n"
            .to_owned();
        for row in &self.rows {
            let [version, date, commit, machine, mac, mac_min, mac_max, io, io_min, io_max, disturbed] = &row[..]
            else {
                continue;
            };
            let mark = if disturbed == "yes" { "\\*" } else { "" };
            text.push_str(&format!(
                "| {version} | {date} | {commit} | {mac} [{mac_min} – {mac_max}]{mark} | {io} [{io_min} – \
                 {io_max}]{mark} | {machine} |\n"
            ));
        }
        text
    }
}

/// Appends a row with the version, today's date, the commit of the checkout, the machine and the results in `kept`.
pub fn append(path: &Path, version: &str, machine: &str, kept: &Kept) -> Result<()> {
    VersionTable::read(path)?;
    let date = run(Command::new("date").arg("+%F"))?;
    let commit = run(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))?;
    let row = row([version, date.trim(), commit.trim(), machine], kept)?;
    append_line(path, HEAD, &row)
}

fn row(origin: [&str; 4], kept: &Kept) -> Result<String> {
    let mut fields = origin.map(str::to_owned).to_vec();
    let mut disturbed = "no";
    for variant in VARIANTS {
        let missing = || BenchError::Usage(format!("figure {FIGURE} has no result of the variant \"{variant}\""));
        let value = kept.values(variant, "netvale").next().ok_or_else(missing)?;
        fields.extend([value.median, value.min, value.max].map(figure));
        if value.disturbed {
            disturbed = "yes";
        }
    }
    fields.push(disturbed.to_owned());
    Ok(fields.iter().map(|field| field.replace(['\t', '\n'], " ")).collect::<Vec<_>>().join("\t"))
}

fn parse(text: &str, path: &Path) -> Result<VersionTable> {
    let mut lines = text.lines();
    let rows: Vec<Vec<String>> = match lines.next() {
        Some(HEAD) => lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect(),
        _ => return Err(BenchError::Usage(format!("{}: expected the first line {HEAD:?}", path.display()))),
    };
    let columns = HEAD.split('\t').count();
    match rows.iter().position(|row| row.len() != columns) {
        Some(at) => Err(BenchError::Usage(format!("{}:{}: expected {columns} columns", path.display(), at + 2))),
        None => Ok(VersionTable { rows }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use crate::record::tests::sample;

    /// Objective: results become a row, which is read back and shown with its range and the mark of a disturbance.
    #[test]
    fn rows_are_appended() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept::open(folder.path(), FIGURE, false).expect("none yet");
        assert!(row(["1.0", "2026-01-01", "abc", "a machine"], &kept).is_err());
        for variant in VARIANTS {
            let mut record = sample(None);
            record.case.variant = variant.into();
            record.disturbed = variant.starts_with("io");
            kept.add(&record.case.clone(), vec![Line::Record(Box::new(record))]).expect("written");
        }
        let row = row(["1.0", "2026-01-01", "abc", "a\tmachine"], &kept).expect("measured");
        assert_eq!(row, "1.0\t2026-01-01\tabc\ta machine\t100\t95.0\t104\t100\t95.0\t104\tyes");
        let table = parse(&format!("{HEAD}\n{row}\n"), Path::new("table")).expect("own output");
        assert!(table.render().contains("| 1.0 | 2026-01-01 | abc |"));
        assert!(table.render().ends_with("\\* | a machine |\n"));
    }

    /// Objective: an empty table becomes a sentence, and a row with another number of columns is refused with its line.
    #[test]
    fn other_tables() {
        let path = Path::new("versions.tsv");
        let none = parse(&format!("{HEAD}\n"), path).expect("no rows");
        assert!(none.render().contains("No version"));
        let short = format!("{HEAD}\n1.0\n");
        for (text, word) in [("", "first line"), ("version\n", "first line"), (&*short, "versions.tsv:2")] {
            assert!(parse(text, path).expect_err("refused").to_string().contains(word));
        }
    }

    /// Objective: the table in the repository can be read.
    #[test]
    fn the_repositorys() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/papers/pvp-by-version.tsv");
        assert!(path.exists());
        VersionTable::read(&path).expect("its columns");
    }
}
