//! The memberships of ports in multicast groups, and their expiry.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::settings::SnoopSettings;
use super::{Membership, PortSet};

/// A VLAN and a multicast group. Groups that share a MAC address are distinct: a port may leave one group and stay in
/// the other group.
pub(super) type MemberKey = (u16, IpAddr);

/// The outcome of a join: a new membership, a renewed membership, or a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinResult {
    Anew,
    Again,
    /// The switch or the port has reached its limit of groups.
    Refused,
}

/// The member ports of each multicast group. The number of groups is limited.
#[derive(Debug)]
pub(super) struct MemberTable {
    groups: BTreeMap<MemberKey, Vec<MemberEntry>>,
    /// Number of groups per port. A port in no group has no entry.
    per_port: HashMap<u16, usize>,
    /// Scheduled group-specific queries, by time in ns: one for each member that may have left.
    questions: BTreeSet<(u64, MemberKey, u16)>,
    /// Time in ns before which no membership ends.
    wake: u64,
    max_groups: usize,
    max_per_port: usize,
    interval: u64,
    count: u8,
}

#[derive(Debug)]
struct MemberEntry {
    port: u16,
    expires: u64,
    /// Time in ns of the next query for this member, if the member may have left.
    ask_at: u64,
    /// Number of queries left to send for this member; 0 if no leave is being checked.
    asks_left: u8,
}

impl MemberTable {
    pub fn new(settings: &SnoopSettings) -> Self {
        Self {
            groups: BTreeMap::new(),
            per_port: HashMap::new(),
            questions: BTreeSet::new(),
            wake: u64::MAX,
            max_groups: settings.max_groups,
            max_per_port: settings.per_port,
            interval: settings.last_member_interval_ns,
            count: settings.last_member_count,
        }
    }

    /// Makes `port` a member until `expires`, or extends its membership.
    pub fn join(&mut self, key: MemberKey, port: u16, expires: u64) -> JoinResult {
        if let Some(member) = self.groups.get_mut(&key).and_then(|members| find(members, port)) {
            forget_question(&mut self.questions, key, member);
            member.expires = expires;
            self.wake = self.wake.min(expires);
            return JoinResult::Again;
        }
        let full = self.groups.len() >= self.max_groups && !self.groups.contains_key(&key);
        if full || self.per_port.get(&port).is_some_and(|&groups| groups >= self.max_per_port) {
            return JoinResult::Refused;
        }
        self.groups.entry(key).or_default().push(MemberEntry { port, expires, ask_at: 0, asks_left: 0 });
        *self.per_port.entry(port).or_default() += 1;
        self.wake = self.wake.min(expires);
        JoinResult::Anew
    }

    /// Ends the membership of `port`. Returns whether the port was a member.
    pub fn leave(&mut self, key: MemberKey, port: u16) -> bool {
        let Some(members) = self.groups.get_mut(&key) else {
            return false;
        };
        let Some(place) = members.iter().position(|member| member.port == port) else {
            return false;
        };
        forget_question(&mut self.questions, key, &mut members[place]);
        members.swap_remove(place);
        if members.is_empty() {
            self.groups.remove(&key);
        }
        count_less(&mut self.per_port, port);
        true
    }

    /// Handles a host's leave while other hosts behind the port may be members: schedules queries, and ends the
    /// membership if no host answers them. Further leaves have no effect while queries are scheduled.
    pub fn question(&mut self, now_ns: u64, key: MemberKey, port: u16) {
        let Some(member) = self.groups.get_mut(&key).and_then(|members| find(members, port)) else {
            return;
        };
        if member.asks_left > 0 || self.count == 0 {
            return;
        }
        let until = now_ns.saturating_add(self.interval.saturating_mul(self.count.into()));
        member.expires = member.expires.min(until);
        member.ask_at = now_ns;
        member.asks_left = self.count;
        self.wake = self.wake.min(member.expires);
        self.questions.insert((now_ns, key, port));
    }

