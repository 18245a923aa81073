//! Events in the daemon, as reported by `subscribe`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Owner, PortInfo, SwitchInfo};

macro_rules! events {
    ($($variant:ident = $name:literal, [$($detail:literal)*], $meaning:literal;)+) => {
        /// All events. `docs/reference/events.md` lists them in a table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventName {
            $(#[doc = $meaning] $variant),+
        }

        impl EventName {
            /// All of them.
            pub const ALL: &'static [EventName] = &[$(EventName::$variant),+];

            /// The name on the wire, which never changes: a group, a dot, a word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(EventName::$variant => $name),+
                }
            }

            /// Its meaning, in words.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(EventName::$variant => $meaning),+
                }
            }

            /// The fields that it has, or may have, besides those of every event.
            pub const fn details(self) -> &'static [&'static str] {
                match self {
                    $(EventName::$variant => &[$($detail),*]),+
                }
            }
        }
    };
}

events! {
    SwitchMade = "switch.made", [], "a switch was made, for its first port";
    SwitchGone = "switch.gone", [], "a switch is gone, with its last port";
    PortAttached = "port.attached", ["by" "kind"], "a port is there: it was attached, or a program has made it";
    PortDetached = "port.detached", ["why"], "a port is gone";
    PortEvicted = "port.evicted", ["why"], "a port was taken from its peer, which had misbehaved or lost its memory";
    PortOpen = "port.open", ["by"], "a program has opened a port that no program had open";
    PortIdle = "port.idle", [], "no program has a port open any more";
    PortPolicies = "port.policies", ["by" "set"], "policies of a port were changed";
    GuestConnected = "guest.connected", ["connections"], "a peer has connected: a virtual machine, a front end, a back end or a card";
    GuestLeft = "guest.left", ["why"], "a port's peer is gone; `why`, if it did not just leave";
    LinkUp = "link.up", [], "a guest's driver runs with its link up; an interface has its carrier";
    LinkDown = "link.down", [], "a guest's driver has stopped, or its link is down; an interface has no carrier, or is gone";
    LoopBlocked = "loop.blocked", ["loops"], "the loop guard has blocked a port, to which addresses moved again and again";
    LoopUnblocked = "loop.unblocked", [], "the loop guard has let a port go on";
    AddressRefused = "address.refused", ["frames"], "a switch has not learned sources of frames: they are another user's, stay with another port, or are too many";
    TunnelVtepAdded = "tunnel.vtep-added", ["vtep"], "a tunnel sends to one more endpoint what goes to all";
    TunnelVtepRemoved = "tunnel.vtep-removed", ["vtep"], "a tunnel does so no more";
    RequestRefused = "request.refused", ["by" "why"], "a request or connection was refused";
    DaemonConfigured = "daemon.configured", ["by" "changes"], "a configuration was applied, or the file was read again";
    DaemonStalled = "daemon.stalled", ["thread" "stalls"], "a thread was held up for more than 100 ms: it, or its processor, was busy with something else";
    DaemonHandover = "daemon.handover", ["pid"], "a successor is about to go on in the daemon's place";
    DaemonHandoverFailed = "daemon.handover-failed", ["why"], "the successor could not: this daemon goes on";
    DaemonContinued = "daemon.continued", ["pid" "version"], "the successor goes on, with this connection and its subscription";
    DaemonEnding = "daemon.ending", ["why"], "the daemon ends";
    EventsLost = "events.lost", ["lost"], "that many events were dropped, as this subscriber did not read";
}

impl EventName {
    /// The group: the part before the dot.
    pub fn group(self) -> &'static str {
        self.as_str().split('.').next().unwrap_or_default()
    }

    /// Whether `name` is the name of this event or of its group.
    pub fn is_meant(self, name: &str) -> bool {
        name == self.as_str() || name == self.group()
    }
}

/// The method of a subscriber's notifications; their `params` are an [`Event`].
pub const NOTIFICATION: &str = "event";

/// Parameters of `subscribe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubscribeParams {
    /// Only events of these switches (`vale0`) and ports (`vale0:a`); empty: of all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Only events of these names (`port.attached`) and groups (`port`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Whether to return the present state.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub snapshot: bool,
}

/// The reply of `subscribe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// Number of the last event of this subscription: the next event has the next number.
    pub sequence: u64,
    /// Nanoseconds of the daemon's monotonic clock.
    pub now_ns: u64,
    /// All switches, as in `switch.list`, if a snapshot was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<Vec<SwitchInfo>>,
    /// All ports, as in `port.list`, if a snapshot was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<PortInfo>>,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Number in its subscription. A missing number is a dropped event.
    pub sequence: u64,
    /// When it happened, or was detected: RFC 3339, UTC.
    pub time: String,
    /// The same in nanoseconds of the daemon's monotonic clock.
    pub now_ns: u64,
    /// Its name: [`EventName::as_str`]. Later releases may have more.
    pub name: String,
    /// Its switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// Full name of its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The user and process that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Owner>,
    /// Its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Fields of this kind of event.
    #[serde(flatten)]
    pub details: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// Objective: names are unique, have a group, and match only themselves and their group.
    #[test]
    fn names() {
        let names: BTreeSet<_> = EventName::ALL.iter().map(|name| name.as_str()).collect();
        assert_eq!(names.len(), EventName::ALL.len());
        for name in EventName::ALL {
            let (group, word) = name.as_str().split_once('.').unwrap();
            assert!(!group.is_empty() && !word.is_empty() && !word.contains('.'), "{name:?}");
            assert!(name.is_meant(group) && name.is_meant(name.as_str()));
            assert!(!name.is_meant("") && !name.is_meant(&format!("{group}.")) && !name.is_meant(word));
        }
    }

    /// Objective: an event's specific fields lie beside the usual ones on the wire, and are read back from there;
    /// unknown ones are kept.
    #[test]
    fn wire() {
        let wire = json!({
            "sequence": 3, "time": "2026-01-01T00:00:00.000000Z", "now_ns": 7, "name": "port.attached",
            "switch": "vale0", "port": "vale0:a", "by": {"uid": 1, "pid": 2}, "kind": "local", "later": [1],
        });
        let event: Event = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!((event.by, &event.details["kind"]), (Some(Owner { uid: 1, pid: 2 }), &json!("local")));
        assert_eq!(serde_json::to_value(&event).unwrap(), wire);
    }
}
