//! `netvale flows`: guests' flows through a running gateway.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use netvale_gateway::control::message::ControlRequest;
use serde_json::Value;

use crate::gateways::{GatewayCaller, GatewayChoice};
use crate::grid;
use crate::grid::Align::{Left, Right};
use crate::{CliContext, CliError, out};

/// Show guests' flows through a running gateway.
///
/// For each open flow: both ends, the name for which the guest has got the address, the bytes sent and received by the
/// guest, and its age. With --follow, each flow that is opened, refused or closed from now on, a line each.
#[derive(Debug, clap::Args)]
pub struct FlowsArgs {
    #[command(flatten)]
    gateway: GatewayChoice,

    /// Print events as they happen, until the gateway ends.
    #[arg(long)]
    follow: bool,

    /// Print one JSON object instead of the table; with --follow, one a line.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No gateway answers, or the gateway ends while its flows are followed.
pub fn run(args: &FlowsArgs, ctx: &CliContext) -> Result<(), CliError> {
    let mut gateway = args.gateway.connect(ctx)?;
    if args.follow {
        return follow(&mut gateway, args.json);
    }
    let answer = gateway.ask(&ControlRequest::Flows { most: None })?;
    if args.json { out::json(&answer) } else { out::text(render(&answer)) }
}

fn follow(gateway: &mut GatewayCaller, json: bool) -> Result<(), CliError> {
    gateway.ask(&ControlRequest::Follow)?;
    // This line is not an event. Every event after it is printed, so a script that waits for the line may continue.
    netvale_control::note!("flows from now on:");
    while let Some(line) = gateway.next_line()? {
        match serde_json::from_str::<Value>(&line) {
            Ok(event) if !json => out::line(told(&event))?,
            _ => out::line(&line)?,
        }
    }
    Err(CliError::unreachable("the gateway has ended", "start the gateway again, then this command"))
}

fn text<'a>(flow: &'a Value, field: &str) -> &'a str {
    flow.get(field).and_then(Value::as_str).unwrap_or("-")
}

fn number(flow: &Value, field: &str) -> u64 {
    flow.get(field).and_then(Value::as_f64).unwrap_or_default() as u64
}

fn render(answer: &Value) -> String {
    let heads = [
        ("PROTOCOL", Left),
        ("GUEST", Left),
        ("", Left),
        ("REMOTE", Left),
        ("NAME", Left),
        ("SENT", Right),
        ("RECEIVED", Right),
        ("AGE s", Right),
    ];
    let flows = answer.get("flows").and_then(Value::as_array).into_iter().flatten();
    let row = |flow: &Value| {
        let words =
            [text(flow, "transport"), text(flow, "guest"), arrow(flow), text(flow, "remote"), text(flow, "name")];
        let numbers = ["sent", "received", "seconds"].map(|field| number(flow, field).to_string());
        words.map(str::to_owned).into_iter().chain(numbers).collect::<Vec<_>>()
    };
    let table = grid::render_within(heads, flows.map(row), &["AGE s", "NAME"], out::width());
    match number(answer, "more") {
        0 => table,
        more => format!("{table}… and {more} more\n"),
    }
}

fn arrow(flow: &Value) -> &'static str {
    if text(flow, "direction") == "in" { "<-" } else { "->" }
}

/// Formats an event: time, event, the flow's ends; then the name, the reason and the bytes, if the event has them.
fn told(event: &Value) -> String {
    let seconds = event.get("time").and_then(Value::as_f64).unwrap_or_default();
    let time = Timestamp::from_millisecond((seconds * 1000.0) as i64).unwrap_or_default();
    let time = time.to_zoned(TimeZone::system()).strftime("%H:%M:%S%.3f").to_string();
    if text(event, "event") == "lost" {
        return format!("{time} {} events lost", number(event, "lines"));
    }
    let [what, transport, guest, remote] = ["event", "transport", "guest", "remote"].map(|field| text(event, field));
    let mut line = format!("{time} {what} {transport} {guest} {} {remote}", arrow(event));
    for (field, before) in [("name", " "), ("reason", ": ")] {
        line.extend(event.get(field).and_then(Value::as_str).map(|word| format!("{before}{word}")));
    }
    if event.get("sent").is_some() {
        let [sent, received] = ["sent", "received"].map(|field| number(event, field));
        line.push_str(&format!(", {sent} bytes sent, {received} received"));
    }
    line.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flow() -> Value {
        json!({
            "time": 0.0, "event": "open", "transport": "tcp", "direction": "out", "port": "02:00:00:00:00:09",
            "guest": "10.0.0.9:4000", "remote": "192.0.2.1:443", "name": "example.com", "sent": 100, "received": 2000,
            "seconds": 7.5,
        })
    }

    #[test]
    fn each_flow_has_a_line() {
        let mut way_in = flow();
        way_in["direction"] = "in".into();
        way_in.as_object_mut().expect("an object").remove("name");
        let text = render(&json!({"flows": [flow(), way_in], "more": 3}));
        let expected = "\
PROTOCOL  GUEST              REMOTE         NAME         SENT  RECEIVED  AGE s
tcp       10.0.0.9:4000  ->  192.0.2.1:443  example.com   100      2000      7
tcp       10.0.0.9:4000  <-  192.0.2.1:443  -             100      2000      7
… and 3 more
";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_event_is_told_in_a_line() {
        let mut event = flow();
        event["event"] = "closed".into();
        event["reason"] = "end".into();
        let line = told(&event);
        let (_, line) = line.split_once(' ').expect("a time");
        let expected = "closed tcp 10.0.0.9:4000 -> 192.0.2.1:443 example.com: end, 100 bytes sent, 2000 received";
        assert_eq!(line, expected);
        let lost = told(&json!({"time": 0.0, "event": "lost", "lines": 5}));
        assert!(lost.ends_with(" 5 events lost"), "{lost}");
    }
}