    /// Returns the group and port of a query that is due, and schedules the member's next query; `None` if no query is
    /// due.
    pub fn take_question(&mut self, now_ns: u64) -> Option<(MemberKey, u16)> {
        let &(at, key, port) = self.questions.first().filter(|question| question.0 <= now_ns)?;
        self.questions.remove(&(at, key, port));
        if let Some(member) = self.groups.get_mut(&key).and_then(|members| find(members, port)) {
            member.asks_left = member.asks_left.saturating_sub(1);
            if member.asks_left > 0 {
                member.ask_at = now_ns.saturating_add(self.interval);
                self.questions.insert((member.ask_at, key, port));
            }
        }
        Some((key, port))
    }

    /// Lets all memberships of a group end at `until` at the latest, unless they are renewed.
    pub fn lower(&mut self, key: MemberKey, until: u64) {
        for member in self.groups.get_mut(&key).into_iter().flatten() {
            member.expires = member.expires.min(until);
            self.wake = self.wake.min(member.expires);
        }
    }

    /// Ends expired memberships. Returns whether any membership ended.
    pub fn expire(&mut self, now_ns: u64) -> bool {
        if now_ns < self.wake {
            return false;
        }
        let ended = self.keep(|_, member| member.expires > now_ns);
        let members = self.groups.values().flatten();
        self.wake = members.map(|member| member.expires).min().unwrap_or(u64::MAX);
        ended
    }

    /// Ends the memberships that `keep` rejects. Returns whether any membership ended.
    pub fn retain(&mut self, keep: impl Fn(&MemberKey, u16) -> bool) -> bool {
        self.keep(|key, member| keep(key, member.port))
    }

    fn keep(&mut self, keep: impl Fn(&MemberKey, &MemberEntry) -> bool) -> bool {
        let mut ended = false;
        let questions = &mut self.questions;
        let per_port = &mut self.per_port;
        self.groups.retain(|key, members| {
            members.retain_mut(|member| {
                let stays = keep(key, member);
                if !stays {
                    forget_question(questions, *key, member);
                    count_less(per_port, member.port);
                    ended = true;
                }
                stays
            });
            !members.is_empty()
        });
        ended
    }

    /// Time in ns at which a query or [`MemberTable::expire`] is due next.
    pub fn next(&self) -> u64 {
        self.questions.first().map_or(self.wake, |question| question.0.min(self.wake))
    }

    /// The groups and their members.
    pub fn groups(&self) -> impl Iterator<Item = (&MemberKey, PortSet)> {
        self.groups.iter().map(|(key, members)| (key, members.iter().map(|member| member.port).collect()))
    }

    /// All memberships, by VLAN, group and port.
    pub fn memberships(&self) -> impl Iterator<Item = Membership> {
        self.groups.iter().flat_map(|(&(vlan, group), members)| {
            let mut list: Vec<_> = members
                .iter()
                .map(|member| Membership { vlan, group, port: member.port, expires_ns: member.expires })
                .collect();
            list.sort_unstable_by_key(|membership| membership.port);
            list
        })
    }
}

fn find(members: &mut [MemberEntry], port: u16) -> Option<&mut MemberEntry> {
    members.iter_mut().find(|member| member.port == port)
}

/// Decrements the number of groups of `port`.
fn count_less(per_port: &mut HashMap<u16, usize>, port: u16) {
    if let Entry::Occupied(mut groups) = per_port.entry(port) {
        *groups.get_mut() -= 1;
        if *groups.get() == 0 {
            groups.remove();
        }
    }
}

/// Cancels the queries for `member`.
fn forget_question(questions: &mut BTreeSet<(u64, MemberKey, u16)>, key: MemberKey, member: &mut MemberEntry) {
    if member.asks_left > 0 {
        questions.remove(&(member.ask_at, key, member.port));
        member.asks_left = 0;
    }
}
