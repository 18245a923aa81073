//! Snooping with messages of hosts, queriers and routers: the destinations of frames over time.

mod messages;
mod model;
mod queries;

use messages::*;
use netvale_policy::snoop::{GroupFamily, MessageClass, PortSet, Router, Snoop, SnoopSettings, is_control};
use netvale_wire::MacAddr;

const SECOND: u64 = 1_000_000_000;
const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xfe]);

/// Returns a switch after a router at port 9 has queried and hosts have had time to answer.
fn settled() -> Snoop {
    let mut snoop = Snoop::new(SnoopSettings::new(SWITCH));
    hear(&mut snoop, 0, 9, &query("10.0.0.1", "0.0.0.0", 100));
    hear(&mut snoop, 0, 9, &query("fe80::1", "::", 100));
    assert!(snoop.tick(10 * SECOND).changed);
    snoop
}

/// Returns a switch that is the querier, after hosts have had time to answer its first query.
fn querying() -> Snoop {
    let mut snoop = Snoop::new(SnoopSettings { querier: true, ..SnoopSettings::new(SWITCH) });
    snoop.watch(0, 0);
    while snoop.next_query(0).is_some() {}
    snoop.tick(10 * SECOND);
    snoop
}

/// Passes a frame in VLAN 0 to `snoop`, as a switch does.
fn hear(snoop: &mut Snoop, now_ns: u64, port: u16, frame: &[u8]) -> (MessageClass, bool) {
    assert!(is_control(frame), "{frame:02x?}");
    let observed = snoop.observe(now_ns, 0, port, frame);
    (observed.message, observed.changed)
}

/// Returns the destinations of frames to `group`: ports, or `None` for all ports.
fn ports(snoop: &Snoop, group: &str) -> Option<Vec<u16>> {
    let mac = MacAddr(group_mac(ip(group)));
    let members = snoop.members(0, mac).map(|ports| ports.iter().collect());
    let groups = snoop.snapshot();
    assert_eq!(groups.ports(0, mac).and_then(|set| groups.set(set)).map(|ports| ports.iter().collect()), members);
    members
}

/// Objective: every kind of report joins and leaves as in its RFC. Steps: each record arrives at a port that is not a
/// member yet, and at a member with fast leave.
#[test]
fn reports_join_and_leave() {
    let kinds = [(IS_INCLUDE, 0), (IS_INCLUDE, 1), (IS_EXCLUDE, 0), (IS_EXCLUDE, 2), (TO_INCLUDE, 0), (TO_INCLUDE, 3)];
    let kinds = kinds.into_iter().chain([(TO_EXCLUDE, 0), (TO_EXCLUDE, 1), (ALLOW, 0), (ALLOW, 1), (BLOCK, 1), (9, 1)]);
    for (kind, sources) in kinds {
        for group in ["239.1.2.3", "ff05::123"] {
            let frame = report(&[(kind, group, sources)]);
            let mut snoop = settled();
            let joins = sources > 0 && kind <= ALLOW || kind == IS_EXCLUDE || kind == TO_EXCLUDE;
            assert_eq!(hear(&mut snoop, 10 * SECOND, 3, &frame), (MessageClass::Report, joins), "{kind} {sources}");
            let expected = if joins { vec![3, 9] } else { vec![9] };
            assert_eq!(ports(&snoop, group), Some(expected), "{kind} {sources}");

            let mut snoop = settled();
            snoop.set_fast_leave(3, true);
            hear(&mut snoop, 10 * SECOND, 3, &join(group));
            let leaves = sources == 0 && (kind == IS_INCLUDE || kind == TO_INCLUDE);
            assert_eq!(hear(&mut snoop, 10 * SECOND, 3, &frame), (MessageClass::Report, leaves), "{kind} {sources}");
        }
    }
}

