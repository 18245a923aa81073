//! Formats a traced frame as a line.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use netvale_control::types::{TraceStep, TracedFrame};

use crate::headers;

/// Formats a frame that was traced at the given time.
pub fn of(at: Timestamp, frame: &TracedFrame) -> String {
    let time = at.to_zoned(TimeZone::system()).strftime("%H:%M:%S%.6f").to_string();
    let mut line = format!("{time} {}/{} ", frame.port, frame.ring);
    if frame.len > 0 {
        let head = bytes(&frame.head);
        let _ = write!(line, "{} bytes, {}", frame.len, headers::of(&head));
        if let Some(segment) = frame.segment {
            let _ = write!(line, ", to be cut by {segment}");
        } else if frame.no_checksum {
            line.push_str(", checksum not filled in");
        }
    } else {
        line.push_str("no frame");
    }
    let _ = write!(line, ": {}", steps(&frame.steps));
    if frame.more_steps > 0 {
        let _ = write!(line, ", and {} more steps", frame.more_steps);
    }
    line
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map_while(byte).collect()
}

/// Formats the steps, in order.
fn steps(steps: &[TraceStep]) -> String {
    let mut parts = Vec::new();
    let mut rest = steps;
    while let Some((step, behind)) = rest.split_first() {
        rest = behind;
        let part = match step {
            TraceStep::To(port) => {
                let (there, behind) = behind.split_at(behind.iter().take_while(|step| is_there(step)).count());
                rest = behind;
                destination(port, there)
            }
            // `For`, which names a port, is shown only before a drop, since all other steps name their port themselves.
            TraceStep::For(_) if !matches!(behind.first(), Some(TraceStep::Dropped(..))) => continue,
            other => text(other),
        };
        parts.push(part);
    }
    if parts.is_empty() { "nowhere".to_owned() } else { parts.join(", ") }
}

/// Returns whether a step that follows the choice of a destination belongs to that destination.
fn is_there(step: &TraceStep) -> bool {
    use TraceStep::{Cut, Dropped, Link, Summed, Taken, Waits};
    matches!(step, Cut(_) | Summed | Waits | Taken | Link | Dropped(..))
}

/// Formats a destination with its steps. The frame is delivered unless it is dropped, waits or is in flight.
fn destination(port: &str, there: &[TraceStep]) -> String {
    let (work, rest): (Vec<_>, Vec<_>) =
        there.iter().partition(|step| matches!(step, TraceStep::Cut(_) | TraceStep::Summed));
    let is_end = rest.last().is_none_or(|step| matches!(step, TraceStep::Taken));
    let mut line = format!("{} {port}", if is_end { "delivered to" } else { "to" });
    if !work.is_empty() {
        let work: Vec<_> = work.into_iter().map(text).collect();
        let _ = write!(line, " ({})", work.join(", "));
    }
    rest.into_iter().for_each(|step| _ = write!(line, ", {}", text(step)));
    line
}

