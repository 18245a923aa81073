//! Polled events. Workers and port threads record some changes only in their own memory. While there are subscriptions,
//! the main thread polls that memory and compares it with the state at the last poll. Events therefore take no time of
//! the workers.

use std::time::{Duration, Instant};

use netvale_control::types::EventName;

use crate::daemon::{Daemon, DaemonPort, PortPeers};
use crate::registry::events::NewEvent;
use crate::registry::looks::{Looks, PortLook};

/// Starts polling, unless polling is already running. The initial state causes no event.
pub fn begin(d: &mut Daemon) {
    if d.looks.are_off() {
        look(d);
    }
}

/// Polls if the interval is over; ends polling if there are no subscriptions. Returns the time until the next call.
pub fn tick(d: &mut Daemon, now: Instant) -> Duration {
    if !d.events.are_watched() {
        d.looks.end();
        return Duration::MAX;
    }
    if d.looks.left(now).is_zero() {
        look(d);
    }
    d.looks.left(now)
}

/// Makes the next poll earlier than planned, because something may have changed. The shortest interval since the last
/// poll is still kept.
pub fn hasten(d: &mut Daemon, now: Instant) {
    d.looks.hasten();
    tick(d, now);
}

fn look(d: &mut Daemon) {
    let mut found = Looks::default();
    let mut news = Vec::new();
    ports(d, &mut found, &mut news);
    switches(d, &mut found, &mut news);
    threads(d, &mut found, &mut news);
    if d.looks.are_off() {
        news.clear();
    }
    found.done(Instant::now());
    d.looks = found;
    news.into_iter().for_each(|one| d.events.tell(one));
}

fn ports(d: &Daemon, found: &mut Looks, news: &mut Vec<NewEvent>) {
    for (full, record) in d.ports.iter() {
        let before = d.looks.ports.get(full).copied().unwrap_or_default();
        let (now, why) = state(record, before);
        if now != before {
            let event = |name| NewEvent::to(name, record.owner.uid).at(full);
            news.extend(guests(before, now, why.as_deref(), &event));
            news.extend((now.linked && !before.linked).then(|| event(EventName::LinkUp)));
            news.extend((!now.linked && before.linked).then(|| event(EventName::LinkDown)));
            let is_again = now.loops > before.loops;
            news.extend(is_again.then(|| event(EventName::LoopBlocked).with("loops", now.loops)));
            let goes_on = !now.blocked && (before.blocked || is_again);
            news.extend(goes_on.then(|| event(EventName::LoopUnblocked)));
        }
        found.ports.insert(full.to_owned(), now);
    }
}

/// Returns the events of peers that connected or left between two polls. If several peers connected or left, returns
/// only the events of the last peer.
fn guests(before: PortLook, now: PortLook, why: Option<&str>, event: &dyn Fn(EventName) -> NewEvent) -> Vec<NewEvent> {
    let is_another = now.connections > before.connections || now.connected && !before.connected;
    let connected = || event(EventName::GuestConnected).with("connections", now.connections);
    let left = || event(EventName::GuestLeft);
    let left_for = || if let Some(why) = why { left().why(why) } else { left() };
    let mut news = Vec::new();
    news.extend((before.connected && is_another).then(left));
    news.extend(is_another.then(connected));
    news.extend((!now.connected && (before.connected || is_another)).then(left_for));
    news
}

fn state(record: &DaemonPort, before: PortLook) -> (PortLook, Option<String>) {
    let PortPeers { connected, connections, last_error } = record.behind.peers().unwrap_or_default();
    // An unknown link state counts as unchanged since the last poll.
    let linked = record.behind.link().unwrap_or(before.linked);
    let guard = record.switch.as_ref().zip(record.id).and_then(|(switch, id)| switch.policy_state(id));
    let (loops, blocked) = guard.map_or((0, false), |state| (state.loops(), state.is_blocked()));
    (PortLook { connected, connections, linked, loops, blocked }, last_error)
}

/// Adds an event for each switch that has not learned addresses. The event contains only the number of frames, because
/// workers count the frames with such addresses but do not record the addresses.
fn switches(d: &Daemon, found: &mut Looks, news: &mut Vec<NewEvent>) {
    for switch in d.switches.iter() {
        let name = switch.name();
        let now = switch.refused();
        let more = now.saturating_sub(d.looks.refused.get(name).copied().unwrap_or_default());
        if let Some(owner) = d.switches.owner(name).filter(|_| more > 0) {
            news.push(NewEvent::to(EventName::AddressRefused, owner).on(name).with("frames", more));
        }
        found.refused.insert(name.to_owned(), now);
    }
}

fn threads(d: &Daemon, found: &mut Looks, news: &mut Vec<NewEvent>) {
    let workers = d.workers.all().iter().map(|worker| worker.stalls());
    found.stalls = std::iter::once(d.watched.stalls()).chain(workers).collect();
    for (i, &now) in found.stalls.iter().enumerate() {
        let more = now.saturating_sub(d.looks.stalls.get(i).copied().unwrap_or_default());
        if more > 0 {
            let thread = i.checked_sub(1).map_or_else(|| "main".to_owned(), |worker| format!("worker {worker}"));
            news.push(NewEvent::to_all(EventName::DaemonStalled).with("thread", thread).with("stalls", more));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: of peers that connect and leave between two polls, every known change is reported: which peer
    /// connected, which peer left, and why.
    #[test]
    fn every_known_change_between_two_polls_is_reported() {
        let at = |connected, connections| PortLook { connected, connections, ..PortLook::default() };
        let came = "guest.connected";
        let went = "guest.left";
        for (before, now, expected) in [
            (at(false, 0), at(false, 0), &[][..]),
            (at(false, 0), at(true, 1), &[came]),
            (at(true, 1), at(false, 1), &[went]),
            (at(true, 1), at(true, 2), &[went, came]),
            (at(false, 1), at(false, 2), &[came, went]),
            (at(true, 1), at(false, 4), &[went, came, went]),
            // In a successor, the counts start at the predecessor's values.
            (at(false, 3), at(true, 3), &[came]),
        ] {
            let event = |name: EventName| NewEvent::to_all(name);
            let news = guests(before, now, Some("why"), &event);
            let names: Vec<_> = news.iter().map(|one| one.name().as_str()).collect();
            assert_eq!(names, expected, "{before:?} {now:?}");
        }
    }
}
