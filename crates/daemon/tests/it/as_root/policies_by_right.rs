//! The policies that users may set on their ports, depending on the switch: the table of docs/reference/security.md,
//! tested with real users on the daemon's real sockets.

use crate::common;

use std::collections::BTreeSet;

use common::users::{as_user, folder_of};
use common::{Daemon, is_root, request};
use netvale_abi::nmreq::{NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_DETACH, NETMAP_REQ_VALE_NEWIF};
use netvale_control::options::{AttachOption, OPTIONS, OptionShape};
use netvale_harness::attacks::filters;
use serde_json::{Value, json};

const TABLE: &str = include_str!("../../../../../docs/reference/security.md");
const DAEMON: u32 = 70_010;
const USER: u32 = 70_011;
/// The table's columns: the user's own switch, and a shared switch.
const SWITCHES: [&str; 2] = ["vale0", "vale9"];

/// Starts a daemon with additional lines in the section `[switch]`. If this process is not root, reports *skipped*.
fn daemon(more: &str) -> Option<Daemon> {
    let more = format!("[switch]\nshared = ['vale9']\n{more}\n[sockets]\nmode = '0666'");
    let is_root = is_root("being several users needs root");
    is_root.then(|| Daemon::start_as(DAEMON, folder_of(DAEMON, 0o755), &more))
}

/// Returns the table's rows: each row's policies, and for each column whether a user may set them.
fn rows() -> Vec<(BTreeSet<String>, [bool; 2])> {
    let (_, section) = TABLE.split_once("## Policies of one's own port").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let row = |line: &str| {
        let mut cells = line.split(" | ");
        let keys = cells.next().unwrap().split(", ").map(|key| key.trim_matches('`').to_owned()).collect();
        let may = [cells.next().unwrap() == "yes", cells.next().unwrap() == "yes"];
        (keys, may)
    };
    lines.map(row).collect()
}

/// Returns options with a sample value of a policy, and with the other options that this policy requires.
fn sample(option: &AttachOption) -> Value {
    let value = match option.shape {
        OptionShape::Flag | OptionShape::Switch => json!(true),
        OptionShape::Number(least, _) => json!(least.max(1)),
        OptionShape::OneOf(choices) => json!(choices[0]),
        OptionShape::Written(syntax) => json!(syntax.example),
        OptionShape::List(_) => json!(["drop 1,6 0 0 1"]),
        other => panic!("{}: {other:?}", option.key),
    };
    let mut options = match option.key {
        "native" | "vlan_protocol" => json!({"trunk": "1-20"}),
        "mcast_querier" | "mcast_router" | "mcast_fast_leave" => json!({"mcast_snooping": true}),
        "burst_in" => json!({"rate_in": "1mbit"}),
        "burst_out" | "queue_out" => json!({"rate_out": "1mbit"}),
        "sticky" => json!({"addresses": "02:00:00:00:00:0a"}),
        _ => json!({}),
    };
    options[option.key] = value;
    options
}

/// Whether a request succeeded. If it failed, the reason must be a missing permission.
fn is_permitted(reply: &Value, what: &str) -> bool {
    let errno = &reply["error"]["data"]["errno"];
    assert!(reply["error"].is_null() || *errno == libc::EACCES, "{what}: {reply}");
    reply["error"].is_null()
}

