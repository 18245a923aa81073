//! `netvale link`: impairs the link between a port and its peer, with netem's keywords.

use netvale_control::types::PortInfo;
use netvale_policy::impair::Spec;
use serde_json::{Map, Value};

use crate::values::LINK_WORDS;
use crate::{CliContext, CliError, out};

/// Degrade a port's link: delay, loss, duplicates, reordering, corruption, rate.
///
/// The words are those of 'tc qdisc add ... netem', see tc-netem(8). Without a direction, or with 'in', they apply to
/// frames that the port's peer sends, as with netem on the peer's own interface; with 'out', to frames that the peer
/// receives; with 'both', to each direction separately. The change takes effect immediately, but not for frames in
/// flight. Without words, the current state is shown; 'off' removes all impairments.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LINK_WORDS, override_usage = "netvale link [OPTIONS] <PORT> [in|out|both] [WORDS]...")]
pub struct LinkArgs {
    /// The port: SWITCH:NAME, e.g. vale0:r1.
    port: String,

    /// A direction, and the words.
    #[arg(value_name = "WORDS", allow_hyphen_values = true)]
    words: Vec<String>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// A word is not a keyword of netem, no daemon answers, or the port does not exist.
pub fn run(args: &LinkArgs, ctx: &CliContext) -> Result<(), CliError> {
    let (keys, words) = directions(&args.words);
    let mut daemon = ctx.daemon()?;
    let port = if words.is_empty() {
        daemon.ask(|client| client.show(&args.port))?
    } else {
        let value = value(&words.join(" "))?;
        let set: Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), value.clone())).collect();
        daemon.ask(|client| client.set(&args.port, set))?
    };
    if args.json { out::json(&links(&port)) } else { out::text(render(&port)) }
}

const KEYS: [&str; 2] = ["link_in", "link_out"];

fn directions(words: &[String]) -> (&'static [&'static str], &[String]) {
    match words {
        [first, rest @ ..] if first == "in" => (&KEYS[..1], rest),
        [first, rest @ ..] if first == "out" => (&KEYS[1..], rest),
        [first, rest @ ..] if first == "both" => (&KEYS[..], rest),
        all => (&KEYS[..1], all),
    }
}

fn value(words: &str) -> Result<Value, CliError> {
    if words == "off" {
        return Ok(Value::Null);
    }
    let spec = words.parse::<Spec>();
    let spec = spec.map_err(|why| CliError::usage(why.to_string(), "'netvale link --help' lists the words"))?;
    Ok(spec.to_string().into())
}

fn links(port: &PortInfo) -> Map<String, Value> {
    let of = |key: &str| Some((key.to_owned(), port.policies.get(key)?.clone()));
    KEYS.into_iter().filter_map(of).collect()
}

fn render(port: &PortInfo) -> String {
    let links = links(port);
    let line = |(key, name): (&str, &str)| {
        let words = links.get(key).and_then(Value::as_str).unwrap_or("good");
        format!("{} {name}: {words} ({})\n", port.name, counts(port, name))
    };
    KEYS.into_iter().zip(["in", "out"]).map(line).collect()
}

/// Formats the number of frames in a direction, and the numbers of frames that the link lost.
fn counts(port: &PortInfo, dir: &str) -> String {
    let rings = || port.rings.iter().filter(|ring| ring.dir.to_string() == dir);
    let lost = |reason: &str| rings().filter_map(|ring| ring.drops.get(reason)).sum::<u64>();
    let frames: u64 = rings().map(|ring| ring.frames).sum();
    let lost = [(lost("link-loss"), "lost"), (lost("link-full"), "too many for its queue")];
    let lost = lost.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("; {count} {what}"));
    format!("{frames} frames{}", lost.collect::<String>())
}

#[cfg(test)]
mod tests {
    use netvale_control::types::{Direction, RingInfo};

    use super::*;

    /// Objective: each direction is shown with its impairments, its frames, and its losses.
    #[test]
    fn each_direction_shows_its_words_and_losses() {
        let ring = |dir, frames, drops: &[(&str, u64)]| {
            let drops = drops.iter().map(|&(reason, count)| (reason.to_owned(), count)).collect();
            RingInfo { dir, frames, drops, ..RingInfo::default() }
        };
        let lost = [("link-loss", 3), ("link-full", 1), ("no-room", 9)];
        let rings = vec![ring(Direction::In, 7, &lost), ring(Direction::In, 5, &[]), ring(Direction::Out, 2, &[])];
        let mut port = PortInfo { name: "vale0:a".into(), rings, ..PortInfo::default() };
        port.policies = serde_json::from_value(serde_json::json!({"link_in": "loss 1%"})).unwrap();
        let lines = "vale0:a in: loss 1% (12 frames; 3 lost; 1 too many for its queue)\nvale0:a out: good (2 frames)\n";
        assert_eq!(render(&port), lines);
    }

    /// Objective: a direction may precede the words; the words are parsed as netem parses them, and 'off' removes the
    /// impairments.
    #[test]
    fn the_words_are_parsed_as_netems() {
        let split = |text: &str| {
            let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
            let (keys, rest) = directions(&words);
            (keys.to_vec(), rest.join(" "))
        };
        assert_eq!(split("delay 7ms"), (vec!["link_in"], "delay 7ms".to_owned()));
        assert_eq!(split("both off"), (vec!["link_in", "link_out"], "off".to_owned()));
        assert_eq!(value("delay 70000").unwrap(), "delay 70ms");
        assert_eq!(value("off").unwrap(), Value::Null);
        assert!(value("delya 7ms").is_err());
    }
}