/// Objective: all records of a report have an effect, and no record of a truncated report has an effect.
#[test]
fn a_report_has_many_records() {
    let mut snoop = settled();
    let frame = report(&[(TO_EXCLUDE, "239.0.1.1", 0), (ALLOW, "239.0.1.2", 4), (TO_INCLUDE, "239.0.1.3", 0)]);
    assert_eq!(hear(&mut snoop, 10 * SECOND, 1, &frame), (MessageClass::Report, true));
    assert_eq!(ports(&snoop, "239.0.1.1"), Some(vec![1, 9]));
    assert_eq!(ports(&snoop, "239.0.1.2"), Some(vec![1, 9]));
    assert_eq!(ports(&snoop, "239.0.1.3"), Some(vec![9]));
    let mut lying = vec![0x22, 0, 0, 0, 0, 0, 0, 2, TO_EXCLUDE, 0, 0, 0, 239, 0, 1, 9];
    assert_eq!(
        hear(&mut snoop, 10 * SECOND, 1, &over_v4("10.0.0.7", "224.0.0.22", 2, lying.clone())),
        (MessageClass::Malformed, false)
    );
    lying[7] = 1;
    assert_eq!(
        hear(&mut snoop, 10 * SECOND, 1, &over_v4("10.0.0.7", "224.0.0.22", 2, lying)),
        (MessageClass::Report, true)
    );
    assert_eq!((snoop.counters().reports, snoop.counters().malformed), (2, 1));
}

/// Objective: frames to groups that must be flooded go to all ports (RFC 4541 §2.1.2, §3), and frames to other groups
/// without members go to routers.
#[test]
fn some_groups_go_everywhere() {
    let mut snoop = settled();
    for group in ["224.0.0.1", "224.0.0.251", "239.128.0.5", "ff02::1"] {
        hear(&mut snoop, 10 * SECOND, 1, &join(group));
        assert_eq!(ports(&snoop, group), None, "{group}");
    }
    for other in ["ff:ff:ff:ff:ff:ff", "01:80:c2:00:00:0e", "01:00:0c:cc:cc:cd", "01:00:5e:80:01:01"] {
        assert_eq!(snoop.members(0, other.parse().unwrap()), None);
    }
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![9]));
    assert_eq!(ports(&snoop, "ff02::2"), Some(vec![9]));
    assert_eq!(snoop.members(7, MacAddr([1, 0, 0x5e, 1, 1, 1])), None, "nobody queries in VLAN 7");
    assert_eq!(snoop.memberships().count(), 0);
}

/// Objective: frames for groups go only to members once a querier is known and hosts have had time to answer its query,
/// until the querier expires.
#[test]
fn groups_are_kept_apart_while_there_is_a_querier() {
    let mut snoop = Snoop::new(SnoopSettings::new(SWITCH));
    hear(&mut snoop, 0, 1, &join("239.1.1.1"));
    assert_eq!(ports(&snoop, "239.1.1.1"), None);
    assert_eq!(snoop.tick(100 * SECOND).next_ns, 260 * SECOND);
    assert_eq!(snoop.querier(0, GroupFamily::V4), None);
    assert_eq!(hear(&mut snoop, 100 * SECOND, 9, &query("10.0.0.1", "0.0.0.0", 50)), (MessageClass::Query, true));
    assert_eq!(snoop.querier(0, GroupFamily::V4), Some(ip("10.0.0.1")));
    assert_eq!(snoop.tick(105 * SECOND - 1).next_ns, 105 * SECOND);
    assert_eq!(ports(&snoop, "239.1.1.1"), None);
    assert!(snoop.tick(105 * SECOND).changed && snoop.is_active(0, GroupFamily::V4));
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![1, 9]));
    assert_eq!(ports(&snoop, "ff05::1:1"), None, "the other family has no querier");
    assert_eq!(snoop.tick(354 * SECOND).next_ns, 355 * SECOND);
    assert!(snoop.tick(355 * SECOND).changed);
    assert_eq!(ports(&snoop, "239.1.1.1"), None);
}

/// Objective: a membership expires after the membership interval, and a report restarts the interval.
#[test]
fn members_are_forgotten() {
    let mut snoop = querying();
    hear(&mut snoop, 10 * SECOND, 1, &join("239.1.1.1"));
    hear(&mut snoop, 10 * SECOND, 2, &join("239.1.1.1"));
    assert_eq!(hear(&mut snoop, 100 * SECOND, 2, &join("239.1.1.1")), (MessageClass::Report, false));
    assert!(!snoop.tick(270 * SECOND - 1).changed);
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![1, 2]));
    assert!(snoop.tick(270 * SECOND).changed);
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![2]));
    let left: Vec<_> = snoop.memberships().map(|member| (member.port, member.expires_ns)).collect();
    assert_eq!(left, [(2, 360 * SECOND)]);
    assert!(snoop.tick(360 * SECOND).changed);
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![]));
}