/// Objective: the table lists each policy, and who may set it: a user on the user's own port, when it is attached and
/// later; root and the daemon's own user, on all ports.
#[test]
fn each_policy_is_set_by_whom_the_table_says() {
    let Some(d) = daemon("") else { return };
    let rows = rows();
    let documented: BTreeSet<String> = rows.iter().flat_map(|(keys, _)| keys.iter().cloned()).collect();
    let policies = OPTIONS.iter().filter(|option| option.is_policy());
    assert_eq!(documented, policies.map(|option| option.key.to_owned()).collect());
    let call = |uid, method: &str, params: Value| as_user(uid, || d.call(method, params));
    for (column, switch) in SWITCHES.into_iter().enumerate() {
        // The first user on a shared switch is not its owner.
        call(USER, "port.attach", json!({"switch": switch, "port": "null:first"}));
        for (keys, may) in &rows {
            for key in keys {
                let options = sample(AttachOption::find(key).unwrap());
                for (uid, may) in [(USER, may[column]), (DAEMON, true), (0, true)] {
                    let what = format!("{key} on {switch} by {uid}");
                    let at = |options: &Value| json!({"switch": switch, "port": "null:n", "options": options});
                    let attached = call(uid, "port.attach", at(&options));
                    assert_eq!(is_permitted(&attached, &what), may, "{what}");
                    call(uid, "port.detach", json!({"switch": switch, "port": "n"}));
                    call(uid, "port.attach", at(&json!({})));
                    let set = call(uid, "port.set", json!({"port": format!("{switch}:n"), "set": options}));
                    assert_eq!(is_permitted(&set, &what), may, "{what}, later");
                    call(uid, "port.detach", json!({"switch": switch, "port": "n"}));
                }
            }
        }
    }
}

/// Objective: the number of instructions in all rules of a user's ports is limited, whatever request sets the rules;
/// rules that are replaced no longer count, and root has no limit.
#[test]
fn rules_are_rationed() {
    let Some(d) = daemon("") else { return };
    let call = |uid, method: &str, params: Value| as_user(uid, || d.call(method, params));
    let rule = |length: usize| filters::rule("drop", length);
    let attach = |uid, name: &str, rules: Vec<String>| {
        let port = format!("null:{name}");
        call(uid, "port.attach", json!({"switch": "vale9", "port": port, "options": {"filter_in": rules}}))
    };
    assert!(attach(USER, "a", vec![rule(2000), rule(2000)])["error"].is_null());
    let refused = attach(USER, "b", vec![rule(97)]);
    assert_eq!(refused["error"]["data"]["errno"], libc::ENOSPC, "{refused}");
    assert!(attach(USER, "b", vec![rule(96)])["error"].is_null());
    let set = |rules: Vec<String>| {
        let set = json!({"filter_in": rules.clone()});
        call(USER, "port.set", json!({"port": "vale9:a", "set": set}))
    };
    assert_eq!(set(vec![rule(4001)])["error"]["data"]["errno"], libc::ENOSPC);
    assert!(set(vec![rule(4000)])["error"].is_null());
    assert!(set(vec![rule(10)])["error"].is_null());
    assert!(attach(USER, "c", vec![rule(3000)])["error"].is_null());
    assert!(attach(0, "root", vec![rule(4000), rule(4000)])["error"].is_null());
}

/// Attaches a user's persistent port to a switch, or detaches it. Returns the errno.
fn move_persistent(d: &Daemon, attaches: bool, switch: &str) -> i32 {
    let reqtype = if attaches { NETMAP_REQ_VALE_ATTACH } else { NETMAP_REQ_VALE_DETACH };
    request(d, USER, reqtype, &format!("{switch}:p0"), &[(16, 1)]).status
}

/// Objective: a persistent port that moves to a shared switch cannot have a policy that its user may not set on that
/// switch.
#[test]
fn a_port_that_moves_brings_no_more_than_may_be_set() {
    let Some(d) = daemon("") else { return };
    let set = |switch: &str, set: Value| {
        as_user(USER, || d.call("port.set", json!({"port": format!("{switch}:p0"), "set": set})))
    };
    assert_eq!(request(&d, USER, NETMAP_REQ_VALE_NEWIF, "p0", &[]).status, 0);
    assert_eq!(move_persistent(&d, true, "vale0"), 0);
    assert!(set("vale0", json!({"trunk": "1-4094"}))["error"].is_null());
    assert_eq!(move_persistent(&d, false, "vale0"), 0);
    assert_eq!(move_persistent(&d, true, "vale9"), libc::EACCES);
    assert_eq!(move_persistent(&d, true, "vale0"), 0);
    assert!(set("vale0", json!({"trunk": null, "isolated": true}))["error"].is_null());
    assert_eq!(move_persistent(&d, false, "vale0"), 0);
    assert_eq!(move_persistent(&d, true, "vale9"), 0);
}

