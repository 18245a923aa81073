//! `netvale monitor`: prints events of the daemon and of gateways as they happen.

mod flows;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use netvale_control::client::ClientError;
use netvale_control::types::{Event, EventName, SubscribeParams};
use netvale_gateway::control::survey;
use netvale_portspec::printable;
use serde_json::Value;

use self::flows::GatewayWatch;
use crate::ctx::DaemonClient;
use crate::{CliContext, CliError, out, values};

/// Maximum number of events that wait to be printed.
const QUEUE: usize = 64;

/// Maximum length of a single wait if the user sets no limit.
const LONG: Duration = Duration::from_secs(3600);

/// Print events as they happen, one per line.
///
/// Events are ports attached and detached, ports opened and closed by programs and guests, changes of links and
/// policies, refused requests, and guests' flows through gateways: at most 20 a second of each gateway, or 1,000 with
/// --json or if they are among --events; the event flow.lost counts the others. Shows the events of all the user's
/// ports (for root, of all users' ports), or only those of the named switches and ports. Ends with the daemon, but
/// continues after an upgrade (`netvale upgrade`).
#[derive(Debug, clap::Args)]
#[command(after_long_help = events())]
pub struct MonitorArgs {
    /// Only events of these switches and ports: vale0, vale0:web.
    #[arg(value_name = "SWITCH[:PORT]")]
    only: Vec<String>,

    /// Only these events and groups of events, such as port.attached,guest.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    events: Vec<String>,

    /// End after this many events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after this many seconds; a failure if there were fewer events than --count.
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    timeout: Option<f64>,

    /// Print one JSON object a line instead of text.
    #[arg(long)]
    json: bool,
}