/// Objective: after a leave, the querier sends two queries, only to the port from which the leave came, and ends the
/// membership if no host answers.
#[test]
fn a_querier_asks_after_a_leave() {
    for group in ["239.1.1.1", "ff05::1:1"] {
        let mut snoop = querying();
        hear(&mut snoop, 10 * SECOND, 1, &join(group));
        hear(&mut snoop, 10 * SECOND, 2, &join(group));
        assert_eq!(hear(&mut snoop, 20 * SECOND, 1, &leave(group)), (MessageClass::Report, false));
        let asked = |snoop: &mut Snoop, now| snoop.next_query(now).map(|query| (query.vlan, query.port));
        assert_eq!(asked(&mut snoop, 20 * SECOND), Some((0, Some(1))));
        assert_eq!(asked(&mut snoop, 21 * SECOND - 1), None);
        assert_eq!(snoop.tick(20 * SECOND).next_ns, 21 * SECOND);
        assert_eq!(asked(&mut snoop, 21 * SECOND), Some((0, Some(1))));
        assert_eq!(asked(&mut snoop, 22 * SECOND), None);
        assert_eq!(ports(&snoop, group), Some(vec![1, 2]));
        assert!(snoop.tick(22 * SECOND).changed);
        assert_eq!(ports(&snoop, group), Some(vec![2]));
    }
}

/// Objective: an answer in time extends the membership by the whole interval, and ends the queries.
#[test]
fn an_answer_keeps_a_member() {
    let mut snoop = querying();
    hear(&mut snoop, 10 * SECOND, 1, &join("239.1.1.1"));
    hear(&mut snoop, 20 * SECOND, 1, &report(&[(BLOCK, "239.1.1.1", 1)]));
    hear(&mut snoop, 20 * SECOND, 1, &leave("239.1.1.1"));
    assert!(snoop.next_query(20 * SECOND).is_some());
    assert!(snoop.next_query(20 * SECOND).is_none(), "the second leave causes no further query");
    hear(&mut snoop, 20 * SECOND, 1, &report(&[(IS_EXCLUDE, "239.1.1.1", 0)]));
    assert!(snoop.next_query(21 * SECOND).is_none());
    assert!(!snoop.tick(22 * SECOND).changed);
    assert_eq!(snoop.memberships().next().unwrap().expires_ns, 280 * SECOND);
}

/// Objective: with fast leave, a leave ends the membership without a query; without fast leave, the membership ends
/// only after a query of the querier, here a router.
#[test]
fn others_leave_with_the_querier() {
    let mut snoop = settled();
    snoop.set_fast_leave(2, true);
    for port in [1, 2, 3] {
        hear(&mut snoop, 10 * SECOND, port, &join("239.1.1.1"));
    }
    assert_eq!(hear(&mut snoop, 20 * SECOND, 1, &leave("239.1.1.1")), (MessageClass::Report, false));
    assert_eq!(hear(&mut snoop, 20 * SECOND, 2, &leave("239.1.1.1")), (MessageClass::Report, true));
    assert!(snoop.next_query(20 * SECOND).is_none());
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![1, 3, 9]));
    hear(&mut snoop, 20 * SECOND, 9, &query("10.0.0.1", "239.1.1.1", 20));
    hear(&mut snoop, 21 * SECOND, 3, &join("239.1.1.1"));
    assert!(!snoop.tick(24 * SECOND - 1).changed);
    assert!(snoop.tick(24 * SECOND).changed);
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![3, 9]));
}

/// Objective: a query that gives members no time to answer does not end memberships.
#[test]
fn a_hasty_query_throws_nobody_out() {
    let mut snoop = settled();
    hear(&mut snoop, 10 * SECOND, 1, &join("239.1.1.1"));
    hear(&mut snoop, 20 * SECOND, 5, &query("10.0.0.1", "239.1.1.1", 1));
    assert!(!snoop.tick(22 * SECOND - 1).changed);
    // Neither a query with the flag "suppress router-side processing" (RFC 3376 §4.1.5) nor a query for sources
    // shortens a membership.
    let mut snoop = settled();
    hear(&mut snoop, 10 * SECOND, 1, &join("239.1.1.1"));
    for tail in [vec![8, 0, 0, 0], vec![0, 0, 0, 1, 9, 9, 9, 9]] {
        let message = [&[0x11, 10, 0, 0, 239, 1, 1, 1], &tail[..]].concat();
        hear(&mut snoop, 20 * SECOND, 9, &over_v4("10.0.0.1", "239.1.1.1", 2, message));
    }
    assert!(!snoop.tick(100 * SECOND).changed);
}

