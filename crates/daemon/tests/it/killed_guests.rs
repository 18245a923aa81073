//! Guests by vfio-user whose daemon is killed, and started again by a service manager: they lose nothing, and wait for
//! nothing that does not come. What was under way comes twice.

use crate::common;
use crate::common::ends;
use crate::common::published;

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::ports::{attach_guest as attach, show};
use common::{Daemon, receive, until};
use ends::{Card, End, numbered};
use netvale_e1000::driver::DriverOptions;
use netvale_e1000::driver::remote::Guest;
use published::{Driver, Plugged};
use rustix::process::Signal;
use serde_json::json;

/// Its configuration: what it says is shown if the test fails.
const MORE: &str = "workers = 2\n[quota]\nlog_lines = 100";

/// How often the daemon is killed, how many rounds of frames pass in between, and how many frames a round has each way.
const TIMES: usize = 10;
const ROUNDS: u32 = 5;
const BURST: u32 = 16;

/// The number of a frame of that sender's.
fn number(name: u8, frame: &[u8]) -> u32 {
    let number = u32::from_le_bytes(frame[14..18].try_into().unwrap());
    assert_eq!(frame[..60], numbered(name, number), "a frame is not as it was sent");
    number
}

/// Frames that came again.
#[derive(Default)]
struct Again(u32);

impl Again {
    fn burst(&mut self, name: u8, from: &mut dyn End, to: &mut dyn End, number_of_first: u32) {
        let all = number_of_first..number_of_first + BURST;
        all.clone().for_each(|n| from.send(&numbered(name, n)));
        let mut next = all.start;
        while next < all.end {
            until("it arrives", || !from.push() || to.is_coming());
            let n = number(name, &to.receive());
            assert!(n <= next, "frame {next} is lost: {n} came");
            self.0 += u32::from(n < next);
            next = next.max(n + 1);
        }
    }
}

/// Frames with numbers go both ways, in bursts, while the daemon is killed again and again.
fn traffic(managed: &Daemon, guest: &mut dyn End, other: &mut dyn End) {
    let (rounds, done, mut again) = (AtomicU32::new(0), AtomicBool::new(false), Again::default());
    std::thread::scope(|scope| {
        let killing = scope.spawn(|| {
            for _ in 0..TIMES {
                let from = rounds.load(Ordering::Relaxed);
                until("frames pass", || rounds.load(Ordering::Relaxed) >= from + ROUNDS);
                managed.is_killed();
            }
            let from = rounds.load(Ordering::Relaxed);
            until("frames pass", || rounds.load(Ordering::Relaxed) >= from + ROUNDS);
            done.store(true, Ordering::Relaxed);
        });
        let mut number = 0;
        while !done.load(Ordering::Relaxed) && !killing.is_finished() {
            again.burst(1, guest, other, number);
            again.burst(2, other, guest, number);
            number += BURST;
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        killing.join().unwrap();
    });
    assert!(again.0 <= TIMES as u32 * BURST, "{} frames came again", again.0);
}

/// Objective: a guest with the devices that netmap published, which waits for nothing but interrupts, does not notice
/// that its daemon is killed: neither while frames pass, nor while it stops and starts its rings, nor by those that
/// end.
#[test]
fn published_ptnet() {
    let managed = Daemon::managed(MORE);
    let path = attach(&managed, "ptnet", json!({"slots": 64, "vfio_user": true, "vnet_hdr": 12}));
    let mut local = managed.open("vale0:local").unwrap();
    let mut plugged = Plugged::new(&path);
    let mut driver = Driver::probe(&mut plugged, true);
    managed.is_killed();
    driver.open();
    traffic(&managed, &mut driver, &mut local);
    let shown = show(&managed, "vale0:guest");
    assert!(shown["notes"].to_string().contains("with virtio-net header"), "{shown}");
    driver.close();
    managed.is_killed();
    driver.open();
    driver.send(0, &numbered(1, 7));
    assert_eq!(receive(&mut local), numbered(1, 7));
    managed.is_restarted(Signal::TERM, || ());
    driver.send(0, &numbered(1, 8));
    assert_eq!(receive(&mut local), numbered(1, 8));
    drop(plugged);
    until("the port is free", || show(&managed, "vale0:guest")["notes"].to_string().contains("waits"));
    managed.is_killed();
    let mut plugged = Plugged::new(&path);
    let mut driver = Driver::probe(&mut plugged, true);
    driver.open();
    local.send(&numbered(2, 9));
    assert_eq!(driver.receive(), numbered(2, 9));
}

/// Objective: a driver of an e1000, in each of the ways to drive it.
#[test]
fn e1000() {
    for (csb, combine) in [(false, 0), (false, 16), (true, 0)] {
        let managed = Daemon::managed(MORE);
        // Its frames wait while a busy machine interrupts one of the guest's register accesses.
        let path = attach(&managed, "e1000", json!({"mac": "02:00:00:00:00:09", "lossless": true}));
        let mut local = managed.open("vale0:local").unwrap();
        let mut guest = Card(Guest::new(&path, DriverOptions { slots: 64, csb, combine }).unwrap(), VecDeque::new());
        traffic(&managed, &mut guest, &mut local);
        let shown = show(&managed, "vale0:guest");
        assert!(shown["notes"].to_string().contains("link up"), "{shown}");
        managed.is_restarted(Signal::TERM, || ());
        let mut again = Again::default();
        again.burst(1, &mut guest, &mut local, 0);
        again.burst(2, &mut local, &mut guest, 0);
        assert_eq!(again.0, 0, "a daemon that is told to end says where it stops");
        drop(guest);
        until("the port is free", || show(&managed, "vale0:guest")["notes"].to_string().contains("waits"));
        managed.is_killed();
        let mut guest = Card(Guest::new(&path, DriverOptions { slots: 64, csb, combine }).unwrap(), VecDeque::new());
        again.burst(1, &mut guest, &mut local, 0);
    }
}

/// The pages of the running daemon.
fn pages(managed: &Daemon) -> Vec<std::fs::File> {
    let folder = format!("/proc/{}/fd", managed.id());
    let fds = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_page =
        |path: &PathBuf| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("netvale-kept"));
    fds.filter(is_page).map(|path| std::fs::OpenOptions::new().write(true).open(path).unwrap()).collect()
}

