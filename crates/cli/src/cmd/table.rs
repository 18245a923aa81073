//! `netvale table`: a switch's forwarding table.

use std::process::ExitCode;

use netvale_control::types::TableEntry;
use serde::Serialize;

use crate::grid::{self, Align};
use crate::{CliError, Ctx, out};

/// Show a switch's forwarding table.
///
/// For each address: the port it was learned on, and how many seconds ago it was last seen.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The switch, e.g. vale0.
    pub switch: String,

    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// The object of `--json`.
#[derive(Serialize)]
struct Table<'a> {
    switch: &'a str,
    entries: &'a [TableEntry],
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or there is no such switch.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let entries = ctx.daemon()?.ask(|client| client.table(&args.switch))?;
    if args.json {
        out::json(&Table { switch: &args.switch, entries: &entries })?;
    } else {
        out::text(render(&entries))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(entries: &[TableEntry]) -> String {
    let common = |entry: &TableEntry| [entry.mac.to_string(), entry.port.clone(), entry.age_seconds.to_string()];
    if entries.iter().all(|entry| entry.vlan.is_none()) {
        let heads = [("ADDRESS", Align::Left), ("PORT", Align::Left), ("AGE s", Align::Right)];
        return grid::render(heads, entries.iter().map(common));
    }
    let heads = [("VLAN", Align::Right), ("ADDRESS", Align::Left), ("PORT", Align::Left), ("AGE s", Align::Right)];
    let row = |entry: &TableEntry| {
        let [mac, port, age] = common(entry);
        [entry.vlan.unwrap_or_default().to_string(), mac, port, age]
    };
    grid::render(heads, entries.iter().map(row))
}

#[cfg(test)]
mod tests {
    use netvale_control::types::Mac;

    use super::*;

    /// Objective: one line an address, with its VLAN where there are some.
    #[test]
    fn lines() {
        let entry = TableEntry { mac: Mac([2, 0, 0, 0, 0, 10]), vlan: None, port: "vale0:a".into(), age_seconds: 7 };
        assert_eq!(
            render(std::slice::from_ref(&entry)),
            "ADDRESS            PORT     AGE s\n02:00:00:00:00:0a  vale0:a      7\n"
        );
        let tagged = TableEntry { vlan: Some(10), ..entry };
        let expected = "VLAN  ADDRESS            PORT     AGE s\n  10  02:00:00:00:00:0a  vale0:a      7\n";
        assert_eq!(render(&[tagged]), expected);
    }
}
