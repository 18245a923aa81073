//! Tests that apply configuration files to a daemon without sockets.

use std::ffi::OsString;

use netvale_control::types::{AttachParams, ConfigAction, PortOptions};
use netvale_harness::shapes::{self, samples};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::api::attaching::{attach, attach_configured};
use crate::api::inspect::show;
use crate::caller::Caller;
use crate::config::{Overrides, SETTINGS, Setting};
use crate::system::sandbox::Reach;
use crate::worker::TaskId;

/// Creates a daemon from the text of a configuration file.
fn started(text: &str) -> Daemon {
    let config = config::parse(text, "start", &Overrides::default()).unwrap_or_else(|e| panic!("{e} in {text}"));
    let mut d = Daemon::new(config).unwrap();
    d.config.require_ports = true;
    attach_configured(&mut d).unwrap_or_else(|(port, why)| panic!("{port}: {why} in {text}"));
    d.config.require_ports = false;
    d
}

fn params(text: &str) -> ApplyParams {
    ApplyParams { text: text.to_owned(), file: Some("f.toml".to_owned()), ..ApplyParams::default() }
}

fn applied(d: &mut Daemon, text: &str) -> ApplyResult {
    apply(d, &params(text)).unwrap_or_else(|e| panic!("{e} in {text}"))
}

fn refused(d: &mut Daemon, text: &str) -> String {
    apply(d, &params(text)).unwrap_err().message
}

fn by_hand(d: &mut Daemon, switch: &str, port: &str, options: PortOptions) -> String {
    let params = AttachParams { switch: switch.into(), port: port.into(), options };
    attach(d, &params, Caller::daemon()).unwrap()
}

/// Returns the changes in short form: for each change, the sign of the action and the name.
fn short(applied: &ApplyResult) -> Vec<String> {
    applied.changes.iter().map(|change| format!("{}{}", change.action.sign(), change.name)).collect()
}

/// Returns a text for each port: its name, kind, header length, whether it is lossless, and the slots of its rings.
fn ports(d: &Daemon) -> Vec<String> {
    let of = |full: &str| {
        let port = show(d, full, Caller::daemon()).unwrap();
        let slots: Vec<u32> = port.rings.iter().map(|ring| ring.slots).collect();
        format!("{full} {:?} {} {} {slots:?}", port.kind, port.vnet_hdr, port.lossless)
    };
    d.ports.iter().map(|(full, _)| of(full)).collect()
}

fn tasks(d: &Daemon) -> Vec<(String, Vec<TaskId>)> {
    d.ports.iter().map(|(full, record)| (full.to_owned(), record.placed.clone())).collect()
}

