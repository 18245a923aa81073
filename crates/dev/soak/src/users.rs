//! Users who share a switch and a folder with others: policies that affect more than their ports, and symbolic links
//! where the daemon makes files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale_control::client::{Client, ClientError};
use netvale_control::error::ErrorCode;
use netvale_control::types::{AttachParams, PortOptions};
use netvale_harness::attacks::as_user;
use serde_json::{Map, Value, json};

use crate::ends::station;
use crate::netvale::Netvale;
use crate::rng::Rng;
use crate::world::{ATTACKED, TARGETS, World};

/// User IDs of two users other than the attackers.
const USERS: [u32; 2] = [69_001, 69_002];

fn connect(daemon: &Netvale) -> Result<Client, ClientError> {
    Client::connect(daemon.dir())
}

fn attach(daemon: &Netvale, name: &str, port: String) -> Result<(), ClientError> {
    let options = PortOptions { name: Some(name.into()), ..PortOptions::default() };
    connect(daemon)?.attach(AttachParams { switch: ATTACKED.into(), port, options }).map(drop)
}

fn detach(daemon: &Netvale, name: &str) -> Result<(), ClientError> {
    connect(daemon)?.detach(ATTACKED, name)
}

/// Returns changes of a port that also affect other ports: a bystander's address, VLANs, multicast membership.
fn beyond(rng: &mut Rng) -> Value {
    let target = station(TARGETS[rng.index(2)]).map(|byte| format!("{byte:02x}")).join(":");
    match rng.below(6) {
        0 => json!({ "addresses": target, "sticky": true }),
        1 => json!({ "addresses": target }),
        2 => json!({ "access": 10 }),
        3 => json!({ "trunk": "1-4094" }),
        4 => json!({ "trunk": "1-4094", "native": 10 }),
        _ => json!({ "mcast_snooping": true, "mcast_querier": true }),
    }
}

/// Returns changes that affect only the port.
fn within(rng: &mut Rng) -> Value {
    match rng.below(7) {
        0 => json!({ "isolated": rng.one_in(2) }),
        1 => json!({ "mcast_flood": rng.one_in(2), "info": "somebody's" }),
        2 => json!({ "storm_bcast": 1 + rng.below(100), "storm_unknown": 1 + rng.below(100) }),
        3 => json!({ "pps_in": 1 + rng.below(1000) }),
        4 => json!({ "filter_in": ["drop 1,6 0 0 1"], "filter_out": ["drop 1,6 0 0 1"] }),
        5 => json!({ "flood": rng.one_in(2), "bcast_flood": rng.one_in(2) }),
        _ => json!({ "rate_out": "1mbit", "max_addresses": 1 + rng.below(4) }),
    }
}

/// Makes two users set policies of their ports on the common switch. Policies that affect more than a port are refused.
pub fn policies(w: &World, rng: &mut Rng, life: Duration) -> Result<(), String> {
    if w.attacker.is_none() {
        return Ok(());
    }
    let start = Instant::now();
    let names = USERS.map(|user| format!("policies{user}"));
    for (user, name) in USERS.into_iter().zip(&names) {
        as_user(user, || attach(w.first(), name, "null:".into())).map_err(|e| format!("{name}: {e}"))?;
    }
    let mut outcome = Ok(());
    while start.elapsed() < life && outcome.is_ok() {
        let at = rng.index(2);
        let is_beyond = rng.one_in(2);
        let set = if is_beyond { beyond(rng) } else { within(rng) };
        let other = rng.one_in(4);
        let of = &names[if other { 1 - at } else { at }];
        let port = format!("{ATTACKED}:{of}");
        outcome = is_judged(w.first(), USERS[at], &port, &set, !is_beyond && !other);
    }
    for (user, name) in USERS.into_iter().zip(&names) {
        as_user(user, || detach(w.first(), name)).map_err(|e| format!("{name}: {e}"))?;
    }
    outcome
}

