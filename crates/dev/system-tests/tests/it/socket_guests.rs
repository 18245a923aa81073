//! Virtual machines on socket ports, beside a machine on a vhost-user port: Debian's kernel under Debian 12's QEMU.
//! Daemon and guests belong to an ordinary user.

use crate::common::guest;
use crate::common::stdout;
use crate::common::up;

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use guest::{Guest, Nic, Qemu, alone, image};
use up::Up;

/// A user ID that no account of the system has.
const USER: u32 = 70_320;

/// Script of guest N, which has the addresses 10.1.0.N and, in VLAN 7, 10.7.0.N. For each line on the console but
/// `off`, the guest pings all other guests at both addresses with packets of 8,000 bytes.
const SCRIPT: &str = "
ip addr add 10.1.0.$n/24 dev eth0; ip link set eth0 mtu 9000 up
ip link add link eth0 name eth0.7 type vlan id 7
ip addr add 10.7.0.$n/24 dev eth0.7; ip link set eth0.7 up
echo ready
reach() {
    for i in $(seq 60); do ping -c 1 -W 1 -s 7972 $1 >/dev/null && break; done
    ping -c 3 -i 0.1 -W 10 -s 7972 $1 | grep ' 0% packet loss' && echo \"reached $1\"
}
while read line </dev/ttyS0; do
    case $line in off*) exit 0 ;; esac
    for other in $others; do
        reach 10.1.0.$other || exit 1
        reach 10.7.0.$other || exit 1
    done
done
";

fn attach(up: &Up, line: &str) {
    stdout(&up.run(&format!("attach vale0 {line} --mtu 9000")));
}

/// Boots guest `number` with the card `nic`.
fn start(image: &guest::Image, number: u8, nic: &Nic<'_>) -> Guest {
    let others: Vec<_> = (1..=4).filter(|n| *n != number).map(|n| n.to_string()).collect();
    let script = format!("n={number}; others='{}'{SCRIPT}", others.join(" "));
    Guest::start_with_netvale(image, &script, number, &Nic { qemu: Qemu::System, user: USER, ..*nic })
}

/// Types a line into each guest, and waits until that guest has reached all others.
fn all_reach_each_other(guests: &mut [Guest]) {
    for guest in 1..=guests.len() {
        guests[guest - 1].say("reach");
        for other in (1..=guests.len()).filter(|other| *other != guest) {
            guests[guest - 1].expect(&format!("reached 10.1.0.{other}"));
            guests[guest - 1].expect(&format!("reached 10.7.0.{other}"));
        }
    }
}

/// Objective: four guests, through stream, dgram, vde and vhost-user, reach each other with packets of 8,000 bytes,
/// tagged and untagged, before and after an upgrade of the daemon. Daemon and guests run without any privilege. The
/// upgrade keeps the connections, because this QEMU cannot reconnect its sockets.
#[test]
fn a_users_guests_by_stream_dgram_vde_and_vhost_user_reach_each_other_before_and_after_an_upgrade() {
    let _one = alone();
    if !rustix::process::geteuid().is_root() {
        return netvale_harness::skip("only root becomes another user");
    }
    let Some(image) = image() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("vde")).expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("permitted");
    for path in [folder.path(), &folder.path().join("vde")] {
        chown(path, Some(USER), Some(USER)).expect("permitted");
    }
    let dir = folder.path().display();
    let up = Up::start(&["--user", &USER.to_string(), "--allow-dir", &dir.to_string()]);
    attach(&up, &format!("stream:{dir}/stream"));
    attach(&up, &format!("dgram:{dir}/here,remote={dir}/there"));
    attach(&up, &format!("vde:{dir}/vde --name lab"));
    attach(&up, &format!("vhost:{dir}/vhost"));
    let dgram = "dgram,id=n0,local.type=unix,remote.type=unix";
    let netdevs = [
        format!("stream,id=n0,server=off,addr.type=unix,addr.path={dir}/stream"),
        format!("{dgram},local.path={dir}/there,remote.path={dir}/here"),
        format!("vde,id=n0,sock={dir}/vde"),
        String::new(),
    ];
    let vhost = folder.path().join("vhost");
    let mut guests: Vec<_> = (1..)
        .zip(&netdevs)
        .map(|(number, netdev)| {
            let socket = if netdev.is_empty() { &vhost } else { Path::new("") };
            start(image, number, &Nic { netdev, ..Nic::new(socket) })
        })
        .collect();
    guests.iter_mut().for_each(|guest| _ = guest.expect("ready"));
    all_reach_each_other(&mut guests);
    up.upgrade();
    all_reach_each_other(&mut guests);
    for port in ["stream", "here", "lab0001", "vhost"] {
        assert!(up.frames(&format!("vale0:{port}"), "out") > 0, "{}", up.show(&format!("vale0:{port}")));
    }
    for mut guest in guests {
        guest.say("off");
        guest.end();
    }
}
