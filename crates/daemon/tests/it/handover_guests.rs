//! Guests whose daemon is replaced. They lose no frame, get no frame twice or out of order, and never wait for an event
//! that does not come.

use crate::common;
use crate::common::ends;
use crate::common::published;

use common::ports::attach_guest as attach;
use common::{Daemon, crosses, receive, send, until};
use ends::{Again, BURST, Card, End, numbered};
use netvale::Port;
use netvale_e1000::driver::CardDriverOptions;
use published::{Driver, Plugged};
use serde_json::{Value, json};

/// Number of replacements of the daemon.
const TIMES: usize = 10;
/// Number of rounds of frames between two replacements.
const ROUNDS: u32 = 5;

/// Sends numbered frames in both directions, in bursts, while the daemon is replaced several times. Before each
/// replacement, another successor receives all items and then ends.
fn traffic(line: &Daemon, guest: &mut dyn End, other: &mut dyn End) {
    let mut again = Again::default();
    ends::rounds_while(
        |number| again.both_ways(guest, other, number),
        |pass| {
            for _ in 0..TIMES {
                pass(ROUNDS);
                line.is_robbed();
                pass(ROUNDS);
                line.is_succeeded();
            }
            pass(ROUNDS);
        },
    );
    assert_eq!((again.0, line.lives() as usize), (0, 1 + TIMES), "frames came again, or there was another daemon");
}

/// Returns the number of frames on each ring of a port.
fn carried(shown: &Value) -> Vec<u64> {
    shown["rings"].as_array().unwrap().iter().map(|ring| ring["frames"].as_u64().unwrap()).collect()
}

/// Objective: when the daemon is replaced ten times, an ivshmem ptnet guest and a program exchange frames without loss;
/// the port's description continues; afterwards, the guest stops and starts its rings as usual, and the next guest
/// finds the port.
#[test]
fn a_ptnet_guest_loses_no_frame_across_processes() {
    let line = Daemon::start("workers = 2");
    let path = attach(&line, "ptnet", json!({"slots": 64}));
    let mut local = line.open("vale0:local").unwrap();
    let mut guest = Port::as_guest(&path, 0).unwrap();
    traffic(&line, &mut guest, &mut local);
    let shown = line.show("vale0:guest");
    assert!(shown["notes"].to_string().contains("rings run"), "{shown}");
    let frames = carried(&shown);
    assert!(frames.iter().all(|n| *n >= (TIMES as u64) * u64::from(ROUNDS * BURST)), "{shown}");
    assert_eq!(frames[0], frames[1], "{shown}");
    drop(guest);
    until("the port is free", || line.notes("vale0:guest").contains("waits"));
    let mut guest = Port::as_guest(&path, 0).unwrap();
    crosses(&mut local, &mut guest, &numbered(2, 7));
}

/// Objective: when the daemon is replaced ten times, a guest that uses netmap's published devices by vfio-user and
/// waits only for interrupts loses no frame.
#[test]
fn a_published_ptnet_guest_loses_no_frame_across_processes() {
    let line = Daemon::start("workers = 2");
    let path = attach(&line, "ptnet", json!({"slots": 64, "vfio_user": true, "vnet_hdr": 12}));
    let mut local = line.open("vale0:local").unwrap();
    let mut plugged = Plugged::new(&path);
    let mut driver = Driver::probe(&mut plugged, true);
    driver.open();
    traffic(&line, &mut driver, &mut local);
    assert!(line.notes("vale0:guest").contains("with virtio-net header"));
    driver.close();
    line.is_succeeded();
    driver.open();
    driver.send(0, &numbered(1, 7));
    assert_eq!(receive(&mut local), numbered(1, 7));
}

/// Objective: when the daemon is replaced ten times, an e1000 driver loses no frame, in each mode in which a driver can
/// use the card.
#[test]
fn an_e1000_driver_loses_no_frame_across_processes() {
    for (csb, combine) in [(false, 0), (false, 16), (true, 0)] {
        let line = Daemon::start("workers = 2");
        let path = attach(&line, "e1000", json!({"mac": "02:00:00:00:00:09", "lossless": true}));
        let mut local = line.open("vale0:local").unwrap();
        let mut guest = Card::new(&path, CardDriverOptions { slots: 64, csb, combine });
        traffic(&line, &mut guest, &mut local);
        let shown = line.show("vale0:guest");
        assert!(shown["notes"].to_string().contains("link up"), "{shown}");
        let frames = carried(&shown);
        assert!(frames[0] == frames[1] && frames[0] >= (TIMES as u64) * u64::from(ROUNDS * BURST), "{shown}");
    }
}

/// Objective: when the daemon is replaced ten times, a pipe between a guest and a program loses no frame.
#[test]
fn a_pipe_loses_no_frame_across_processes() {
    let line = Daemon::start("workers = 2");
    let path = line.path("guest.sock");
    let port = format!("ptnet:{}", path.display());
    let options = json!({"slots": 64, "backend": "netmap:p{1"});
    let reply = line.call("port.attach", json!({"switch": "", "port": port, "options": options}));
    assert_eq!(reply["result"]["name"], "netmap:p{1", "{reply}");
    let mut program = line.open("netmap:p}1").unwrap();
    let mut guest = Port::as_guest(&path, 0).unwrap();
    traffic(&line, &mut guest, &mut program);
    let shown = line.show("netmap:p{1");
    assert!(shown["notes"].to_string().contains("(}) is open"), "{shown}");
    // After the replacements, guests and programs can leave and return as usual.
    send(&mut guest, &numbered(1, 7));
    drop(guest);
    until("the guest is gone", || line.notes("netmap:p{1").contains("waits"));
    drop(program);
    until("the end is free", || line.notes("netmap:p{1").contains("not open"));
    line.is_succeeded();
    let mut program = line.open("netmap:p}1").unwrap();
    assert_eq!(receive(&mut program), numbered(1, 7));
    let mut guest = Port::as_guest(&path, 0).unwrap();
    crosses(&mut program, &mut guest, &numbered(2, 8));
}
