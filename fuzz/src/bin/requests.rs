//! Passes arbitrary requests of several unprivileged users to the daemon's main thread, over both sockets, with
//! hang-ups in between.
//!
//! These users may not attach an interface, a TAP or a tunnel, but may name files and sockets in a folder that belongs
//! to this target. Tunnels belong to root, who sends requests about them.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netvale_abi::nmreq::{NETMAP_REQ_CSB_ENABLE, NETMAP_REQ_REGISTER};
use netvale_control::attach::{AttachRequest, BringRequest, FLAG_FILE, FilePlacement, OffsetsRequest, PoolSizes};
use netvale_control::device::{BODY_LEN, DeviceRequest, HoldRequest};
use netvale_control::types::AttachParams;
use netvale_daemon::fuzzing::{FuzzRig, descriptors};
use netvale_fuzz::{FuzzInput, bell, fuzz_target, memfd, word_at};

const USERS: [u32; 3] = [70_001, 70_002, 70_003];
/// Maximum number of steps of an input, which limits the time that an input takes.
const MOST: usize = 64;

/// Names of ports that are opened. Some of the ports exist, and some do not.
const NAMES: &str = "vale0:a vale0:b vale1:a vale1:b vale2:c vales:x vales:y netmap:p{1 netmap:p}1 netmap:q{2 \
    vale0:a{1 vale0:a}1 vale0:a/r vale0:a/t vale1:a/z netmap:lasts netmap:lasts{3 netmap:lasts/rt vale0:a@2 vale1:b@3 \
    vales:x/r netmap:p{1/rt netmap:nothing vale0:a-0";
/// Ports that are attached over the control socket. `DIR` stands for the target's folder, `HERE` for an address of the
/// loopback interface.
const ATTACHED: &str = "a b null: echo: pcap:out=DIR/o.pcap pcap:in=DIR/i.pcap vhost:DIR/v ptnet:DIR/p e1000:DIR/e \
    lasts tap:fuzz netmap:lo vxlan:7,local=HERE,remote=10.0.0.2 vxlan:8,local=HERE,port=4790";
const METHODS: &str = "version switch.list switch.table port.detach port.list port.show port.evicted stats.all \
    config.apply config.export shutdown subscribe unsubscribe vxlan.set vxlan.local";
/// Tunnels that root attaches.
const TUNNELS: &str = "vxlan:7,local=HERE,remote=10.0.0.2 vxlan:8,local=HERE vxlan:7,local=HERE,port=4790 \
    vxlan:9,local=::1";
/// Valid and invalid IP addresses of VTEPs and neighbours.
const IPS: &str = "10.0.0.2 10.0.0.3 10.0.0.4 fd00::2 224.0.0.1 HERE 0.0.0.0 ::ffff:10.0.0.2";
/// Valid and invalid Ethernet addresses.
const MACS: &str = "02:00:00:00:00:01 02:00:00:00:00:02 02:00:00:00:00:03 01:00:5e:00:00:01 00:00:00:00:00:00 \
    ff:ff:ff:ff:ff:ff";
/// A step whose first byte is at least this is a request by root.
const ROOT: u8 = 0xf0;

struct FuzzedDaemon {
    rig: FuzzRig,
    folder: String,
    here: String,
    file: OwnedFd,
    eventfd: OwnedFd,
    /// Number of open descriptors when there are no connections and ports. After each input, this number must be open
    /// again. `None` during the first inputs.
    descriptors: Option<usize>,
    runs: u32,
}