/// Objective: the querier with the lowest address is elected (RFC 2236 §3, RFC 3810 §7.6.2), and a silent querier
/// expires.
#[test]
fn the_lowest_address_is_the_querier() {
    let mut snoop = Snoop::new(SnoopSettings::new(SWITCH));
    let rows = [("0.0.0.0", "0.0.0.0"), ("10.0.0.9", "10.0.0.9"), ("10.0.0.5", "10.0.0.5"), ("10.0.0.7", "10.0.0.5")];
    for (second, (from, elected)) in
        rows.into_iter().chain([("0.0.0.0", "10.0.0.5"), ("10.0.0.5", "10.0.0.5")]).enumerate()
    {
        hear(&mut snoop, second as u64 * SECOND, 4, &query(from, "0.0.0.0", 100));
        assert_eq!(snoop.querier(0, GroupFamily::V4), Some(ip(elected)), "{from}");
    }
    snoop.tick(259 * SECOND);
    assert_eq!(snoop.querier(0, GroupFamily::V4), Some(ip("10.0.0.5")));
    snoop.tick(260 * SECOND);
    assert_eq!(snoop.querier(0, GroupFamily::V4), None);
}

/// Objective: ports of routers are recognised by queries and hellos, for a limited time, and by configuration.
#[test]
fn routers_get_all_groups() {
    let mut snoop = querying();
    let hello = over_v4("10.0.0.1", "224.0.0.13", 103, vec![0x20, 0, 0, 0]);
    let hello6 = over_v6("fe80::1", "ff02::d", 103, vec![0x20, 0, 0, 0, 0, 1, 0, 2]);
    let discovery = over_v4("10.0.0.1", "224.0.0.106", 2, vec![0x30, 20, 0, 0, 0, 0, 0, 0]);
    let now = 10 * SECOND;
    assert_eq!(snoop.observe(now, 0, 1, &hello).message, MessageClass::Router);
    assert_eq!(snoop.observe(now, 0, 2, &discovery).message, MessageClass::Router);
    assert!(snoop.observe(now, 0, 3, &hello6).changed);
    hear(&mut snoop, now, 4, &query("10.0.0.1", "0.0.0.0", 100));
    hear(&mut snoop, now, 5, &query("0.0.0.0", "0.0.0.0", 100));
    assert!(snoop.set_router(6, Router::Always) && !snoop.set_router(6, Router::Always));
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![1, 2, 4, 6]));
    assert_eq!(ports(&snoop, "ff05::1:1"), Some(vec![3, 6]));
    let groups = snoop.snapshot();
    let routers = groups.routers(0, GroupFamily::V4).and_then(|set| groups.set(set));
    assert_eq!(routers, Some(&snoop.router_ports(0, GroupFamily::V4)));
    assert_eq!(snoop.snapshot().routers(1, GroupFamily::V4), None);
    assert!(snoop.set_router(6, Router::Learned) && snoop.tick(265 * SECOND).changed);
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![]));
    assert_eq!(snoop.counters().hellos, 3);
}

/// Objective: a port that is set to have no router behind it stops being a router's port and never becomes one again,
/// and its queries are refused.
#[test]
fn some_ports_have_no_routers() {
    let mut snoop = settled();
    assert!(snoop.set_router(9, Router::Never));
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![]));
    hear(&mut snoop, 10 * SECOND, 9, &over_v4("10.0.0.1", "224.0.0.13", 103, vec![0x20, 0, 0, 0]));
    assert_eq!(
        hear(&mut snoop, 10 * SECOND, 9, &query("1.0.0.1", "0.0.0.0", 100)),
        (MessageClass::RefusedQuery, false)
    );
    assert_eq!(snoop.querier(0, GroupFamily::V4), Some(ip("10.0.0.1")));
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![]));
    assert_eq!(snoop.counters().refused_queries, 1);
}

/// Objective: groups with the same MAC address get each other's frames, but a port leaves each group separately.
#[test]
fn groups_that_share_a_mac_address_share_frames() {
    let mut snoop = settled();
    snoop.set_fast_leave(1, true);
    hear(&mut snoop, 10 * SECOND, 1, &join("239.1.1.1"));
    hear(&mut snoop, 10 * SECOND, 1, &join("238.129.1.1"));
    hear(&mut snoop, 10 * SECOND, 2, &join("238.129.1.1"));
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![1, 2, 9]));
    hear(&mut snoop, 10 * SECOND, 1, &leave("239.1.1.1"));
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![1, 2, 9]));
    hear(&mut snoop, 10 * SECOND, 1, &leave("238.129.1.1"));
    assert_eq!(ports(&snoop, "239.1.1.1"), Some(vec![2, 9]));
}