/// Objective: ports start with their switch's policies, whatever request creates them; their users can only make them
/// stricter, by any request, and root can change them freely.
#[test]
fn a_switchs_policies_are_made_narrower_only() {
    let more = "policies = {'*' = {isolated = true}, vale9 = {rate_in = '1gbit', storm_bcast = 100}, \
         vale8 = {rate_group = 'tenant 1gbit'}}";
    let Some(d) = daemon(more) else { return };
    let call = |uid, method: &str, params: Value| as_user(uid, || d.call(method, params));
    let policies = |full: &str| call(0, "port.show", json!({"port": full}))["result"]["policies"].take();
    let usual = json!({"isolated": true, "rate_in": "1gbit", "storm_bcast": 100});
    let attach = |uid, name: &str, options: Value| {
        let reply =
            call(uid, "port.attach", json!({"switch": "vale9", "port": format!("null:{name}"), "options": options}));
        is_permitted(&reply, name)
    };
    let set = |uid, set: Value| is_permitted(&call(uid, "port.set", json!({"port": "vale9:a", "set": set})), "set");
    let mut opened = as_user(USER, || d.open("vale9:opened").unwrap());
    opened.sync();
    assert!(attach(USER, "a", json!({})));
    assert_eq!(request(&d, USER, NETMAP_REQ_VALE_NEWIF, "p0", &[]).status, 0);
    assert_eq!(move_persistent(&d, true, "vale9"), 0);
    for name in ["opened", "a", "p0"] {
        assert_eq!(policies(&format!("vale9:{name}")), usual, "{name}");
    }
    for wider in [
        json!({"isolated": false}),
        json!({"rate_in": "2gbit"}),
        json!({"rate_in": "1gbit", "burst_in": "64mb"}),
        json!({"storm_bcast": 101}),
    ] {
        assert!(!attach(USER, "wider", wider.clone()) && !set(USER, wider.clone()), "{wider}");
        assert_eq!(policies("vale9:a"), usual);
    }
    // A request that also sets the MTU, which is not a policy, is still checked for its policies.
    assert!(!set(USER, json!({"mtu": 1400, "isolated": false})));
    assert_eq!(policies("vale9:a"), usual);
    assert!(set(USER, json!({"rate_in": "10mbit", "storm_bcast": 5, "flood": false})));
    assert_eq!(policies("vale9:a"), json!({"isolated": true, "rate_in": "10mbit", "storm_bcast": 5, "flood": false}));
    assert!(set(USER, json!({"rate_in": null, "storm_bcast": null, "flood": null})));
    assert_eq!(policies("vale9:a"), usual);
    // A port on the user's own switch also starts with that switch's policies.
    assert_eq!(move_persistent(&d, false, "vale9"), 0);
    assert_eq!(move_persistent(&d, true, "vale0"), 0);
    let set = |set: Value| is_permitted(&call(USER, "port.set", json!({"port": "vale0:p0", "set": set})), "set");
    assert!(!set(json!({"isolated": false})) && set(json!({"rate_in": "9gbit"})));
    // On that switch, a user cannot change the rate of the switch's group either.
    assert!(!set(json!({"rate_group": "tenant 9gbit"})) && set(json!({"rate_group": "tenant 1gbit"})));
    assert!(attach(0, "root", json!({"isolated": false, "rate_in": "40gbit"})));
    assert_eq!(policies("vale9:root"), json!({"isolated": false, "rate_in": "40gbit", "storm_bcast": 100}));
}
