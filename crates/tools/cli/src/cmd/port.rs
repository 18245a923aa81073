//! `netvale port`: policies of ports, changed while frames pass.

use netvale_control::options::{AttachOption, MTU, OPTIONS, OptionShape};
use netvale_control::types::PortInfo;
use netvale_policy::units::Rate;
use serde_json::{Map, Value};

use super::filter::compiled;
use crate::{CliContext, CliError, out};

/// Change the policies of a port while frames pass.
///
/// Policies are VLANs, port security and rates. The options of `netvale attach` have the same names.
#[derive(Debug, clap::Args)]
pub struct PortArgs {
    #[command(subcommand)]
    command: PortCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PortCommand {
    Set(SetArgs),
}

/// Set policies of a port and the MTU of a TAP or vhost device, all of them or none.
///
/// Policies that are not named stay unchanged; 'default' resets a policy. A guest's driver reads its MTU only when it
/// starts. No frame is lost: frames pass under the old policies, then under the new ones.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = policies(),
    override_usage = "netvale port set [OPTIONS] <PORT> <POLICY> <VALUE> [<POLICY> <VALUE>]..."
)]
struct SetArgs {
    /// The port: SWITCH:NAME, e.g. vale0:vm1.
    port: String,

    /// Policies and their values, in pairs: access 10 isolated on.
    #[arg(value_name = "POLICY> <VALUE", required = true)]
    words: Vec<String>,

    /// Print the port as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// A word is not a policy, no daemon answers, the port does not exist, or the policies contradict each other.
pub fn run(args: &PortArgs, ctx: &CliContext) -> Result<(), CliError> {
    let PortCommand::Set(args) = &args.command;
    let set = read(&args.words)?;
    let mtu = set.get(MTU).map(|mtu| format!("mtu {}, ", mtu.as_u64().unwrap_or(1500))).unwrap_or_default();
    let port = ctx.daemon()?.ask(|client| client.set(&args.port, set))?;
    if args.json { out::json(&port) } else { out::line(format_args!("{}: {mtu}{}", port.name, told(&port))) }
}

/// Formats the policies of a port as arguments of `port set`.
pub fn told(port: &PortInfo) -> String {
    let word = |value: &Value| match value {
        Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(rules) => format!("({} rules)", rules.len()),
        other => other.to_string(),
    };
    let policies = OPTIONS.iter().filter_map(|option| Some((option.key, port.policies.get(option.key)?)));
    // Rates are printed with their unit: as in tc, a bare 100 would mean 100 bits per second.
    let said = |key: &str, value: &Value| match value.as_str().filter(|_| key.starts_with("rate_")) {
        Some(rate) => rate.parse::<Rate>().map_or_else(|_| rate.to_owned(), |rate| rate.to_string()),
        None => word(value),
    };
    let words: Vec<_> = policies.map(|(key, value)| format!("{key} {}", said(key, value))).collect();
    if words.is_empty() { "no policies".to_owned() } else { words.join(" ") }
}

fn read(words: &[String]) -> Result<Map<String, Value>, CliError> {
    let mut set = Map::new();
    for pair in words.chunks(2) {
        let [key, rest @ ..] = pair else { continue };
        let key = key.replace('-', "_");
        let option = AttachOption::find(&key).filter(|option| option.can_be_set());
        let option = option.ok_or_else(|| {
            let meant = nearest(&key).map(|known| format!("; did you mean {known}?")).unwrap_or_default();
            CliError::usage(format!("unknown policy {key}{meant}"), NEXT)
        })?;
        let [value] = rest else {
            return Err(CliError::usage(format!("{key} has no value"), format!("use {}, or default", option.shape)));
        };
        let value = match value.as_str() {
            "default" => Value::Null,
            rule if matches!(option.shape, OptionShape::List(_)) => Value::from(vec![compiled(rule)?]),
            word => option.shape.parse(word).map_err(|_| {
                CliError::usage(format!("invalid {key} {word:?}"), format!("expected {}, or default", option.shape))
            })?,
        };
        if set.insert(key.clone(), value).is_some() {
            return Err(CliError::usage(format!("{key} is given twice"), "omit one of them"));
        }
    }
    Ok(set)
}

/// Returns the policy with the most similar name; `None` if no name is similar enough.
fn nearest(key: &str) -> Option<&'static str> {
    const ALIKE: f64 = 0.85;
    let policies = OPTIONS.iter().filter(|option| option.can_be_set());
    let scored = policies.map(|option| (strsim::jaro_winkler(key, option.key), option.key));
    scored.filter(|(score, _)| *score >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, key)| key)
}

const NEXT: &str = "'netvale port set --help' lists the policies";

/// Lists all policies, for the help.
fn policies() -> String {
    let line = |option: &AttachOption| {
        let words = format!("{} {}", option.key, option.value_name);
        format!("  {words:<32} {}\n", option.doc().trim_end_matches('.'))
    };
    let lines: String = OPTIONS.iter().filter(|option| option.can_be_set()).map(line).collect();
    format!("Policies:\n{lines}")
        + "
Examples:
  netvale port set vale0:vm1 access 10 isolated on
  netvale port set vale0:uplink trunk 10,20-30 native 1
  netvale port set vale0:vm1 rate_in 100mbit access default
  netvale port set vale0:nv0 mtu 9000
"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(words: &str) -> Result<Value, String> {
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        read(&words).map(Value::from).map_err(|error| error.to_string())
    }

    /// Objective: words are pairs of a policy and its value; in policy names, dashes and underscores are equivalent;
    /// the value `default` becomes null.
    #[test]
    fn pairs_of_words_are_policies() {
        assert_eq!(
            of("access 10 isolated on max-addresses 3"),
            Ok(json!({"access": 10, "isolated": true, "max_addresses": 3}))
        );
        assert_eq!(of("trunk default native 7"), Ok(json!({"trunk": null, "native": 7})));
        assert_eq!(of("trunk 10,20-30 flood off"), Ok(json!({"trunk": "10,20-30", "flood": false})));
    }

    /// Objective: rates are printed with their unit.
    #[test]
    fn rates_are_printed_with_their_unit() {
        let policies = json!({"rate_in": "100", "access": 10}).as_object().cloned().unwrap_or_default();
        assert_eq!(told(&PortInfo { policies, ..PortInfo::default() }), "access 10 rate_in 100bit");
    }

    /// Objective: unknown policies, and missing or invalid values, are refused, and the error names the policy.
    #[test]
    fn bad_policies_are_refused_by_name() {
        for (words, name) in
            [("rings 2", "rings"), ("access", "access"), ("access 5000", "access"), ("isolated maybe", "isolated")]
        {
            assert!(of(words).unwrap_err().contains(name), "{words}");
        }
        assert!(of("access 1 access 2").unwrap_err().contains("twice"));
        assert!(of("acces 1").unwrap_err().ends_with("; did you mean access?"));
        assert!(of("xyz 1").unwrap_err().ends_with("policy xyz"));
    }
}
