//! Polled events. Workers and port threads record some changes only in their own memory. While there are subscriptions,
//! the main thread polls that memory and compares it with the state at the last poll. Events therefore take no time of
//! the workers.

use std::time::{Duration, Instant};

use netvale_control::types::EventName;

use crate::daemon::{Daemon, DaemonPort, PortPeers};
use crate::registry::events::NewEvent;
use crate::registry::looks::PortLook;

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
    let mut news = Vec::new();
    ports(d, &mut news);
    switches(d, &mut news);
    threads(d, &mut news);
    if d.looks.are_off() {
        news.clear();
    }
    d.looks.done(Instant::now());
    news.into_iter().for_each(|one| d.events.tell(one));
}

fn ports(d: &mut Daemon, news: &mut Vec<NewEvent>) {
    // State from before the last subscription ended is out of date.
    let is_first = d.looks.are_off();
    for (full, record) in d.ports.iter_mut() {
        let before = if is_first { PortLook::default() } else { record.look };
        let (now, why) = state(record, before, d.looks.are_interfaces_due);
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
        record.look = now;
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

/// Returns the port's state, and why its last peer left. After the port's first poll, state that is expensive to read
/// is read only if it may have changed: a link whose changes the kernel reports, if there was a report
/// (`are_interfaces_due`), and loops, if the port has a loop guard.
fn state(record: &DaemonPort, before: PortLook, are_interfaces_due: bool) -> (PortLook, Option<String>) {
    let PortPeers { connected, connections, last_error } = record.behind.peers().unwrap_or_default();
    let reads_link = !before.is_known || are_interfaces_due || !record.behind.is_link_reported();
    // An unknown link state counts as unchanged since the last poll.
    let linked = reads_link.then(|| record.behind.link()).flatten().unwrap_or(before.linked);
    let is_guarded = !before.is_known || record.policies.loop_guard == Some(true);
    let place = record.switch.as_ref().zip(record.id).filter(|_| is_guarded);
    let guard = place.and_then(|(switch, id)| switch.policy_state(id));
    let (loops, blocked) = guard.map_or((before.loops, false), |state| (state.loops(), state.is_blocked()));
    (PortLook { is_known: true, connected, connections, linked, loops, blocked }, last_error)
}

/// Adds an event for each switch that has not learned addresses. The event contains only the number of frames, because
/// workers count the frames with such addresses but do not record the addresses.
fn switches(d: &mut Daemon, news: &mut Vec<NewEvent>) {
    let before = std::mem::take(&mut d.looks.refused);
    for switch in d.switches.iter() {
        let name = switch.name();
        let now = switch.refused();
        let more = now.saturating_sub(before.get(name).copied().unwrap_or_default());
        if let Some(owner) = d.switches.owner(name).filter(|_| more > 0) {
            news.push(NewEvent::to(EventName::AddressRefused, owner).on(name).with("frames", more));
        }
        d.looks.refused.insert(name.to_owned(), now);
    }
}

fn threads(d: &mut Daemon, news: &mut Vec<NewEvent>) {
    let workers = d.workers.all().iter().map(|worker| worker.stalls());
    let stalls = std::iter::once(d.watched.stalls()).chain(workers).collect();
    let before = std::mem::replace(&mut d.looks.stalls, stalls);
    for (i, &now) in d.looks.stalls.iter().enumerate() {
        let more = now.saturating_sub(before.get(i).copied().unwrap_or_default());
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