/// Kills the daemon, and writes a word into all its pages. Returns what the next one says of the port.
fn with_forged_pages(managed: &Daemon, at: &[u64], word: u32) -> String {
    let all = pages(managed);
    assert!(!all.is_empty());
    managed.is_restarted(Signal::KILL, || {
        let forge = |page: &std::fs::File, at: u64| page.write_all_at(&word.to_le_bytes(), at).unwrap();
        all.iter().for_each(|page| at.iter().for_each(|at| forge(page, *at)));
    });
    show(managed, "vale0:guest")["notes"].to_string()
}

/// Objective: with a page that cannot have been a device's, or is newer than what was kept, a guest is disconnected,
/// and the port says why; the next guest is served.
#[test]
fn forged_pages() {
    let managed = Daemon::managed(MORE);
    let path = attach(&managed, "e1000", json!({}));
    let mut local = managed.open("vale0:local").unwrap();
    let new_guest = || Card(Guest::new(&path, DriverOptions::default()).unwrap(), VecDeque::new());
    // The form of the page, the number of changes, the lengths of the registers in both halves.
    let forgeries: [(&[u64], u32, &str); 3] =
        [(&[0], 0, "page"), (&[12], 1, "not kept in time"), (&[320, 320 + 4 * 6144], u32::MAX, "the card's registers")];
    for (at, word, why) in forgeries {
        let mut guest = new_guest();
        Again::default().burst(1, &mut guest, &mut local, 0);
        let notes = with_forged_pages(&managed, at, word);
        assert!(notes.contains("waits") && notes.contains(why), "{at:?}: {notes}");
    }
    let mut guest = new_guest();
    // What it sends comes behind the registers that it has written.
    Again::default().burst(1, &mut guest, &mut local, 0);
    Again::default().burst(2, &mut local, &mut guest, 0);
}

/// Objective: the same with the published devices of a ptnet port.
#[test]
fn forged_pages_of_ptnet() {
    let managed = Daemon::managed(MORE);
    let path = attach(&managed, "ptnet", json!({"slots": 64, "vfio_user": true}));
    let mut local = managed.open("vale0:local").unwrap();
    for (at, word, why) in [(0, 0, "page"), (12, 1, "not kept in time")] {
        let mut plugged = Plugged::new(&path);
        let mut driver = Driver::probe(&mut plugged, false);
        driver.open();
        driver.send(0, &numbered(1, 7));
        assert_eq!(receive(&mut local), numbered(1, 7));
        let notes = with_forged_pages(&managed, &[at], word);
        assert!(notes.contains("waits") && notes.contains(why), "{at}: {notes}");
    }
    let mut plugged = Plugged::new(&path);
    let mut driver = Driver::probe(&mut plugged, false);
    driver.open();
    local.send(&numbered(2, 8));
    assert_eq!(driver.receive(), numbered(2, 8));
}

/// Objective: a driver of another daemon's device, in all layouts: the device's end notices nothing.
#[test]
fn virtio() {
    let layouts = [
        json!({"no_in_order": true}),
        json!({"packed": true, "no_in_order": true, "no_mergeable": true}),
        json!({}),
        json!({"packed": true}),
        json!({"vector": true, "rings": 2}),
    ];
    for mut options in layouts {
        let (managed, far) = (Daemon::managed(MORE), Daemon::start(""));
        // Its frames wait until the driver has posted its first buffers.
        let path = attach(&far, "vhost", json!({"rings": 2, "lossless": true}));
        options["name"] = json!("guest");
        common::ports::attach(&managed, &format!("virtio:{}", path.display()), options.clone());
        let notes = |d: &Daemon| show(d, "vale0:guest")["notes"].to_string();
        until("the device runs", || notes(&managed).contains("device runs"));
        let mut ends = [&managed, &far].map(|d| d.open("vale0:local").unwrap());
        let [here, there] = &mut ends;
        traffic(&managed, there, here);
        let is_same = || {
            let state = (notes(&managed), notes(&far));
            assert!(state.0.contains("device runs"), "{options}: {state:?}");
            assert!(state.1.contains("front end connected") && !state.1.contains("before it"), "{options}: {state:?}");
        };
        is_same();
        managed.is_restarted(Signal::TERM, || ());
        let mut again = Again::default();
        again.burst(1, here, there, 0);
        again.burst(2, there, here, 0);
        assert_eq!(again.0, 0, "a daemon that is told to end says where it stops");
        is_same();
    }
}