/// Generates configuration files with ports that need no file, device or socket.
fn file() -> impl Strategy<Value = String> {
    let kind = prop_oneof![Just("".to_owned()), Just("null:".to_owned()), Just("echo:".to_owned())];
    let port = (0..2u8, 0..6u8, kind, 0..3u32, any::<bool>(), any::<bool>());
    let settings = (1..4u32, any::<bool>(), 1..3u32, any::<bool>());
    (settings, proptest::collection::vec(port, 0..8)).prop_map(|((ageing, sticky, quota, shared), ports)| {
        let shared = if shared { "['*', 'vale0']" } else { "[]" };
        let mut text = format!(
            "allow_taps = {shared}\n[switch]\nageing_s = {}\nsticky_addresses = {sticky}\nshared = {shared}\n[quota]\n\
             ports = {quota}\n",
            ageing * 100
        );
        let mut seen = Vec::new();
        for (switch, name, kind, rings, lossless, explicit) in ports {
            if seen.contains(&(switch, name)) {
                continue;
            }
            seen.push((switch, name));
            text += &format!("[[port]]\nswitch = 'vale{switch}'\nport = '{kind}p{name}'\nlossless = {lossless}\n");
            if explicit {
                text += &format!("name = 'p{name}'\n");
            }
            if kind.is_empty() {
                text += &format!("rings = {rings}\nslots = {}\n", 64 << rings);
            }
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Objective: applying one file after another yields the same daemon as starting with the second file; unchanged
    /// ports keep their forwarding tasks; applying the second file again changes nothing.
    #[test]
    fn one_after_the_other(first in file(), second in file()) {
        let mut d = started(&first);
        let expected = started(&second);
        let before = tasks(&d);
        let dry = apply(&mut d, &ApplyParams { dry_run: true, ..params(&second) }).unwrap();
        prop_assert_eq!(&tasks(&d), &before);
        let done = applied(&mut d, &second);
        prop_assert_eq!(&dry.changes, &done.changes);
        prop_assert_eq!(export(&d), export(&expected));
        prop_assert_eq!(ports(&d), ports(&expected));
        let touched = |full: &String| {
            done.changes.iter().any(|change| change.name == *full && change.action != ConfigAction::Adjust)
        };
        let after = tasks(&d);
        let untouched = before.into_iter().filter(|(full, _)| !touched(full));
        let (kept, same) = untouched.fold((0, true), |(n, same), port| (n + 1, same && after.contains(&port)));
        prop_assert!(same);
        prop_assert!(done.unchanged <= kept);
        prop_assert_eq!(applied(&mut d, &second).changes, []);
    }

    /// Objective: an export describes the running state: applying it changes nothing, and a daemon that starts with it
    /// has the same ports.
    #[test]
    fn an_export_describes_the_running_state(text in file(), hand in 0..3u8) {
        let mut d = started(&text);
        for n in 0..hand {
            by_hand(&mut d, "vale2", &format!("h{n}"), PortOptions { rings: n.into(), ..PortOptions::default() });
        }
        let written = export(&d);
        prop_assert_eq!(applied(&mut d, &written.text).changes, []);
        let again = started(&written.text);
        prop_assert_eq!(ports(&again), ports(&d));
        prop_assert_eq!(export(&again).config, written.config);
    }

    /// Objective: if any step fails, the state is the same as before the first step.
    #[test]
    fn a_failed_step_leaves_the_state_as_before(first in file(), second in file()) {
        let mut d = started(&first);
        let before = (export(&d), ports(&d));
        let text = second + "[[port]]\nswitch = 'vale1'\nport = 'impossible'\nslots = 4000000000\n";
        let message = refused(&mut d, &text);
        let is_refused = message.contains("vale1:impossible cannot be attached");
        prop_assert!(is_refused && !message.contains("NOT"), "{}", message);
        prop_assert_eq!((export(&d), ports(&d)), before);
    }
}

/// Objective: each kind of difference is reported with its sign and name: settings first, then removed ports, then the
/// ports of the file in their order. Only ports that differ are touched.
#[test]
fn each_difference_is_reported_by_its_name() {
    let port = |port: &str, more: &str| format!("[[port]]\nswitch = 'vale0'\nport = '{port}'\n{more}\n");
    let mut d = started(&(port("same", "") + &port("goes", "") + &port("rings", "rings = 2") + &port("waits", "")));
    let text = "workers = 3\n[switch]\nageing_s = 7\n".to_owned()
        + &port("same", "rings = 1")
        + &port("rings", "rings = 3")
        + &port("waits", "lossless = true")
        + &port("null:comes", "");
    let before = tasks(&d);
    let done = applied(&mut d, &text);
    assert_eq!(
        short(&done),
        ["!workers", "~switch.ageing_s", "-vale0:goes", "*vale0:rings", "~vale0:waits", "+vale0:comes"]
    );
    assert_eq!(done.unchanged, 1);
    let after = tasks(&d);
    let kept = |name: &str| before.iter().find(|(full, _)| full == name) == after.iter().find(|(full, _)| full == name);
    assert!(kept("vale0:same") && kept("vale0:waits") && !kept("vale0:rings"));
    assert!(d.ports.get("vale0:waits").unwrap().lossless);
    assert_eq!((d.config.switch.ageing_s, d.switches.tick_length().as_millis()), (7, 466));
    assert_eq!(short(&applied(&mut d, &text)), ["!workers"]);
}

/// Objective: ports attached by hand stay, unless pruned; a port that the file contains with the same options belongs
/// to the file from then on; a port that the file contains with other options is a conflict.
#[test]
fn by_hand_or_from_the_file() {
    let mut d = started("");
    by_hand(&mut d, "vale0", "mine", PortOptions::default());
    assert_eq!(applied(&mut d, "").changes, []);
    let other = "\n[[port]]\nswitch = 'vale0'\nport = 'mine'\nrings = 2\n";
    let message = refused(&mut d, other);
    assert!(message.starts_with("f.toml:4:8: vale0:mine was attached by hand, as mine"), "{message}");
    assert!(message.contains("nothing has changed"), "{message}");
    let pruned = apply(&mut d, &ApplyParams { prune: true, dry_run: true, ..params("") }).unwrap();
    assert_eq!(short(&pruned), ["-vale0:mine"]);
    let same = "[[port]]\nswitch = 'vale0'\nport = 'mine'\n";
    assert_eq!((applied(&mut d, same).unchanged, applied(&mut d, same).changes), (1, vec![]));
    assert_eq!(short(&applied(&mut d, other)), ["*vale0:mine"]);
    assert_eq!(short(&applied(&mut d, "")), ["-vale0:mine"]);
    by_hand(&mut d, "vale0", "mine", PortOptions::default());
    assert_eq!(short(&apply(&mut d, &ApplyParams { prune: true, ..params(other) }).unwrap()), ["*vale0:mine"]);
    assert!(d.ports.get("vale0:mine").unwrap().declared.as_ref().unwrap().from_file);
}

/// Objective: foreseeable faults are refused before any change, with line and column in the file.
#[test]
fn foreseeable_faults_are_refused_before_any_change() {
    let mut d = started("[[port]]\nswitch = 'vale0'\nport = 'a'\n");
    let before = export(&d);
    let there = tempfile::tempdir().unwrap();
    d.reach = Reach::of([there.path()]);
    let many: String = (0..4097).map(|n| format!("[[port]]\nswitch = 'vale1'\nport = 'null:n{n}'\n")).collect();
    let switches: String = (0..1025).map(|n| format!("[[port]]\nswitch = 'vale{n}'\nport = 'null:n'\n")).collect();
    for (text, place, word) in [
        ("[[port]]\nswitch = 'vale0'\nport = 'b'\nspeed = 2", "f.toml:4:9: ", "speed applies only to"),
        ("[[port]]\nswitch = 'vale0'\nport = 'pcap:relative'", "f.toml:3:8: ", "expected an absolute path"),
        ("[[port]]\nswitch = 'vale0'\nport = 'pcap:/elsewhere/x'", "f.toml:3:8: ", "cannot reach /elsewhere"),
        ("[[port]]\nswitch = 'vale0'\nport = 'netmap:nowhere0'", "f.toml:3:8: ", "interface nowhere0 does not exist"),
        ("[[port]]\nport = 'ptnet:/p'\nbackend = 'netmap:nowhere0'", "f.toml:2:8: ", "cannot reach"),
        (
            "[[port]]\nswitch = 'vale0'\nport = 'a'\n[[port]]\nswitch = 'vale0'\nport = 'null:a'",
            "f.toml:6:8: ",
            "vale0:a",
        ),
        ("[quota]\nports = 1048577", "f.toml:2:9: ", "ports is 1048577"),
        (many.as_str(), "f.toml:12290:10: ", "too many ports, expected at most 4096"),
        (switches.as_str(), "f.toml:3074:10: ", "too many switches, expected at most 1024"),
    ] {
        let message = refused(&mut d, text);
        assert!(message.starts_with(place) && message.contains(word), "{message}");
        assert_eq!(export(&d), before, "{message}");
    }
    let known =
        format!("[[port]]\nswitch = 'vale0'\nport = 'vhost:{}/v'\nsocket_user = 'no such'", there.path().display());
    let message = refused(&mut d, &known);
    assert!(message.starts_with("f.toml:4:15: ") && message.contains("user no such does not exist"), "{message}");
}

/// Objective: a failed rollback is reported, and so are ports that were attached again.
#[test]
fn a_failed_rollback_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("frames.pcap");
    let mut pcap = [0u8; 24];
    pcap[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
    pcap[4] = 2;
    pcap[6] = 4;
    pcap[16..20][2] = 4;
    pcap[20] = 1;
    std::fs::write(&file, pcap).unwrap();
    let port = format!("[[port]]\nswitch = 'vale0'\nport = 'pcap:in={}'\nname = 'replay'\n", file.display());
    let mut d = started(&(port + "[[port]]\nswitch = 'vale0'\nport = 'web'\n"));
    std::fs::remove_file(&file).unwrap();
    let message = refused(&mut d, "\n[[port]]\nswitch = 'vale0'\nport = 'x'\nslots = 4000000000\n");
    assert!(message.starts_with("f.toml:4:8: vale0:x cannot be attached"), "{message}");
    assert!(message.contains("attached again, so that peers must reconnect: vale0:web"), "{message}");
    assert!(message.contains("not rolled back: vale0:replay is no longer attached ("), "{message}");
    assert!(d.ports.contains("vale0:web") && !d.ports.contains("vale0:replay"));
}

/// Objective: every setting that can change at run time does change; for every other setting, each application of the
/// file reports that a restart is needed; folders that the sandbox cannot reach are named.
#[test]
fn settings_now_or_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = started("[[port]]\nswitch = 'vale0'\nport = 'a'\n");
    d.reach = Reach::of([dir.path()]);
    let port = "[[port]]\nswitch = 'vale0'\nport = 'a'\n";
    let text = format!(
        "run_dir = '/elsewhere'\nworkers = 3\ncpus = [0]\nspin_us = 9\nrt_priority = 9\nuser = 'u'\nsandbox = false\n\
         latency_sampling = 7\nrequire_ports = true\n\
         allow_nics = ['n']\nallow_taps = ['t']\nallow_dirs = ['/elsewhere', '{}']\n[sockets]\nmode = '0666'\n\
         [switch]\nageing_s = 9\ntable_entries = 64\nshared = ['s']\nsticky_addresses = false\n\
         lossless_between_users = true\n\
         [quota]\nconnections = 1\nports = 1\nswitches = 1\nmemory_mib = 1\ndescriptors = 1\naddresses = 1\n\
         unread_kib = 1\nlog_lines = 1\ncaptures_mib = 1\n{port}",
        dir.path().display()
    );
    let later = ["!run_dir", "!workers", "!cpus", "!spin_us", "!rt_priority", "!user", "!sandbox", "!allow_dirs"];
    let later_too = ["!sockets.mode", "!switch.table_entries"];
    let done = applied(&mut d, &text);
    for change in later.iter().chain(&later_too) {
        assert!(short(&done).contains(&(*change).to_owned()), "{change}");
    }
    let why = done
        .changes
        .iter()
        .find(|change| change.action == ConfigAction::Restart && change.name == "allow_dirs")
        .unwrap();
    assert_eq!(why.note.as_deref(), Some("the sandbox excludes /elsewhere"));
    assert_eq!(d.config.allow_dirs, [dir.path()]);
    assert_eq!(
        (d.config.quota.ports, d.config.allow_nics.len(), d.config.latency_sampling, d.config.workers),
        (1, 1, 7, started("").config.workers)
    );
    let again = short(&applied(&mut d, &text));
    assert_eq!(again, later.iter().chain(&later_too).map(|change| (*change).to_owned()).collect::<Vec<_>>());
    crate::system::log::set_limit(u32::MAX);
}

/// Objective: for values that are below, at or above each setting's bounds, and for values of another type, the schema,
/// the file at start, `config.apply` and the flag agree on whether the value is valid.
#[test]
fn all_judge_alike() {
    let mut d = started("");
    for setting in SETTINGS {
        let samples = samples(setting.shape);
        assert!([true, false].iter().all(|fits| samples.iter().any(|sample| sample.1 == *fits)), "{setting:?}");
        for (value, fits) in samples {
            for (judge, judgement) in judgements(&mut d, setting, &value) {
                assert_eq!(judgement.is_ok(), fits, "{setting:?} = {value}: {judge}: {judgement:?}");
            }
        }
    }
}

/// Returns the verdicts on a setting's value: of the schema, of the file at start, of `config.apply` and, if the
/// setting has a flag, of the flag.
fn judgements(d: &mut Daemon, setting: &'static Setting, value: &Value) -> Vec<(&'static str, Result<(), String>)> {
    let (head, line) =
        if setting.table.is_empty() { (String::new(), 1) } else { (format!("[{}]\n", setting.table), 2) };
    let text = format!("{head}{} = {}\n", setting.name, toml::Value::try_from(value).unwrap());
    let schema: Value = serde_json::from_str(&config::schema()).unwrap();
    let table = if line == 1 { &schema } else { &schema["properties"][setting.table] };
    let in_schema = admits(&table["properties"][setting.name], value).then_some(()).ok_or_else(String::new);
    let started = config::ConfigFile::parse(&text).map_err(|why| why.to_string());
    let dry = apply(d, &ApplyParams { dry_run: true, ..params(&text) }).map_err(|why| why.message);
    assert!(dry.as_ref().err().is_none_or(|why| why.starts_with(&format!("f.toml:{line}:"))), "{dry:?}");
    let mut all = vec![("schema", in_schema), ("file", started.map(drop)), ("apply", dry.map(drop))];
    let words = shapes::words(setting.shape, value).unwrap_or_default();
    if setting.flag().is_some() && !words.is_empty() {
        let words = vec![(setting, words.into_iter().map(OsString::from).collect())];
        let behind = Overrides { words, ..Overrides::default() }.over(config::ConfigFile::default());
        all.push(("flag", behind.map(drop).map_err(|why| why.to_string())));
    }
    all
}

/// Whether the file's schema admits a value.
fn admits(schema: &Value, value: &Value) -> bool {
    let is_within = |number: f64, least: &str, most: &str| {
        schema[least].as_f64().is_none_or(|least| least <= number)
            && schema[most].as_f64().is_none_or(|most| number <= most)
    };
    match (schema["type"].as_str(), value) {
        (Some("boolean"), Value::Bool(_)) => true,
        (Some("integer"), Value::Number(number)) => {
            !number.is_f64() && is_within(number.as_f64().unwrap(), "minimum", "maximum")
        }
        (Some("string"), Value::String(text)) => {
            let pattern = schema["pattern"].as_str().map(|pattern| pattern.trim_matches(['^', '$']));
            pattern.is_none_or(|pattern| fits(pattern, text))
        }
        (Some("array"), Value::Array(list)) => {
            let has_length = is_within(list.len() as f64, "minItems", "maxItems");
            has_length && list.iter().all(|one| admits(&schema["items"], one))
        }
        (Some("object"), Value::Object(map)) => map.iter().all(|(key, one)| {
            let of_key = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
            of_key != false && admits(of_key, one)
        }),
        _ => false,
    }
}

/// Whether a text matches a pattern of characters and classes (`[a-z]`), each optionally followed by `?` or `{n}`.
fn fits(pattern: &str, text: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return text.is_empty() };
    let length = if first == '[' { pattern.find(']').unwrap() + 1 } else { first.len_utf8() };
    let (class, rest) = pattern.split_at(length);
    let (counts, rest) = match rest.chars().next() {
        Some('?') => (0..=1, &rest[1..]),
        Some('{') => {
            let (count, rest) = rest[1..].split_once('}').unwrap();
            let count = count.parse().unwrap();
            (count..=count, rest)
        }
        _ => (1..=1, rest),
    };
    let class: Vec<char> = class.trim_matches(['[', ']']).chars().collect();
    let is_in = |c: &char| match class[..] {
        [first, '-', last] => (first..=last).contains(c),
        _ => class.contains(c),
    };
    counts.into_iter().any(|count: usize| {
        text.len() >= count && text.chars().take(count).all(|c| is_in(&c)) && fits(rest, &text[count..])
    })
}
