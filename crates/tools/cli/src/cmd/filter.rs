//! `netvale filter`: shows and changes the rules for a port's frames in either direction.

use std::collections::BTreeMap;

use clap::ValueEnum;
use netvale_control::options::{CompiledRule, WrittenValue};
use netvale_control::types::{Direction, Policies, PortInfo};
use netvale_daemon::config::Config;
use serde_json::{Map, Value};

use crate::grid;
use crate::grid::Align::{Left, Right};
use crate::{CliContext, CliError, libpcap, out};

/// Show or change the filters of a port.
///
/// Rules are checked in order: the first one that matches a frame decides whether it is dropped or passes. A frame that
/// matches no rule passes. The expression is in the language of pcap-filter(7). libpcap compiles it in this command;
/// the daemon verifies and runs the program. With only a port, its rules are shown, each with the number of frames that
/// it decided.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct FilterArgs {
    /// The port: SWITCH:NAME, e.g. vale0:vm1.
    port: String,

    /// Frames that the port sends (in), or frames that it receives (out).
    #[arg(value_name = "in|out", requires = "action")]
    dir: Option<FilterDirection>,

    /// Add a rule to the end, or delete rules.
    action: Option<FilterAction>,

    /// The expression, as one argument or several; for 'delete', the number of a rule, or 'all'.
    #[arg(value_name = "EXPRESSION")]
    words: Vec<String>,

    /// Add the rule before the one with this number, counted from 1.
    #[arg(long, value_name = "NUMBER")]
    before: Option<usize>,

    /// Print the rules as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FilterDirection {
    In,
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FilterAction {
    /// Matching frames are dropped.
    Drop,
    /// Matching frames pass, whatever later rules decide.
    Pass,
    /// Delete one rule, or all.
    Delete,
}

const EXAMPLES: &str = "\
Examples:
  netvale filter vale0:vm1 in drop 'not (host 10.0.0.1 or udp port 53)'
  netvale filter vale0:vm1 in pass arp --before 1
  netvale filter vale0:vm1
  netvale filter vale0:vm1 in delete 2
  netvale filter vale0:vm1 in delete all
";

/// Runs the subcommand.
///
/// # Errors
/// The expression cannot be compiled, the rule does not exist, no daemon answers, or the port does not exist.
pub fn run(args: &FilterArgs, ctx: &CliContext) -> Result<(), CliError> {
    let mut daemon = ctx.daemon()?;
    let mut port = daemon.ask(|client| client.show(&args.port))?;
    if let (Some(dir), Some(action)) = (args.dir, args.action) {
        let key = if dir == FilterDirection::In { "filter_in" } else { "filter_out" };
        let rules = changed(args, action, rules_of(&port, key))?;
        let value = if rules.is_empty() { Value::Null } else { rules.into() };
        let set = Map::from_iter([(key.to_owned(), value)]);
        port = daemon.ask(|client| client.set(&args.port, set))?;
    }
    if args.json { out::json(&port.rules) } else { out::text(render(&port)) }
}

fn rules_of(port: &PortInfo, key: &str) -> Vec<String> {
    let list = port.policies.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn changed(args: &FilterArgs, action: FilterAction, mut rules: Vec<String>) -> Result<Vec<String>, CliError> {
    let expression = args.words.join(" ");
    if action == FilterAction::Delete {
        if expression == "all" {
            return Ok(Vec::new());
        }
        let at = number(&expression, rules.len())?;
        rules.remove(at);
        return Ok(rules);
    }
    let at = match args.before {
        Some(before) => number(&before.to_string(), rules.len())?,
        None => rules.len(),
    };
    let action = if action == FilterAction::Drop { "drop" } else { "pass" };
    rules.insert(at, compiled(&format!("{action} {expression}"))?);
    Ok(rules)
}

/// Parses a rule's number, counted from 1. Returns the rule's index.
fn number(text: &str, count: usize) -> Result<usize, CliError> {
    let found = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).filter(|at| *at < count);
    found.ok_or_else(|| {
        CliError::usage(
            format!("invalid rule {text:?}: expected a number from 1 to {count}"),
            "'netvale filter PORT' shows the rules with their numbers",
        )
    })
}

/// Returns a rule in the daemon's form, in which a compiled program replaces the expression.
///
/// # Errors
/// The expression cannot be compiled.
pub fn compiled(rule: &str) -> Result<String, CliError> {
    let Some((action, expression)) = CompiledRule::source(rule) else { return Ok(rule.to_owned()) };
    compile(action == "drop", expression).map(|rule| rule.to_string())
}

/// Compiles an expression to a rule.
///
/// # Errors
/// The expression cannot be compiled.
pub fn compile(drops: bool, expression: &str) -> Result<CompiledRule, CliError> {
    Ok(CompiledRule { drops, program: libpcap::compile(expression)?, expression: Some(expression.to_owned()) })
}

/// Compiles the rules of a configuration. Returns a map from each rule's text to its compiled form.
///
/// # Errors
/// A rule cannot be compiled.
pub fn programs(config: &Config) -> Result<BTreeMap<String, String>, CliError> {
    let sources = config.policies().flat_map(Policies::sources).map(WrittenValue::text);
    sources.map(|rule| Ok((rule.to_owned(), compiled(rule)?))).collect()
}

/// Formats the rules of a port, one per line.
pub fn render(port: &PortInfo) -> String {
    if port.rules.is_empty() {
        return format!("{}: no rules\n", port.name);
    }
    let heads = [("DIR", Left), ("RULE", Right), ("ACTION", Left), ("FRAMES", Right), ("EXPRESSION", Left)];
    let mut numbers = [0, 0];
    let row = port.rules.iter().map(|rule| {
        let number = &mut numbers[usize::from(rule.dir == Direction::Out)];
        *number += 1;
        let action = if rule.drops { "drop" } else { "pass" };
        [rule.dir.to_string(), number.to_string(), action.to_owned(), rule.frames.to_string(), rule.expression.clone()]
    });
    grid::render(heads, row.collect::<Vec<_>>())
}