fn fuzzed() -> Option<FuzzedDaemon> {
    let folder = std::env::temp_dir().join(format!("netvale-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).ok()?;
    let folder = folder.to_str()?.to_owned();
    let config = format!(
        "run_dir = {folder:?}\nallow_dirs = [{folder:?}]\nspin_us = 0\n\
         [switch]\nshared = ['vales']\ntable_entries = 64\n\
         [quota]\nconnections = 6\nports = 5\nswitches = 2\nmemory_mib = 4\n"
    );
    let file = memfd(1 << 20)?;
    let eventfd = bell()?;
    // The address is derived from the PID, since several fuzzers may run at the same time.
    let [a, b, ..] = std::process::id().to_le_bytes();
    let here = format!("127.{}.{b}.1", 1 | a);
    Some(FuzzedDaemon { rig: FuzzRig::new(&config)?, folder, here, file, eventfd, descriptors: None, runs: 0 })
}

thread_local! {
    static FUZZED: std::cell::RefCell<Option<FuzzedDaemon>> = std::cell::RefCell::new(fuzzed());
}

fn name(input: &mut FuzzInput<'_>) -> String {
    match input.byte() {
        0xff => String::from_utf8_lossy(input.bytes()).into_owned(),
        n => word_at(NAMES, n).to_owned(),
    }
}

fn attach_request(input: &mut FuzzInput<'_>) -> AttachRequest {
    let mut request =
        AttachRequest { name: name(input), tx_slots: 8, rx_slots: 8, buf_size: 128, ..AttachRequest::default() };
    let more = input.byte();
    let mut number = |bit: u8, of: u32| if more & bit != 0 { input.index(of) } else { 0 };
    request.flags = number(1, 0x400);
    request.tx_rings = number(2, 4);
    request.rx_rings = number(2, 4);
    request.extra_bufs = number(4, 64);
    request.pipes = number(4, 8);
    request.hdr_len = number(8, 12);
    request.mem_id = number(16, 8);
    if more & 32 != 0 {
        request.tx_slots = input.index(64);
        request.rx_slots = input.index(64);
        request.buf_size = input.index(40).wrapping_mul(64);
    }
    if more & 64 != 0 {
        let mut pair = || (input.index(200), input.index(100).wrapping_mul(64));
        request.pools = PoolSizes { ifs: pair(), rings: pair(), bufs: pair() };
    }
    if more & 128 != 0 {
        let bits = input.index(64);
        let max = input.index(128);
        let initial = input.index(128);
        request.offsets = (input.byte() & 1 == 0).then_some(OffsetsRequest { bits, max, initial });
        if input.byte() & 1 != 0 {
            request.flags |= FLAG_FILE;
            request.file =
                Some(FilePlacement { offset: 4096 * u64::from(input.byte()), len: 4096 * u64::from(input.byte()) });
        }
    }
    request
}

fn device_request(input: &mut FuzzInput<'_>) -> DeviceRequest {
    let kinds = NETMAP_REQ_CSB_ENABLE - NETMAP_REQ_REGISTER + 2;
    let mut request =
        DeviceRequest { reqtype: u16::from(input.byte()) % kinds, name: name(input), ..DeviceRequest::default() };
    if request.name == "netmap:lasts" || input.byte() & 3 == 0 {
        request.name = "lasts".into();
    }
    for _ in 0..input.byte() & 7 {
        request.body[input.below(BODY_LEN)] = input.byte();
    }
    request
}

const SWITCHES: &str = "vale0 vale1 vale2 vales vale9";

/// Returns up to three elements of a JSON list.
fn listed(input: &mut FuzzInput<'_>, mut one: impl FnMut(&mut FuzzInput<'_>) -> String) -> String {
    (0..input.byte() & 3).map(|_| one(input)).collect::<Vec<_>>().join(",")
}

/// Returns a JSON object with a list of elements to add and a list of elements to remove.
fn changes(
    input: &mut FuzzInput<'_>,
    add: impl FnMut(&mut FuzzInput<'_>) -> String,
    remove: impl FnMut(&mut FuzzInput<'_>) -> String,
) -> String {
    format!(r#"{{"add":[{}],"remove":[{}]}}"#, listed(input, add), listed(input, remove))
}

fn ip(input: &mut FuzzInput<'_>) -> String {
    format!("{:?}", word_at(IPS, input.byte()))
}

fn mac(input: &mut FuzzInput<'_>) -> String {
    format!("{:?}", word_at(MACS, input.byte()))
}

fn address(input: &mut FuzzInput<'_>) -> String {
    let mac = mac(input);
    let vtep = ip(input);
    let n = input.byte();
    format!(r#"{{"mac":{mac},"vtep":{vtep},"sticky":{},"sequence":{}}}"#, n & 1 != 0, n >> 1)
}

fn neighbor(input: &mut FuzzInput<'_>) -> String {
    let mac = mac(input);
    let ip = ip(input);
    let n = input.byte();
    format!(r#"{{"ip":{ip},"mac":{mac},"router":{}}}"#, n & 1 != 0)
}

/// Returns the method and parameters of a request `vxlan.set` if `sets` is set, otherwise of a request `vxlan.local`.
fn about_tunnel(input: &mut FuzzInput<'_>, sets: bool) -> String {
    let port = format!("{}:{}", word_at(SWITCHES, input.byte()), word_at("t0 t1 t2 a n1", input.byte()));
    let how = input.byte();
    if !sets {
        let since = if how & 2 == 0 { String::new() } else { format!(r#","since":{}"#, how >> 2) };
        return format!(r#""vxlan.local","params":{{"port":"{port}","watch":{}{since}}}"#, how & 1 != 0);
    }
    let flood = changes(input, ip, ip);
    let addresses = changes(input, address, mac);
    let neighbors = changes(input, neighbor, ip);
    let lists = format!(r#""flood":{flood},"addresses":{addresses},"neighbors":{neighbors}"#);
    format!(r#""vxlan.set","params":{{"port":"{port}","replace":{},{lists}}}"#, how & 1 != 0)
}

/// Returns a line with a request: `request` has the method and the parameters.
fn call(request: &str, here: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":{request}}}"#).replace("HERE", here) + "\n"
}

/// Returns a line with a request of root about a tunnel.
fn roots_line(input: &mut FuzzInput<'_>, here: &str) -> String {
    let params = match input.byte() % 5 {
        0 => {
            let tunnel = word_at(TUNNELS, input.byte());
            let n = input.byte();
            format!(
                r#""port.attach","params":{{"switch":"{}","port":"{tunnel}","options":{{"name":"t{}"{}{}}}}}"#,
                word_at(SWITCHES, input.byte()),
                n & 1,
                if n & 2 == 0 { "" } else { r#","evpn":true"# },
                if n & 4 == 0 { "" } else { r#","any_remote":true"# },
            )
        }
        1 => {
            let switch = word_at(SWITCHES, input.byte());
            format!(r#""port.detach","params":{{"switch":"{switch}","port":"t{}"}}"#, input.byte() & 1)
        }
        n => about_tunnel(input, n != 2),
    };
    call(&params, here)
}

fn line(input: &mut FuzzInput<'_>, folder: &str, here: &str) -> String {
    let method = input.byte();
    let switch = word_at(SWITCHES, input.byte());
    let params = match method & 1 {
        0 => {
            let port = word_at(ATTACHED, input.byte()).replace("DIR", folder);
            let options = match input.byte() {
                0..=127 => String::new(),
                n => format!(r#","options":{{"name":"n{}","rings":{},"slots":{}}}"#, n & 3, n >> 2 & 3, 8 << (n & 3)),
            };
            format!(r#""port.attach","params":{{"switch":"{switch}","port":"{port}"{options}}}"#)
        }
        _ => match word_at(METHODS, method >> 1) {
            "port.detach" => format!(
                r#""port.detach","params":{{"switch":"{switch}","port":"{}"}}"#,
                word_at("a b c x lasts n1 n2", input.byte())
            ),
            "switch.table" => format!(r#""switch.table","params":{{"switch":"{switch}"}}"#),
            "port.show" => {
                format!(r#""port.show","params":{{"port":"{switch}:{}"}}"#, word_at("a b c x", input.byte()))
            }
            "subscribe" => format!(
                r#""subscribe","params":{{"only":[{}],"names":[{}],"snapshot":{}}}"#,
                ["", r#""vale0""#, r#""vale0:a","vales""#][input.below(3)],
                ["", r#""port""#, r#""request.refused""#, r#""nothing""#][input.below(4)],
                input.byte() & 1 == 0
            ),
            "config.apply" => r#""config.apply","params":{"text":"","prune":true}"#.to_owned(),
            method @ ("vxlan.set" | "vxlan.local") => about_tunnel(input, method == "vxlan.set"),
            other => format!(r#""{other}""#),
        },
    };
    call(&params, here)
}

/// Returns a request to attach a TAP with descriptors that the client passes. The descriptors do not belong to a TAP.
fn bring_request(input: &mut FuzzInput<'_>) -> BringRequest {
    let port = word_at("tap:x tap:b null:x", input.byte()).to_owned();
    let switch = word_at("vale0 vale1 vales", input.byte()).into();
    let params = AttachParams { switch, port, ..AttachParams::default() };
    BringRequest { queues: u16::from(input.byte() % 4), params }
}

fn step(f: &mut FuzzedDaemon, input: &mut FuzzInput<'_>) {
    let FuzzedDaemon { rig, folder, here, file, eventfd, .. } = f;
    let op = match input.byte() {
        u8::MAX => return rig.hang_up_root(),
        ROOT.. => {
            let is_there = rig.send_as_root(&roots_line(input, here));
            assert!(is_there, "the daemon has ended root's connection");
            return;
        }
        op => op % 12,
    };
    let which = input.below(rig.connections());
    let message = match op {
        0 | 1 => {
            let user = USERS[input.below(USERS.len())];
            rig.connect(user, op == 0);
            return;
        }
        2 => return rig.hang_up(which),
        3 => return rig.look_around(),
        4..=6 => attach_request(input).encode().to_vec(),
        7 => match input.byte() % 3 {
            0 => HoldRequest::Resume.encode().to_vec(),
            1 => HoldRequest::Release.encode().to_vec(),
            _ => bring_request(input).encode(),
        },
        8 => device_request(input).encode().to_vec(),
        9 | 10 => line(input, folder, here).into_bytes(),
        _ => input.bytes().to_vec(),
    };
    // A valid request may have a socket for its answer as the first descriptor, and a file as the second. An eventfd is
    // used here in place of the socket.
    let fds: &[BorrowedFd<'_>] = match input.byte() {
        0..=199 if op < 7 && message.len() > 100 => &[eventfd.as_fd(), file.as_fd()],
        200..=210 => &[eventfd.as_fd()],
        211..=214 => &[file.as_fd(), eventfd.as_fd(), file.as_fd()],
        _ => &[],
    };
    rig.send(which, &message, fds);
}

fuzz_target!(|data: &[u8]| {
    FUZZED.with_borrow_mut(|fuzzed| {
        let Some(fuzzed) = fuzzed else { return };
        let mut input = FuzzInput(data);
        for user in USERS {
            fuzzed.rig.connect(user, true);
        }
        fuzzed.rig.connect(USERS[0], false);
        input.steps(MOST, |input| {
            step(fuzzed, input);
            fuzzed.rig.check(&USERS);
        });
        fuzzed.rig.end(&USERS, fuzzed.descriptors);
        // After the first inputs, all threads have started, and all descriptors that are opened on first use are open.
        fuzzed.runs += 1;
        if fuzzed.runs == 50 {
            fuzzed.descriptors = descriptors();
        }
    });
});