/// Checks that a change of a port by a user is accepted if `may` is true, and refused otherwise.
fn is_judged(daemon: &Netvale, user: u32, port: &str, set: &Value, may: bool) -> Result<(), String> {
    let set: Map<String, Value> = set.as_object().cloned().unwrap_or_default();
    let text = Value::from(set.clone()).to_string();
    match as_user(user, || connect(daemon)?.set(port, set)) {
        Ok(_) if may => Ok(()),
        Ok(_) => Err(format!("user {user} could set {text} of {port}: expected a refusal")),
        Err(e) if !may && is_denied(&e) => Ok(()),
        Err(e) => Err(format!("user {user} could not set {text} of {port}: {e}")),
    }
}

fn is_denied(e: &ClientError) -> bool {
    matches!(e, ClientError::Refused(e) if e.code == ErrorCode::NotPermitted as i32)
}

/// A target that a user must not reach: root's folder with a file.
struct RootsFolder {
    folder: PathBuf,
}

const KEPT: &str = "kept";
const CONTENT: &str = "only root's";

impl RootsFolder {
    fn new(folder: PathBuf) -> std::io::Result<RootsFolder> {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(KEPT), CONTENT)?;
        fs::set_permissions(folder.join(KEPT), Permissions::from_mode(0o600))?;
        // Any user can list the folder: only permissions keep a user from changing it.
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(RootsFolder { folder })
    }

    /// Checks that the folder is unchanged.
    fn check(&self) -> Result<(), String> {
        let entries = fs::read_dir(&self.folder).map_err(|e| format!("root's folder: {e}"))?;
        let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        let content = fs::read_to_string(self.folder.join(KEPT)).map_err(|e| format!("root's file: {e}"))?;
        if names != [KEPT] || content != CONTENT {
            return Err(format!("a user changed root's folder through a link: {names:?}, {content:?}"));
        }
        Ok(())
    }
}

/// Repeatedly replaces a name in the user's folder: by a link to root's folder or file, or by a folder or file of the
/// user's own.
fn exchange(at: &Path, treasure: &Path, is_over: &AtomicBool) {
    let targets = [treasure.to_owned(), treasure.join(KEPT), treasure.join("new")];
    let mut round = 0;
    while !is_over.load(Ordering::Relaxed) {
        // The entry may briefly belong to the daemon, or may already be gone.
        let _ = fs::remove_file(at).or_else(|_| fs::remove_dir_all(at));
        let _ = match round % 5 {
            3 => fs::create_dir(at),
            4 => fs::write(at, ""),
            which => symlink(&targets[which], at),
        };
        round += 1;
        std::thread::yield_now();
    }
}

/// Ends the thread of [`exchange`] when dropped, even if this thread panics.
struct ExchangeEnds<'a>(&'a AtomicBool);

impl Drop for ExchangeEnds<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Plants symbolic links in a user's own folder, where the daemon creates sockets and captures for that user.
pub fn links(w: &World, rng: &mut Rng, life: Duration) -> Result<(), String> {
    if w.attacker.is_none() {
        return Ok(());
    }
    let failed = |e: std::io::Error| format!("a user's folder: {e}");
    let mine = w.file("mine");
    fs::create_dir_all(&mine).and_then(|()| chown(&mine, Some(USERS[0]), Some(USERS[0]))).map_err(failed)?;
    let treasure = RootsFolder::new(w.file("treasure")).map_err(failed)?;
    let planted = mine.join("planted");
    let start = Instant::now();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = ExchangeEnds(&is_over);
        scope.spawn(|| as_user(USERS[0], || exchange(&planted, &treasure.folder, &is_over)));
        while start.elapsed() < life {
            let kind = ["vhost:", "ptnet:", "e1000:", "pcap:out="][rng.index(4)];
            let path = if rng.one_in(2) { planted.clone() } else { planted.join(["s", KEPT][rng.index(2)]) };
            let port = format!("{kind}{}", path.display());
            // The request may be refused or not: only its effect matters.
            if as_user(USERS[0], || attach(w.first(), "linked", port)).is_ok() {
                let _ = as_user(USERS[0], || detach(w.first(), "linked"));
            }
        }
    });
    // The remaining files belong to the user, and are removed before the daemon is checked.
    let _ = fs::remove_dir_all(&mine);
    treasure.check()
}