fn events() -> String {
    let all = EventName::ALL.iter().map(|name| (name.as_str(), name.meaning())).chain(flows::NAMES);
    let width = all.clone().map(|(name, _)| name.len()).max().unwrap_or_default();
    let line = |(name, meaning)| format!("  {name:width$}  {meaning}\n");
    format!("Events:\n{}", all.map(line).collect::<String>())
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or the daemon ends; there are too many subscriptions; or fewer events than requested arrived in
/// time.
pub fn run(args: &MonitorArgs, ctx: &CliContext) -> Result<(), CliError> {
    let end = args.timeout.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let events = begin(args, ctx)?;
    // This line is not an event. Every event after it is printed, so a script that waits for the line may continue.
    netvale_control::note!("events from now on:");
    let mut seen = 0;
    let mut stalls = Stalls { asked: args.json || !args.events.is_empty(), ..Stalls::default() };
    while args.count.is_none_or(|count| seen < count) {
        let limit = end.map_or(LONG, |end| end.saturating_duration_since(Instant::now()));
        match events.recv_timeout(limit) {
            Ok(event) => {
                let mut event = event?;
                if !stalls.takes(&mut event, Instant::now()) {
                    continue;
                }
                print(&event, args.json)?;
            }
            Err(RecvTimeoutError::Timeout) if end.is_some() => return in_time(seen, args),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Err(ended()),
        }
        seen += 1;
    }
    Ok(())
}

/// An event, or the error that ends the command.
type EventResult = Result<Event, CliError>;

/// Subscribes to the daemon's events and to the gateways' flows. Two threads, which end with the process, pass them to
/// the returned channel. Events that happen after this call has returned are not missed.
fn begin(args: &MonitorArgs, ctx: &CliContext) -> Result<Receiver<EventResult>, CliError> {
    let (flows, mut names): (Vec<_>, Vec<_>) = args.events.iter().cloned().partition(|name| flows::is_flow(name));
    let has_flows = args.events.is_empty() || !flows.is_empty();
    // If only flow events are requested, the daemon's events serve only to notice that the daemon ends.
    let only_flows = names.is_empty() && has_flows && !args.events.is_empty();
    if only_flows {
        names = vec![EventName::DaemonEnding.as_str().to_owned()];
    }
    let mut daemon = ctx.daemon()?;
    let params = SubscribeParams { only: args.only.clone(), names, snapshot: false };
    daemon.ask(|client| client.subscribe(params))?;
    // A slow reader of the output blocks the threads: the daemon and the gateways then drop events and report how many.
    let (events, taken) = mpsc::sync_channel(QUEUE);
    if has_flows {
        let asked = args.json || !flows.is_empty();
        let choice = flows::FlowChoice { only: args.only.clone(), names: flows, asked };
        let mut watch = GatewayWatch::new(survey::folders(&ctx.dir()), choice);
        let events = events.clone();
        let first = watch.begin();
        std::thread::spawn(move || follow(&mut watch, first, &events));
    }
    std::thread::spawn(move || while report(&mut daemon, only_flows, &events) {});
    Ok(taken)
}

/// Passes on the gateways' events until the channel's receiver is dropped.
fn follow(watch: &mut GatewayWatch, first: Vec<Event>, to: &SyncSender<EventResult>) {
    let mut events = first;
    while events.into_iter().all(|event| to.send(Ok(event)).is_ok()) {
        events = watch.next(LONG);
    }
}

/// Passes on the daemon's next event. Returns whether the daemon may send another event.
fn report(daemon: &mut DaemonClient, only_end: bool, to: &SyncSender<EventResult>) -> bool {
    let next = daemon.ask(|client| match client.next_event(LONG) {
        Err(ClientError::Lost { .. }) => Ok(Err(ended())),
        other => other.map(Ok),
    });
    match next.flatten().transpose() {
        None => true,
        Some(Ok(_)) if only_end => true,
        Some(event) => {
            let goes_on = event.is_ok();
            to.send(event).is_ok() && goes_on
        }
    }
}

fn ended() -> CliError {
    CliError::unreachable("the daemon has ended", "restart the daemon, then this command")
}

/// Minimum interval between stall events in the output.
const STALLS_EVERY: Duration = Duration::from_secs(60);

/// Thins out stall events. On a busy machine, threads stall several times per second, and these events would hide other
/// events.
#[derive(Default)]
struct Stalls {
    /// Whether all stalls are printed: a program reads the output, or the user requested these events.
    asked: bool,
    told: Option<Instant>,
    left_out: u64,
}

impl Stalls {
    /// Returns whether to print the event. A printed stall event carries the number of stall events that were omitted
    /// before it.
    fn takes(&mut self, event: &mut Event, now: Instant) -> bool {
        if self.asked || event.name != EventName::DaemonStalled.as_str() {
            return true;
        }
        if self.told.is_some_and(|told| now.duration_since(told) < STALLS_EVERY) {
            self.left_out += 1;
            return false;
        }
        if self.left_out > 0 {
            event.details.insert("left_out".to_owned(), self.left_out.into());
        }
        self.told = Some(now);
        self.left_out = 0;
        true
    }
}

fn in_time(seen: u64, args: &MonitorArgs) -> Result<(), CliError> {
    match (args.count, args.timeout) {
        (Some(count), Some(limit)) => {
            let what = format!("{seen} of {count} events arrived within {limit} s");
            Err(CliError::failed(what, "use a longer --timeout, or other event names"))
        }
        _ => Ok(()),
    }
}

fn print(event: &Event, json: bool) -> Result<(), CliError> {
    if !json {
        return out::line(line(event));
    }
    let mut value = serde_json::json!(event);
    // Flow events come from gateways, so they have neither a sequence number nor a time by the daemon's clock.
    if let Some(fields) = value.as_object_mut().filter(|_| flows::is_flow(&event.name)) {
        fields.retain(|field, _| field != "sequence" && field != "now_ns");
    }
    out::json(&value)
}

/// Formats an event: time, name, port or switch, then the other fields. Peers choose some values, so characters that
/// control the terminal or hide other characters are replaced.
fn line(event: &Event) -> String {
    let place = event.port.as_ref().or(event.switch.as_ref());
    let mut words = vec![event.time.clone(), event.name.clone()];
    words.extend(place.map(|place| word(&Value::from(place.as_str()))));
    words.extend(event.details.iter().map(|(key, value)| format!("{key}={}", word(value))));
    words.extend(event.by.map(|by| format!("uid={} pid={}", by.uid, by.pid)));
    words.extend(event.why.as_ref().map(|why| format!("why={}", Value::from(why.as_str()))));
    printable(&words.join(" "))
}

/// Formats a value as a single word.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '"') => {
            text.clone()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(event: Value) -> String {
        line(&serde_json::from_value(event).unwrap())
    }

    /// Objective: one stall a minute is printed, with the number of those omitted; all other events are printed, and on
    /// request all stalls.
    #[test]
    fn repeated_stalls_are_merged_into_one() {
        let event = |name: &str| {
            let event = json!({"sequence": 1, "time": "T", "now_ns": 1, "name": name, "stalls": 1});
            serde_json::from_value::<Event>(event).unwrap()
        };
        let mut stalls = Stalls::default();
        let begin = Instant::now();
        let mut takes = |name: &str, seconds| {
            let mut event = event(name);
            stalls.takes(&mut event, begin + Duration::from_secs(seconds)).then(|| line(&event))
        };
        assert!(takes("daemon.stalled", 0).is_some());
        assert_eq!((takes("daemon.stalled", 1), takes("daemon.stalled", 59)), (None, None));
        assert!(takes("port.attached", 59).is_some());
        let line = takes("daemon.stalled", 61).unwrap();
        assert!(line.contains("left_out=2"), "{line}");
        let mut asked = Stalls { asked: true, ..Stalls::default() };
        assert!((0..3).all(|_| asked.takes(&mut event("daemon.stalled"), begin)));
    }

    /// Objective: a line has the time, the name, the place and all fields; values with spaces or control characters
    /// stay one word.
    #[test]
    fn a_line_has_the_time_and_all_fields() {
        let attached = json!({
            "sequence": 1, "time": "T", "now_ns": 1, "name": "port.attached", "switch": "vale0", "port": "vale0:a",
            "by": {"uid": 7, "pid": 8}, "kind": "local",
        });
        assert_eq!(of(attached), "T port.attached vale0:a kind=local uid=7 pid=8");
        let made = json!({"sequence": 1, "time": "T", "now_ns": 1, "name": "switch.made", "switch": "vale0"});
        assert_eq!(of(made), "T switch.made vale0");
        let other = json!({
            "sequence": 1, "time": "T", "now_ns": 1, "name": "later.on", "why": "a \u{1b}[31m\"b",
            "set": {"rate_in": null}, "thread": "worker 1",
        });
        let expected = r#"T later.on set={"rate_in":null} thread="worker 1" why="a \u001b[31m\"b""#;
        assert_eq!(of(other), expected);
    }

    /// Objective: characters that control a terminal, hide or reorder text are replaced in every field that a peer or
    /// the name of a gateway's control socket can influence, and a port or switch whose name has blanks is printed as
    /// one word.
    #[test]
    fn a_line_controls_no_terminal() {
        let hidden = ['\u{1b}', '\u{9b}', '\u{7f}', '\n', '\u{202e}', '\u{200b}', '\u{2066}'];
        for c in hidden {
            let [word, key] = [format!("a{c}b"), format!("k{c}")];
            let odd = json!({
                "sequence": 1, "time": "T", "now_ns": 1, "name": word, "port": word, "why": word, key: word,
                "list": [word], "by": {"uid": 7, "pid": 8},
            });
            let line = of(odd);
            assert!(!line.contains(hidden), "{line:?}");
            assert!(line.starts_with("T a\u{fffd}b ") && line.contains(" uid=7 pid=8 why=\"a"), "{line:?}");
        }
        let spaced = json!({"sequence": 1, "time": "T", "now_ns": 1, "name": "n", "port": "vale0:a uid=0"});
        assert_eq!(of(spaced), "T n \"vale0:a uid=0\"");
    }
}
