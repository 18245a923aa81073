//! Events in the daemon, which `subscribe` reports.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Owner, PortInfo, SwitchInfo};

macro_rules! events {
    ($($variant:ident = $name:literal, [$($detail:literal)*], $meaning:literal;)+) => {
        /// The events that the daemon reports. `docs/reference/events.md` lists them in a table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventName {
            $(#[doc = $meaning] $variant),+
        }

        impl EventName {
            /// All events.
            pub const ALL: &'static [EventName] = &[$(EventName::$variant),+];

            /// Returns the name on the wire, which never changes: a group, a dot, a word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(EventName::$variant => $name),+
                }
            }

            /// Returns the event's meaning, in words.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(EventName::$variant => $meaning),+
                }
            }

            /// Returns the fields that the event may have besides the fields that every event has.
            pub const fn details(self) -> &'static [&'static str] {
                match self {
                    $(EventName::$variant => &[$($detail),*]),+
                }
            }
        }
    };
}

events! {
    SwitchMade = "switch.made", [], "a switch was created for its first port";
    SwitchGone = "switch.gone", [], "a switch was removed with its last port";
    PortAttached = "port.attached", ["by" "kind"], "a port was attached, or created by a program";
    PortDetached = "port.detached", ["why"], "a port was removed";
    PortEvicted = "port.evicted", ["why"], "a peer lost its port because it misbehaved or its memory vanished";
    PortOpen = "port.open", ["by"], "a first program has opened a port";
    PortIdle = "port.idle", [], "the last program has closed a port";
    PortPolicies = "port.policies", ["by" "set"], "the policies of a port changed";
    GuestConnected = "guest.connected", ["connections"],
        "a peer has connected: a virtual machine, a front end, a back end or a card";
    GuestLeft = "guest.left", ["why"], "a port's peer has left; `why` is omitted if the peer disconnected by itself";
    LinkUp = "link.up", [], "a guest's driver runs with its link up, or an interface has a carrier";
    LinkDown = "link.down", [],
        "a guest's driver has stopped or its link is down, or an interface has lost its carrier or vanished";
    LoopBlocked = "loop.blocked", ["loops"],
        "the loop guard has blocked a port to which addresses kept moving";
    LoopUnblocked = "loop.unblocked", [], "the loop guard has unblocked a port";
    AddressRefused = "address.refused", ["frames"],
        "a switch has not learned the sources of frames: addresses of another user or port, or beyond a limit";
    TunnelVtepAdded = "tunnel.vtep-added", ["vtep"], "a tunnel starts to flood frames to another endpoint";
    TunnelVtepRemoved = "tunnel.vtep-removed", ["vtep"], "a tunnel stops flooding frames to an endpoint";
    RequestRefused = "request.refused", ["by" "why"], "a request or connection was refused";
    DaemonConfigured = "daemon.configured", ["by" "changes"], "a configuration was applied, or the file was reloaded";
    DaemonStalled = "daemon.stalled", ["thread" "stalls"],
        "a thread was delayed for more than 100 ms: it or its processor was busy";
    DaemonHandover = "daemon.handover", ["pid"], "a successor is about to take over from the daemon";
    DaemonHandoverFailed = "daemon.handover-failed", ["why"], "the successor has failed; this daemon continues";
    DaemonContinued = "daemon.continued", ["pid" "version"],
        "the successor has taken over, with this connection and its subscription";
    DaemonEnding = "daemon.ending", ["why"], "the daemon ends";
    EventsLost = "events.lost", ["lost"], "`lost` events were dropped, because the subscriber did not read";
}

impl EventName {
    /// Returns the group: the part before the dot.
    pub fn group(self) -> &'static str {
        self.as_str().split('.').next().unwrap_or_default()
    }

    /// Returns whether `name` is the name of this event or of its group.
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
    /// Reports only events of these switches (`vale0`) and ports (`vale0:a`); empty: events of all switches and ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Reports only events with these names (`port.attached`) or in these groups (`port`); empty: all events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Whether to return a snapshot of all switches and ports.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub snapshot: bool,
}

/// The reply of `subscribe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscribeReply {
    /// Sequence number of this subscription's latest event; the next event has the following number.
    pub sequence: u64,
    /// Time of the reply in nanoseconds of the daemon's monotonic clock.
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
    /// Number of the event in its subscription. A gap means dropped events.
    pub sequence: u64,
    /// Time at which the event happened or was detected: RFC 3339, UTC.
    pub time: String,
    /// Time of the event in nanoseconds of the daemon's monotonic clock.
    pub now_ns: u64,
    /// Name of the event ([`EventName::as_str`]). Later releases may add names.
    pub name: String,
    /// Name of the switch concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// Full name of the port concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The user and process that caused the event, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Owner>,
    /// The reason for the event, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Fields specific to this event ([`EventName::details`]), including fields unknown to this release.
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
    fn names_match_only_themselves_and_their_group() {
        let names: BTreeSet<_> = EventName::ALL.iter().map(|name| name.as_str()).collect();
        assert_eq!(names.len(), EventName::ALL.len());
        for name in EventName::ALL {
            let (group, word) = name.as_str().split_once('.').unwrap();
            assert!(!group.is_empty() && !word.is_empty() && !word.contains('.'), "{name:?}");
            assert!(name.is_meant(group) && name.is_meant(name.as_str()));
            assert!(!name.is_meant("") && !name.is_meant(&format!("{group}.")) && !name.is_meant(word));
        }
    }

    /// Objective: on the wire, an event's specific fields are members beside the common fields; reading restores them
    /// and keeps unknown members.
    #[test]
    fn specific_fields_lie_beside_the_usual_ones() {
        let wire = json!({
            "sequence": 3, "time": "2026-01-01T00:00:00.000000Z", "now_ns": 7, "name": "port.attached",
            "switch": "vale0", "port": "vale0:a", "by": {"uid": 1, "pid": 2}, "kind": "local", "later": [1],
        });
        let event: Event = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!((event.by, &event.details["kind"]), (Some(Owner { uid: 1, pid: 2 }), &json!("local")));
        assert_eq!(serde_json::to_value(&event).unwrap(), wire);
    }
}