fn text(step: &TraceStep) -> String {
    match step {
        TraceStep::Vlan(vlan) => format!("VLAN {vlan}"),
        TraceStep::Learned => "source learned".to_owned(),
        TraceStep::MovedFrom(port) => format!("source moved here from {port}"),
        TraceStep::Kept(port) => format!("source stays with {port}"),
        TraceStep::NotLearned => "source not learned: too many addresses".to_owned(),
        TraceStep::Rule(rule) => {
            let does = if rule.drops { "drops" } else { "passes" };
            format!("{} {} rule {} {does}", rule.port, rule.dir, rule.number)
        }
        TraceStep::Unknown => "destination unknown".to_owned(),
        TraceStep::Floods => "to all".to_owned(),
        TraceStep::For(port) => format!("for {port}"),
        TraceStep::To(port) => format!("to {port}"),
        TraceStep::Link => "on the link".to_owned(),
        TraceStep::Waits => "waits for room".to_owned(),
        TraceStep::Taken => "taken".to_owned(),
        TraceStep::Cut(segments) => format!("cut into {segments} segments"),
        TraceStep::Summed => "checksum filled in".to_owned(),
        TraceStep::Dropped(why, 1) => format!("dropped: {why}"),
        TraceStep::Dropped(why, times) => format!("{times} dropped: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use netvale_control::types::{Direction, TracedRule};

    use super::*;

    fn line(head: &str, len: u32, steps: Vec<TraceStep>) -> String {
        let frame = TracedFrame { port: "vale0:a".into(), len, head: head.into(), steps, ..TracedFrame::default() };
        // The time is removed, since it depends on the time zone.
        of(Timestamp::UNIX_EPOCH, &frame).split_once(' ').map(|(_, line)| line.to_owned()).unwrap_or_default()
    }

    /// Objective: the steps of a destination are printed after the destination's name; a frame is delivered unless it
    /// is dropped, waits or is in flight.
    #[test]
    fn the_steps_of_a_destination_stand_with_it() {
        let to = |port: &str| TraceStep::To(port.into());
        let no_room = || TraceStep::Dropped("no-room".into(), 1);
        let rule = |dir, drops| TraceStep::Rule(TracedRule { port: "v:b".into(), dir, number: 2, drops });
        for (list, expected) in [
            (vec![to("v:b/0"), TraceStep::Cut(3)], "delivered to v:b/0 (cut into 3 segments)"),
            (vec![to("v:b/0"), TraceStep::Summed, no_room()], "to v:b/0 (checksum filled in), dropped: no-room"),
            (vec![to("v:b/0"), TraceStep::Waits, TraceStep::Taken], "delivered to v:b/0, waits for room, taken"),
            (vec![to("v:b/0"), TraceStep::Link, to("v:c/0")], "to v:b/0, on the link, delivered to v:c/0"),
            (vec![TraceStep::For("v:b".into()), to("v:b/0")], "delivered to v:b/0"),
            (vec![TraceStep::For("v:b".into()), no_room()], "for v:b, dropped: no-room"),
            (
                vec![TraceStep::For("v:b".into()), rule(Direction::Out, true), no_room()],
                "v:b out rule 2 drops, dropped: no-room",
            ),
            (
                vec![rule(Direction::In, false), TraceStep::Unknown, TraceStep::Floods],
                "v:b in rule 2 passes, destination unknown, to all",
            ),
        ] {
            assert_eq!(steps(&list), expected);
        }
    }

    /// Objective: a line shows source, content and destination of a frame: for tagged frames, TCP or UDP over IPv4 and
    /// IPv6, ARP, and frames of unknown content.
    #[test]
    fn lines_give_source_and_content_and_destination() {
        let udp = "0200000000020200000000010800450000280000400040110000 0a0000010a000002 04d20035".replace(' ', "");
        assert_eq!(
            line(&udp, 60, vec![TraceStep::Learned, TraceStep::To("vale0:b/0".into())]),
            "vale0:a/0 60 bytes, 02:00:00:00:00:01 > 02:00:00:00:00:02, UDP 10.0.0.1:1234 > 10.0.0.2:53: source \
             learned, delivered to vale0:b/0"
        );
        let arp = "ffffffffffff0200000000018100000a0806";
        let dropped = TraceStep::Dropped("no-room".into(), 1);
        assert_eq!(
            line(arp, 46, vec![TraceStep::Floods, TraceStep::To("vale0:b/1".into()), dropped]),
            "vale0:a/0 46 bytes, 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, tag 10, ARP: to all, to vale0:b/1, dropped: \
             no-room"
        );
        let dropped = TraceStep::Dropped("bad-length".into(), 3);
        assert_eq!(line("", 0, vec![dropped]), "vale0:a/0 no frame: 3 dropped: bad-length");
        assert_eq!(line("zz", 5, vec![]), "vale0:a/0 5 bytes, no Ethernet header: nowhere");
    }
}
