//! Tests of the parser for configuration files: all keys, and refusals.

use netvale_control::options::OptionShape;
use serde_json::Value;

use super::*;

/// Objective: a file with settings in several tables, and with a port, is parsed correctly.
#[test]
fn a_full_file_is_parsed_correctly() {
    let text = r#"
        run_dir = "/run/nv"
        cpus = [1, 2]
        workers = 3
        spin_us = 0
        rt_priority = 20
        [sockets]
        group = "netvale"
        mode = "0666"
        [switch]
        ageing_s = 10
        [[port]]
        switch = "vale0"
        port = "tap:nv0"
        mtu = 9000
    "#;
    let c = ConfigFile::parse(text).unwrap().into_config();
    assert_eq!(c.cpu_of_each(), [Some(1), Some(2), Some(1)]);
    assert_eq!((c.polling(), c.rt_priority), (Polling::Spin(Duration::ZERO), Some(20)));
    assert_eq!((c.sockets.mode, c.switch.ageing_s, c.ports[0].options.mtu), (Some(SocketMode(0o666)), 10, Some(9000)));
}

/// Objective: unknown keys and values out of range are refused with their position.
#[test]
fn bad_settings_are_refused_with_their_position() {
    for key in ["wrokers", "run-dir"] {
        let e = ConfigFile::parse(&format!("{key} = 2")).unwrap_err().to_string();
        assert!(e.contains(key) && e.contains("line 1"), "{e}");
    }
    assert!(ConfigFile::parse("[[port]]\nswitch='vale0'\nport='a'\nvelocity=1").is_err());
    let e = ConfigFile::parse("\n[[port]]\nport='tap:nv0'\nvnet_hdr=11").unwrap_err().to_string();
    assert!(e.contains("vnet_hdr 11") && e.contains("line 4"), "{e}");
    let e = ConfigFile::parse("[[port]]\nswitch='vale0'\nport='a'\nmtu='x'").unwrap_err().to_string();
    assert!(e.contains("line 4") && e.contains("mtu='x'") && !e.contains("options"), "{e}");
    for (key, number) in [("speed", "inf"), ("speed", "nan"), ("mtu", "nan"), ("vnet_hdr", "-inf")] {
        let port = if key == "speed" { "pcap:/f" } else { "ptnet:/p" };
        let e = ConfigFile::parse(&format!("[[port]]\nswitch='vale0'\nport='{port}'\n{key}={number}"))
            .unwrap_err()
            .to_string();
        assert!(e.contains(&format!("invalid {key}")) && e.contains("line 4"), "{e}");
    }
    let e = ConfigFile::parse("[[port]]\nport='a'\n\nvelocity=1").unwrap_err().to_string();
    assert!(e.contains("velocity") && e.contains("line 4"), "{e}");
    let e = ConfigFile::parse("[[port]]\nswitch='vale0'").unwrap_err().to_string();
    assert!(e.contains("missing field `port`"), "{e}");
    let e = ConfigFile::parse("[[port]]\nswitch='vale0'\nport='a'\n[[port]]\nswitch='vale0'\nport='tap:x'\nname='a'")
        .unwrap_err()
        .to_string();
    assert!(e.contains("duplicate port name vale0:a") && e.contains("line 7"), "{e}");
    assert!(ConfigFile::parse("[[port]]\nswitch='vale0'\nport='a'\n[[port]]\nswitch='vale1'\nport='a'").is_ok());
    for (text, line, words) in [
        ("\nspin_us = 4000000000", 2, "spin_us is 4000000000, expected a number from 0 to 10000000; correct or omit"),
        (
            "[sockets]\nmode = '0o66'",
            2,
            "mode is \"0o66\", expected octal permission bits such as 0660, with w (2) for",
        ),
        ("cpus = []", 1, "cpus is [], expected a list of at most 64 numbers from 0 to 1023; correct or omit"),
        ("workers = 'two'", 1, "workers is \"two\", expected a number from 1 to 64; correct or omit this key"),
    ] {
        let e = ConfigFile::parse(text).unwrap_err().to_string();
        assert!(e.contains(&format!("line {line}")) && e.contains(words), "{e}");
    }
}

/// Objective: each setting keeps its value when it is written and read; an omitted setting has its default.
#[test]
fn values_of_all_settings() {
    let text = "run_dir = '/r'\nworkers = 2\ncpus = [1, 0]\nspin_us = 7\nrt_priority = 3\nuser = 'u'\nsandbox = false\n\
        latency_sampling = 11\nrequire_ports = true\nallow_nics = ['n']\nallow_taps = ['t']\nallow_dirs = ['/d']\n\
        trusted_hypervisors = ['h']\n[sockets]\nowner = 'o'\ngroup = 'g'\nmode = '0600'\n\
        [switch]\nageing_s = 10\ntable_entries = 64\nshared = ['*']\nsticky_addresses = false\n\
        lossless_between_users = true\n\
        policies = {vale0 = {isolated = true, rate_in = '1gbit'}}\n\
        [quota]\nconnections = 1\nports = 2\nswitches = 3\nmemory_mib = 4\ndescriptors = 5\naddresses = 6\n\
        unread_kib = 7\nlog_lines = 8\ncaptures_mib = 9\nsubscriptions = 10";
    let table: toml::Table = text.parse().unwrap();
    let config = ConfigFile::parse(text).unwrap().into_config();
    let usual = ConfigFile::default().into_config();
    for setting in SETTINGS {
        let there = if setting.table.is_empty() { Some(&table) } else { table[setting.table].as_table() };
        let there = there.unwrap().get(setting.name).map(|value| serde_json::to_value(value).unwrap());
        assert_eq!(setting.value(&config), there.unwrap_or(Value::Bool(false)), "{setting:?}");
        if let Ok(default @ (Value::Number(_) | Value::Bool(_))) = setting.default().parse::<Value>() {
            assert_eq!(setting.value(&usual), default, "{setting:?}");
        }
    }
    let always = ConfigFile::parse("poll_always = true\nspin_us = 7").unwrap().into_config();
    assert_eq!((always.polling(), always.spin_us), (Polling::Always, usual.spin_us));
}

/// Objective: the reference page lists exactly the existing settings, with their defaults and bounds.
#[test]
fn the_reference_page_lists_exactly_the_settings() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let block = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let usual = Config::default();
    let shown = ConfigFile::parse(block).unwrap().0;
    for setting in SETTINGS.iter().filter(|setting| setting.shape != OptionShape::Policies) {
        let head = if setting.table.is_empty() { String::new() } else { format!("\n[{}]", setting.table) };
        let table = block.split_once(&head).unwrap().1.split("\n\n").next().unwrap();
        let line = table.lines().find(|line| line.starts_with(&format!("{} = ", setting.name)));
        let line = line.unwrap_or_else(|| panic!("the page lacks {setting:?}"));
        let says_none = line.contains("default: ") || ["user", "group"].contains(&setting.name);
        assert!(says_none || setting.value(&shown) == setting.value(&usual), "{line}");
        if let OptionShape::Number(least, most @ ..1_000_000_000) = setting.shape
            && setting.table != "quota"
        {
            assert!(line.contains(&format!("{} to {}", grouped(least), grouped(most))), "{line}");
        }
    }
}

/// Formats a number with thousands separators, e.g. 10,000,000.
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let is_first = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    digits.char_indices().flat_map(|(at, digit)| is_first(at).then_some(',').into_iter().chain([digit])).collect()
}
