//! Virtual machines on socket ports: Debian's kernel under Debian 12's QEMU, whose `-netdev` is a socket, without
//! shared memory.

use crate::common::guest;
use crate::common::stdout;
use crate::common::up;

use std::sync::Mutex;

use guest::{Guest, Nic, Qemu, image};
use up::Up;

/// Emulated guests use all CPUs: one test runs at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Runs in guest N: 10.1.0.N, and 10.7.0.N in VLAN 7. For each line on the console but `off`, the guest pings all
/// others at both addresses with packets of 8,000 bytes.
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

/// Boots guest `number` with that `-netdev`.
fn start(image: &guest::Image, number: u8, netdev: &str) -> Guest {
    let others: Vec<_> = (1..=3).filter(|n| *n != number).map(|n| n.to_string()).collect();
    let script = format!("n={number}; others='{}'{SCRIPT}", others.join(" "));
    let nic = Nic { netdev, qemu: Qemu::System, ..Nic::new(std::path::Path::new("")) };
    Guest::start_with_netvale(image, &script, number, &nic)
}

/// Types a line into each guest, and waits until it has reached the others.
fn all_reach_each_other(guests: &mut [Guest; 3]) {
    for (guest, others) in guests.iter_mut().zip([[2, 3], [1, 3], [1, 2]]) {
        guest.say("reach");
        for other in others {
            guest.expect(&format!("reached 10.1.0.{other}"));
            guest.expect(&format!("reached 10.7.0.{other}"));
        }
    }
}

/// Objective: three guests, through stream, dgram and vde, reach each other with packets of 8,000 bytes, tagged and
/// untagged, before and after an upgrade of the daemon. The upgrade keeps the connections, because this QEMU cannot
/// reconnect.
#[test]
fn guests_by_stream_dgram_and_vde_reach_each_other_before_and_after_an_upgrade() {
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let up = Up::start(&[]);
    let dir = up.dir().display();
    std::fs::create_dir(up.path("vde")).expect("a folder");
    attach(&up, &format!("stream:{dir}/stream"));
    attach(&up, &format!("dgram:{dir}/here,remote={dir}/there"));
    attach(&up, &format!("vde:{dir}/vde --name lab"));
    let dgram = "dgram,id=n0,local.type=unix,remote.type=unix";
    let mut guests = [
        start(image, 1, &format!("stream,id=n0,server=off,addr.type=unix,addr.path={dir}/stream")),
        start(image, 2, &format!("{dgram},local.path={dir}/there,remote.path={dir}/here")),
        start(image, 3, &format!("vde,id=n0,sock={dir}/vde")),
    ];
    guests.iter_mut().for_each(|guest| _ = guest.expect("ready"));
    all_reach_each_other(&mut guests);
    up.upgrade();
    all_reach_each_other(&mut guests);
    for port in ["stream", "here", "lab0001"] {
        assert!(up.frames(&format!("vale0:{port}"), "out") > 0, "{}", up.show(&format!("vale0:{port}")));
    }
    for mut guest in guests {
        guest.say("off");
        guest.end();
    }
}
