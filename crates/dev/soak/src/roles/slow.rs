//! Attackers who make accesses to their own resources slow: a port's memory, its doorbell, its rules, and the listeners
//! on a TAP.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use netvale::{Options, Port, TxRing};
use netvale_control::client::{BringConnection, Client};
use netvale_control::types::{AttachParams, PortOptions};
use netvale_harness::attacks::bells::watch;
use netvale_harness::attacks::filters::{LONGEST, Listeners, rule};
use netvale_harness::attacks::holes::{HollowRegion, Idler};
use netvale_tap::{Tap, TapOptions};
use serde_json::json;

use super::{Attacker, TAPPED, pause, text};
use crate::world::ATTACKED;

/// Number of buffers whose pages a hole removes: about 32 MiB. A killed process ends only when its hole is complete.
const BUFFERS: u32 = 16_000;
/// Number of watches of a doorbell.
const WATCHES: usize = 100_000;
/// Number of sockets that listen on a TAP.
const SOCKETS: usize = 12;
/// Ethernet address of an unknown station.
const NOBODY: [u8; 6] = [2, 0x66, 0, 0, 0, 1];
/// Ethernet address of the station behind the TAP.
const BEHIND: [u8; 6] = [2, 0x66, 0, 0, 1, 1];

fn frame(to: [u8; 6], from: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame
}

/// Opens a port as soon as permitted: a user who made a worker wait gets no port for a while. `None` if the attack ends
/// first.
fn patiently(a: &Attacker, extra_bufs: u32) -> Option<Port> {
    let options = Options { run_dir: Some(a.dir.clone()), slots: 64, extra_bufs, ..Options::default() };
    while a.goes_on() {
        if let Ok(port) = Port::open_with(&a.own_port(), &options) {
            return Some(port);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Makes holes in the memory of a port that receives broadcasts, by a thread that gets hardly any CPU time.
pub fn makes_holes(a: &mut Attacker) -> Result<(), String> {
    let _idler = Idler::start();
    while let Some(_port) = patiently(a, BUFFERS) {
        let region = HollowRegion::longest().map_err(text)?;
        region.fill();
        let hole = region.begin();
        while a.goes_on() && !hole.is_made() {
            if hole.has_begun() {
                a.is_up();
            }
            pause();
        }
    }
    Ok(())
}

/// Watches the doorbell of its port through very many epoll entries.
pub fn is_watched(a: &mut Attacker) -> Result<(), String> {
    while let Some(mut port) = patiently(a, 0) {
        let _watchers = watch(port.rx()[0].wake_fd(), WATCHES).map_err(text)?;
        // The rounds last until the daemon removes the port, and for a while afterwards.
        for _ in 0..2000 {
            let ring = &mut port.rx()[0];
            let _ = ring.sync();
            ring.advance(ring.space());
            let _ = ring.sync();
            let _ = ring.arm();
            a.is_up();
            if !a.goes_on() {
                break;
            }
            pause();
        }
    }
    Ok(())
}

fn flood(tx: &mut TxRing, frame: &[u8]) {
    while tx.send(frame) {}
    tx.sync();
}

/// Sends frames to an unknown address, with the longest rule that a user may set.
pub fn has_rules(a: &mut Attacker) -> Result<(), String> {
    let mut port = a.open(&a.own_port()).map_err(text)?;
    let rules = json!({ "filter_in": [rule("pass", LONGEST)] });
    let mut client = Client::connect(&a.dir).map_err(text)?;
    client.set(&a.own_port(), rules.as_object().cloned().unwrap_or_default()).map_err(text)?;
    while a.goes_on() {
        flood(&mut port.tx()[0], &frame(NOBODY, [2, 0x77, 0, 1, 0, 1]));
        a.is_up();
        pause();
    }
    Ok(())
}

/// Environment variable, set in the process inside its own network namespace.
const INSIDE: &str = "NETVALE_SOAK_INSIDE";

/// Sends frames to a TAP in the user's own network namespace, where very many sockets listen on it.
pub fn is_heard(a: &mut Attacker) -> Result<(), String> {
    if std::env::var_os(INSIDE).is_none() {
        let own = std::env::current_exe().map_err(text)?;
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--"]).arg(own).args(std::env::args_os().skip(1));
        return Err(text(command.env(INSIDE, "1").exec()));
    }
    let tap = Tap::open(&TapOptions { name: TAPPED.into(), up: true, ..TapOptions::default() }).map_err(text)?;
    let listeners = Listeners::at(TAPPED, SOCKETS).map_err(text)?;
    let options = PortOptions { name: Some(a.tap()), ..PortOptions::default() };
    let params = AttachParams { switch: ATTACKED.into(), port: format!("tap:{TAPPED}"), options };
    let bringing = BringConnection::connect(&a.dir).map_err(text)?;
    bringing.attach(params, &tap.into_queues()).map_err(text)?;
    listeners.say(&frame(NOBODY, BEHIND)).map_err(text)?;
    let mut port = a.open(&a.own_port()).map_err(text)?;
    while a.goes_on() {
        flood(&mut port.tx()[0], &frame(BEHIND, [2, 0x77, 0, 1, 0, 2]));
        a.is_up();
        pause();
    }
    Ok(())
}