/// Objective: VLANs are separate, and VLANs and ports can be removed.
#[test]
fn vlans_and_ports_are_forgotten() {
    let mut snoop = Snoop::new(SnoopSettings { querier: true, ..SnoopSettings::new(SWITCH) });
    snoop.watch(0, 5);
    snoop.observe(0, 6, 1, &join("239.1.1.1"));
    snoop.observe(0, 5, 2, &join("239.1.1.1"));
    snoop.observe(0, 5, 3, &join("239.1.1.1"));
    snoop.tick(10 * SECOND);
    let mac = MacAddr(group_mac(ip("239.1.1.1")));
    let set = |ports: &[u16]| Some(ports.iter().copied().collect::<PortSet>());
    assert_eq!((snoop.members(5, mac), snoop.members(6, mac)), (set(&[2, 3]), set(&[1])));
    assert!(snoop.remove_port(2) && !snoop.remove_port(2));
    assert_eq!(snoop.members(5, mac), set(&[3]));
    assert!(snoop.unwatch(5) && !snoop.unwatch(5));
    assert_eq!((snoop.members(5, mac), snoop.members(6, mac)), (None, set(&[1])));
}

/// Objective: a port that joins too many groups gets the frames of all groups, and other ports are not affected. Steps:
/// a hostile port joins 3000 groups; another port joins one of these groups and a new group, the last group for which
/// the table has room.
#[test]
fn joins_are_limited() {
    let settings = SnoopSettings { querier: true, max_groups: 101, per_port: 100, ..SnoopSettings::new(SWITCH) };
    let mut snoop = Snoop::new(settings);
    let group = |n: usize| format!("239.1.{}.{}", n / 256, n % 256);
    for n in 0..3000 {
        hear(&mut snoop, 0, 1, &join(&group(n)));
    }
    for joined in [group(5), "239.9.9.9".into()] {
        assert_eq!(hear(&mut snoop, 0, 2, &join(&joined)), (MessageClass::Report, true));
    }
    snoop.tick(10 * SECOND);
    assert_eq!((snoop.counters().refused_joins, snoop.memberships().count()), (2900, 102));
    assert_eq!(ports(&snoop, &group(5)), Some(vec![1, 2]));
    assert_eq!(ports(&snoop, &group(2999)), Some(vec![1]));
    assert_eq!(ports(&snoop, "239.9.9.9"), Some(vec![1, 2]));
    assert_eq!(hear(&mut snoop, 20 * SECOND, 3, &join("239.8.8.8")), (MessageClass::Report, true), "the table is full");
    assert_eq!(ports(&snoop, "239.8.8.8"), Some(vec![1, 3]));
    let groups = snoop.snapshot();
    let routers = groups.routers(0, GroupFamily::V4).and_then(|set| groups.set(set));
    assert!(routers.unwrap().is_empty(), "neither port has a router");
    assert!(snoop.tick(279 * SECOND).changed);
    assert_eq!(ports(&snoop, "239.8.8.8"), Some(vec![3]));
    snoop.tick(280 * SECOND);
    assert_eq!(ports(&snoop, "239.8.8.8"), Some(vec![]));
}

/// Objective: a host that joins and leaves endlessly has at most one pending query.
#[test]
fn questions_do_not_pile_up() {
    let mut snoop = querying();
    for _ in 0..1000 {
        hear(&mut snoop, 20 * SECOND, 1, &join("239.1.1.1"));
        hear(&mut snoop, 20 * SECOND, 1, &leave("239.1.1.1"));
    }
    let sent = std::iter::from_fn(|| snoop.next_query(21 * SECOND)).count();
    assert_eq!(sent, 1);
}

/// Objective: a member that has left by fast leave, or whose port was removed, is not queried.
#[test]
fn who_is_gone_is_not_asked() {
    let believed = |snoop: &mut Snoop| {
        snoop.set_fast_leave(1, true);
        hear(snoop, 20 * SECOND, 1, &leave("239.1.1.1")).1
    };
    for go in [believed, |snoop: &mut Snoop| snoop.remove_port(1)] {
        let mut snoop = querying();
        hear(&mut snoop, 20 * SECOND, 1, &join("239.1.1.1"));
        hear(&mut snoop, 20 * SECOND, 1, &leave("239.1.1.1"));
        assert!(go(&mut snoop));
        assert!(snoop.next_query(22 * SECOND).is_none());
    }
}
