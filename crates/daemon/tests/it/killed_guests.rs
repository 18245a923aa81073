//! Guests whose daemon is killed or ended, and restarted by a service manager. If the daemon is killed, guests that are
//! connected by vfio-user lose their device. If the daemon is the driver of another daemon's device, no frame is lost,
//! but frames in flight may arrive twice.

use crate::common;
use crate::common::ends;
use crate::common::published;

use std::path::Path;

use common::ports::attach_guest as attach;
use common::{Daemon, until};
use ends::{Again, BURST, Card, End};
use netvale_e1000::driver::{CardDriverOptions, CardRegisters};
use netvale_e1000::regs::STATUS;
use published::{Driver, Plugged};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The daemon's configuration. The limit of log lines is high, so that the log shows the cause of a failed test.
const MORE: &str = "workers = 2\n[quota]\nlog_lines = 100";

/// Number of kills of the daemon.
const TIMES: usize = 10;
/// Number of rounds of frames between two kills.
const ROUNDS: u32 = 5;

/// Sends numbered frames in both directions, in bursts, while the daemon is killed repeatedly.
fn traffic(managed: &Daemon, guest: &mut dyn End, other: &mut dyn End) {
    let mut again = Again::default();
    ends::rounds_while(
        |number| again.both_ways(guest, other, number),
        |pass| {
            for _ in 0..TIMES {
                pass(ROUNDS);
                managed.is_killed();
            }
            pass(ROUNDS);
        },
    );
    assert!(again.0 <= TIMES as u32 * BURST, "{} frames came again", again.0);
}

/// Plays a guest at the socket with this path. The second argument is a program on the guest's switch; the last
/// argument kills the daemon.
type Play<'a> = dyn FnMut(&Path, &mut dyn End, &mut dyn FnMut()) + 'a;

/// Attaches a device of `kind` for a guest, with a policy, and opens two ports for programs on the same switch. Runs
/// `play` as the guest several times. During each run, the daemon is killed: after that, the port reports why its guest
/// has left, and all other ports continue.
fn lost(kind: &str, mut options: Value, play: &mut Play<'_>) {
    let managed = Daemon::managed(MORE);
    options["storm_mcast"] = json!(1000);
    let path = attach(&managed, kind, options);
    let mut ends = ["vale0:local", "vale1:a", "vale1:b"].map(|name| managed.open(name).unwrap());
    let [local, a, b] = &mut ends;
    let told = || (managed.show("vale0:guest")["policies"].clone(), managed.notes("vale0:guest"));
    let (policies, _) = told();
    assert!(!policies.is_null());
    for i in 1..=TIMES as u32 {
        play(&path, local, &mut || {
            managed.is_killed();
            let (still, notes) = told();
            assert_eq!(still, policies);
            assert!(notes.contains(&format!("waits for a virtual machine; connections: {i}")), "{notes}");
            assert!(notes.contains("the last virtual machine was disconnected: the daemon was killed"), "{notes}");
            Again::default().burst(1, a, b, i * BURST);
        });
    }
    managed.is_restarted(Signal::TERM, || ());
    assert!(told().1.contains("the daemon was killed"), "until another one comes");
}

/// Objective: a guest with netmap's published devices loses its devices when its daemon is killed, whether or not its
/// rings run; a guest that reconnects gets new devices.
#[test]
fn a_published_ptnet_guest_gets_new_devices() {
    let mut opens = false;
    lost("ptnet", json!({"slots": 64, "vfio_user": true, "vnet_hdr": 12}), &mut |path, local, kill| {
        let mut plugged = Plugged::new(path);
        let mut driver = Driver::probe(&mut plugged, true);
        opens = !opens;
        if opens {
            driver.open();
            Again::default().both_ways(&mut driver, local, 0);
        }
        kill();
        assert!(plugged.client.region_read(0, 0, &mut [0; 4]).is_err(), "it still has a device");
    });
}

/// Objective: an e1000 driver, in each mode, loses its card when the daemon is killed; a driver that reconnects gets a
/// new card.
#[test]
fn an_e1000_driver_gets_a_new_card() {
    let mut ways = [(false, 0), (false, 16), (true, 0)].into_iter().cycle();
    // The port is lossless, so that frames wait while a busy machine delays a register access of the guest.
    let options = json!({"mac": "02:00:00:00:00:09", "lossless": true});
    lost("e1000", options, &mut |path, local, kill| {
        let (csb, combine) = ways.next().unwrap();
        let mut guest = Card::new(path, CardDriverOptions { slots: 64, csb, combine });
        Again::default().both_ways(&mut guest, local, 0);
        kill();
        assert_eq!(guest.0.remote.read(STATUS), u32::MAX, "it still has a card");
    });
}

/// Objective: a daemon that is ended by a signal saves the ring positions of guests that are connected by vfio-user: no
/// frame is lost, and no frame arrives twice.
#[test]
fn guests_lose_nothing_by_a_requested_end() {
    let managed = Daemon::managed(MORE);
    let path = attach(&managed, "e1000", json!({"lossless": true}));
    let mut local = managed.open("vale0:local").unwrap();
    let mut guest = Card::new(&path, CardDriverOptions::default());
    let mut again = Again::default();
    for i in 0..TIMES as u32 {
        again.both_ways(&mut guest, &mut local, i * BURST);
        managed.is_restarted(Signal::TERM, || ());
    }
    drop(guest);
    let managed = Daemon::managed(MORE);
    let path = attach(&managed, "ptnet", json!({"slots": 64, "vfio_user": true, "vnet_hdr": 12}));
    let mut local = managed.open("vale0:local").unwrap();
    let mut plugged = Plugged::new(&path);
    let mut driver = Driver::probe(&mut plugged, true);
    driver.open();
    for i in 0..TIMES as u32 {
        again.burst(1, &mut driver, &mut local, i * BURST);
        managed.is_restarted(Signal::TERM, || ());
    }
    assert_eq!(again.0, 0);
    let shown = managed.show("vale0:guest");
    assert!(shown["notes"].to_string().contains("with virtio-net header"), "{shown}");
}

/// Objective: when a daemon that is the driver of another daemon's device is killed, the device is not affected, in all
/// ring layouts.
#[test]
fn a_device_notices_nothing_when_its_driver_is_killed() {
    let layouts = [
        json!({"no_in_order": true}),
        json!({"packed": true, "no_in_order": true, "no_mergeable": true}),
        json!({}),
        json!({"packed": true}),
        json!({"vector": true, "rings": 2}),
    ];
    for mut options in layouts {
        let managed = Daemon::managed(MORE);
        let far = Daemon::start("");
        // Frames wait until the driver has posted its first buffers.
        let path = attach(&far, "vhost", json!({"rings": 2, "lossless": true}));
        options["name"] = json!("guest");
        common::ports::attach(&managed, &format!("virtio:{}", path.display()), options.clone());
        until("the device runs", || managed.notes("vale0:guest").contains("device runs"));
        let mut ends = [&managed, &far].map(|d| d.open("vale0:local").unwrap());
        let [here, there] = &mut ends;
        traffic(&managed, there, here);
        let is_same = || {
            let state = (managed.notes("vale0:guest"), far.notes("vale0:guest"));
            assert!(state.0.contains("device runs"), "{options}: {state:?}");
            assert!(
                state.1.contains("front end connected") && !state.1.contains("earlier front ends"),
                "{options}: {state:?}"
            );
        };
        is_same();
        managed.is_restarted(Signal::TERM, || ());
        let mut again = Again::default();
        again.both_ways(here, there, 0);
        assert_eq!(again.0, 0, "a daemon that is told to end says where it stops");
        is_same();
    }
}
