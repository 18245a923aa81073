//! Files as they are read: all keys, their old spellings, and what is refused.

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

/// Objective: a file of the previous version, with every key in its old spelling, means the same; each old key is
/// reported with its line.
#[test]
fn old_spellings() {
    let text = "run-dir = '/run/nv'\nspin-us = 7\npoll-always = false\nrt-priority = 20\nworkers = 2\ncpus = [1]\nsandbox = false\n\
        allow-dirs = ['/d']\nallow-nics = ['eth0']\n[sockets]\nowner = 'u'\ngroup = 'g'\nmode = '0660'\n\
        [switch]\nageing-s = 10\ntable-entries = 64\n\
        [[port]]\nswitch = 'vale0'\nport = 'a'\nname = 'b'\nrings = 2\nslots = 64\nbuf_size = 4096\nextra_bufs = 3\nlossless = true\n\
        huge = true\nvnet_hdr = 12\n\
        [[port]]\nswitch = 'vale0'\nport = 'vhost:/vh'\nmtu = 9000\nclient = true\ngro = true\nmac = '02:00:00:00:00:01'\n\
        [[port]]\nswitch = 'vale0'\nport = 'pcap:/f'\nloop = true\nspeed = 2\n\
        [[port]]\nswitch = 'vale0'\nport = 'virtio:/v'\npacked = true\nno_mergeable = true\nno_in_order = true\n\
        [[port]]\nswitch = 'vale0'\nport = 'virtio:/w'\nvector = true\n\
        [[port]]\nswitch = 'vale0'\nport = 'netmap:eth0'\nhost = true\n\
        [[port]]\nswitch = 'vale0'\nport = 'e1000:/e'\nitr = 0\n\
        [[port]]\nport = 'ptnet:/p'\nvfio_user = true\nbackend = 'netmap:eth1'\n";
    let file = File::parse(text).unwrap();
    let told: Vec<_> = file.old_spellings.iter().map(|o| (o.line, o.old.as_str(), o.new.as_str())).collect();
    let expected = [
        (1, "run-dir", "run_dir"),
        (2, "spin-us", "spin_us"),
        (3, "poll-always", "poll_always"),
        (4, "rt-priority", "rt_priority"),
        (8, "allow-dirs", "allow_dirs"),
        (9, "allow-nics", "allow_nics"),
        (15, "ageing-s", "ageing_s"),
        (16, "table-entries", "table_entries"),
    ];
    assert_eq!(told, expected);
    let mut renewed = text.to_owned();
    expected.iter().for_each(|(_, old, new)| renewed = renewed.replace(old, new));
    let now = File::parse(&renewed).unwrap();
    assert!(now.old_spellings.is_empty());
    assert_eq!(File { old_spellings: Vec::new(), ..file }, now);
    assert_eq!(now.ports.len(), 8);
    let e = File::parse("workers = 1\nrun-dir = 'a'\nrun_dir = 'b'").unwrap_err().to_string();
    assert!(e.contains("run-dir is the old spelling of run_dir") && e.contains("line 2"), "{e}");
    assert_eq!(File::parse("[[port]]\nswitch='vale0'\nport='a'\nvnet-hdr=12").unwrap().old_spellings.len(), 1);
    assert!(File::parse("velo-city = 1").unwrap_err().to_string().contains("velo-city"));
}

/// Objective: unknown keys and values out of range are refused with their place.
#[test]
fn refusals() {
    let e = File::parse("wrokers = 2").unwrap_err().to_string();
    assert!(e.contains("wrokers") && e.contains("line 1"), "{e}");
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
    assert!(File::parse("rt-priority = 0").unwrap().into_config().is_err());
    assert!(File::parse("rt-priority = 100").unwrap().into_config().is_err());
    assert!(File::parse("cpus = []").unwrap().into_config().is_err());
    assert!(File::parse("[switch]\nageing-s = 0").unwrap().into_config().is_err());
    assert!(parse_mode("9").is_err() && parse_mode("7777").is_err() && parse_mode("0660").is_ok());
}
