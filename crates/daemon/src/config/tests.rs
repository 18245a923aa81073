//! Files as they are read: all keys, and what is refused.

use super::*;

/// Objective: a full file is parsed correctly.
#[test]
fn full_file() {
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
    let c = File::parse(text).unwrap().into_config().unwrap();
    assert_eq!(c.workers, [Some(1), Some(2), Some(1)]);
    assert_eq!((c.polling, c.rt_priority), (Polling::Spin(Duration::ZERO), Some(20)));
    assert_eq!((c.sockets.mode, c.ageing.as_secs(), c.ports[0].options.mtu), (Some(0o666), 10, Some(9000)));
}

/// Objective: unknown keys and values out of range are refused with their place.
#[test]
fn refusals() {
    for key in ["wrokers", "run-dir"] {
        let e = File::parse(&format!("{key} = 2")).unwrap_err().to_string();
        assert!(e.contains(key) && e.contains("line 1"), "{e}");
    }
    assert!(File::parse("[[port]]\nswitch='vale0'\nport='a'\nvelocity=1").is_err());
    let e = File::parse("\n[[port]]\nport='tap:nv0'\nvnet_hdr=11").unwrap_err().to_string();
    assert!(e.contains("vnet_hdr is 11") && e.contains("line 4"), "{e}");
    let e = File::parse("[[port]]\nswitch='vale0'\nport='a'\nmtu='x'").unwrap_err().to_string();
    assert!(e.contains("line 4") && e.contains("mtu='x'") && !e.contains("options"), "{e}");
    for (key, number) in [("speed", "inf"), ("speed", "nan"), ("mtu", "nan"), ("vnet_hdr", "-inf")] {
        let port = if key == "speed" { "pcap:/f" } else { "ptnet:/p" };
        let e =
            File::parse(&format!("[[port]]\nswitch='vale0'\nport='{port}'\n{key}={number}")).unwrap_err().to_string();
        assert!(e.contains(&format!("{key} is")) && e.contains("line 4"), "{e}");
    }
    let e = File::parse("[[port]]\nport='a'\n\nvelocity=1").unwrap_err().to_string();
    assert!(e.contains("velocity") && e.contains("line 4"), "{e}");
    let e = File::parse("[[port]]\nswitch='vale0'").unwrap_err().to_string();
    assert!(e.contains("missing field `port`"), "{e}");
    let e = File::parse("[[port]]\nswitch='vale0'\nport='a'\n[[port]]\nswitch='vale0'\nport='tap:x'\nname='a'")
        .unwrap_err()
        .to_string();
    assert!(e.contains("another port has the name vale0:a") && e.contains("line 7"), "{e}");
    assert!(File::parse("[[port]]\nswitch='vale0'\nport='a'\n[[port]]\nswitch='vale1'\nport='a'").is_ok());
    assert!(File::parse("workers = 0").unwrap().into_config().is_err());
    assert!(File::parse("workers = 1000").unwrap().into_config().is_err());
    assert!(File::parse("rt_priority = 0").unwrap().into_config().is_err());
    assert!(File::parse("rt_priority = 100").unwrap().into_config().is_err());
    assert!(File::parse("cpus = []").unwrap().into_config().is_err());
    assert!(File::parse("[switch]\nageing_s = 0").unwrap().into_config().is_err());
    assert!(parse_mode("9").is_err() && parse_mode("7777").is_err() && parse_mode("0660").is_ok());
}
