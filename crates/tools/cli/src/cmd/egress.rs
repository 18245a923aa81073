//! `netvale egress`: what guests may reach through a running gateway, and how much.

use std::io;
use std::path::{Path, PathBuf};

use netvale_gateway::control::message::ControlRequest;
use serde_json::Value;

use crate::gateways::{self, GatewayChoice};
use crate::{CliContext, CliError, out};

/// List and change what guests may reach through a running gateway, and how much.
///
/// A change holds immediately, and for open connections, too: those that the rules no longer allow are reset. It does
/// not outlive the gateway. `netvale gateway --help` explains rules.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct EgressArgs {
    #[command(flatten)]
    gateway: GatewayChoice,

    /// Print the gateway's answer as one JSON object.
    #[arg(long)]
    json: bool,

    #[command(subcommand)]
    action: Option<EgressAction>,
}

#[derive(Debug, clap::Subcommand)]
enum EgressAction {
    /// List the rules; the default.
    List,
    /// Add a rule that allows flows.
    Allow {
        /// ADDRESS[/PREFIX], NAME, *.NAME or any, then [:PORT[-PORT]][/tcp|/udp|/icmp].
        #[arg(value_name = "RULE")]
        rule: String,
    },
    /// Add a rule that denies flows.
    Deny {
        /// As for allow.
        #[arg(value_name = "RULE")]
        rule: String,
    },
    /// Limit guests: a rule for the same guests is replaced.
    Limit {
        /// [MAC|@PORT] [sent RATE] [received RATE] [new N/s] [open N]: rates of bytes that the guest sends
        /// and receives, as in tc (10mbit), new flows per second, simultaneous TCP connections. Without MAC and @PORT,
        /// the limits apply to each guest that no other rule names.
        #[arg(value_name = "LIMIT", required = true)]
        rule: Vec<String>,
    },
    /// Remove a rule.
    Remove {
        /// The rule as it is listed: allow RULE, deny RULE, or limit [GUEST].
        #[arg(value_name = "RULE", required = true)]
        rule: Vec<String>,
    },
    /// Replace all rules by those of a file.
    Set {
        /// A rule a line, as they are listed; empty lines and lines that begin with # do not count. '-' is standard
        /// input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

const EXAMPLES: &str = "\
Examples:
  netvale egress vale0                                lists the rules
  netvale egress vale0 allow example.com:443/tcp
  netvale egress vale0 remove allow example.com:443/tcp
  netvale egress vale0 limit sent 10mbit received 50mbit new 100/s open 500
  netvale egress vale0 limit @vm7 received 100mbit      the guest behind the private port vm7
  netvale egress vale0 remove limit @vm7
  netvale egress vale0 > rules; netvale egress vale0 set rules
";

/// Runs the subcommand.
///
/// # Errors
/// No gateway answers, or it refuses the rule; the file cannot be read.
pub fn run(args: &EgressArgs, ctx: &CliContext) -> Result<(), CliError> {
    let request = request(args.action.as_ref())?;
    let answer = args.gateway.connect(ctx)?.ask(&request)?;
    if args.json { out::json(&answer) } else { out::text(told(&answer, "rules")) }
}

fn request(action: Option<&EgressAction>) -> Result<ControlRequest, CliError> {
    Ok(match action {
        None | Some(EgressAction::List) => ControlRequest::Rules,
        Some(EgressAction::Allow { rule }) => ControlRequest::Allow { rule: rule.clone() },
        Some(EgressAction::Deny { rule }) => ControlRequest::Deny { rule: rule.clone() },
        Some(EgressAction::Limit { rule }) => ControlRequest::Limit { rule: rule.join(" ") },
        Some(EgressAction::Remove { rule }) => ControlRequest::Remove { rule: rule.join(" ") },
        Some(EgressAction::Set { file }) => ControlRequest::SetRules { rules: rules(&read(file)?) },
    })
}

fn read(file: &Path) -> Result<String, CliError> {
    let is_stdin = file == Path::new("-");
    let text = if is_stdin { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(file) };
    text.map_err(|error| CliError::failed(format!("cannot read {}: {error}", file.display()), "name a file of rules"))
}

fn rules(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Formats an answer of a gateway: the texts in its list `list`, one per line, or the number of flows that a change has
/// ended, if it has ended any.
pub(super) fn told(answer: &Value, list: &str) -> String {
    match answer.get("ended").and_then(Value::as_u64) {
        Some(0) => String::new(),
        Some(1) => "1 open flow ended\n".to_owned(),
        Some(ended) => format!("{ended} open flows ended\n"),
        None => gateways::texts(answer, list).into_iter().map(|rule| format!("{rule}\n")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EgressArgs,
    }

    fn asked(line: &[&str]) -> ControlRequest {
        let line = Line::try_parse_from(["egress"].iter().chain(line)).expect("a line");
        request(line.args.action.as_ref()).expect("a request")
    }

    #[test]
    fn each_word_is_a_request() {
        assert_eq!(asked(&["vale0"]), ControlRequest::Rules);
        assert_eq!(asked(&["vale0", "list"]), ControlRequest::Rules);
        assert_eq!(asked(&["vale0", "allow", "a.test:1"]), ControlRequest::Allow { rule: "a.test:1".into() });
        let limited = ControlRequest::Limit { rule: "@vm7 sent 1mbit new 5/s".into() };
        assert_eq!(asked(&["vale0", "limit", "@vm7", "sent", "1mbit", "new", "5/s"]), limited);
        assert!(Line::try_parse_from(["egress", "vale0", "limit"]).is_err());
        let removed = ControlRequest::Remove { rule: "deny any".into() };
        assert_eq!(asked(&["vale0", "remove", "deny", "any"]), removed);
        assert_eq!(asked(&["vale0", "remove", "deny any"]), removed);
        assert!(Line::try_parse_from(["egress", "vale0", "remove"]).is_err());
        assert!(Line::try_parse_from(["egress", "vale0", "permit", "any"]).is_err());
    }

    #[test]
    fn a_file_has_rules_and_comments() {
        assert_eq!(rules("# all\ndeny any\n\n  allow a.test # no\n"), ["deny any", "allow a.test # no"]);
    }

    #[test]
    fn an_answer_is_told_in_lines() {
        assert_eq!(told(&json!({"rules": ["deny any", "allow a.test"]}), "rules"), "deny any\nallow a.test\n");
        assert_eq!(told(&json!({"ended": 0}), "rules"), "");
        assert_eq!(told(&json!({"ended": 2}), "rules"), "2 open flows ended\n");
    }
}
