//! Regions in files that clients pass: accepted files, and refusals.

use crate::common;

use std::fs::{File, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use common::{Daemon, crosses, frame};
use netvale::{Error, raw};
use netvale_control::attach::{AttachRequest, FLAG_SHARED, FilePlacement, IN_FILE, PoolSizes};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

const LEN: u64 = 4 << 20;

fn memfd(flags: MemfdFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("brought", flags | MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, LEN).unwrap();
    fd
}

fn asked(
    d: &Daemon,
    name: &str,
    file: &impl AsFd,
    offset: u64,
    len: u64,
) -> Result<(OwnedFd, raw::AttachedRings), Error> {
    let conn = raw::connect_to(Some(d.dir())).unwrap();
    let pools = PoolSizes { ifs: (8, 1024), rings: (8, 16_384), bufs: (514, 2048) };
    let request = AttachRequest {
        name: name.into(),
        pools,
        tx_slots: 64,
        rx_slots: 64,
        flags: FLAG_SHARED,
        ..Default::default()
    };
    let place = FilePlacement { offset, len };
    raw::attach_in(conn.as_fd(), &request, file.as_fd(), place).map(|attached| (conn, attached))
}

fn refused(d: &Daemon, file: &impl AsFd, offset: u64, len: u64, why: &str) {
    match asked(d, "vale0:x", file, offset, len) {
        Err(Error::File { text, .. }) => assert!(text.contains(why), "{text} instead of {why}"),
        Err(other) => panic!("{other} instead of {why}"),
        Ok(_) => panic!("taken, though {why}"),
    }
}

/// Objective: only a memory file is accepted that is open for reading and writing, and long enough for the requested
/// whole pages; any other file is refused with the reason, and the daemon continues.
#[test]
fn other_files_are_refused_by_name() {
    let d = Daemon::start("");
    let not_there = "expected a file in memory";
    refused(&d, &File::open(d.dir()).unwrap(), 0, LEN, "memory");
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    refused(&d, &reader, 0, LEN, not_there);
    refused(&d, &writer, 0, LEN, not_there);
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    refused(&d, &socket, 0, LEN, not_there);
    refused(&d, &File::open("/proc/self/maps").unwrap(), 0, LEN, not_there);
    refused(&d, &File::open("/dev/zero").unwrap(), 0, LEN, not_there);
    let memory = memfd(MemfdFlags::ALLOW_SEALING);
    refused(&d, &memory, 100, LEN / 2, "whole pages");
    refused(&d, &memory, 0, LEN - 100, "whole pages");
    refused(&d, &memory, 0, 0, "whole pages");
    refused(&d, &memory, 4096, LEN, "shorter than");
    refused(&d, &memory, u64::MAX - 4095, LEN, "shorter than");
    let read_only = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
    refused(&d, &File::open(read_only).unwrap(), 0, LEN, "open for reading and writing");
    let folder = rustix::fs::open(c"/dev/shm", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    refused(&d, &folder, 0, LEN, "file cannot hold a region");
    rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE).unwrap();
    refused(&d, &memory, 0, LEN, "bytes of shared memory");
    // Impossible sizes are not the file's fault.
    let small = memfd(MemfdFlags::empty());
    assert!(matches!(asked(&d, "vale0:x", &small, 0, 4096), Err(Error::Refused { errno: libc::EINVAL, .. })));
    assert!(d.ports().is_empty());
    asked(&d, "vale0:x", &small, 0, LEN).expect("a memfd without seals will do");
}

/// Objective: requests for the same place in a file get the same region, and requests for another place get another
/// region; a region ends with its last port.
#[test]
fn same_place_same_region() {
    let d = Daemon::start("");
    let file = memfd(MemfdFlags::empty());
    let (one, a) = asked(&d, "vale0:a", &file, 0, LEN).unwrap();
    let (two, b) = asked(&d, "vale0:b", &file.try_clone().unwrap(), 0, LEN).unwrap();
    assert!(a.reply.port_flags & IN_FILE != 0 && a.reply.csb_atok == LEN);
    assert_eq!((a.reply.mem_id, a.map.start()), (b.reply.mem_id, b.map.start()));
    assert_ne!(a.reply.nifp, b.reply.nifp);
    let (_other, c) = asked(&d, "vale0:c", &memfd(MemfdFlags::empty()), 0, LEN).unwrap();
    assert_ne!(a.reply.mem_id, c.reply.mem_id);
    // A connection that another process inherits finds the same region.
    let again = raw::resume(one.as_fd()).unwrap();
    assert_eq!((again.reply.mem_id, again.map.start()), (a.reply.mem_id, a.map.start()));
    drop((one, a, again));
    let (three, c) = asked(&d, "vale0:d", &file, 0, LEN).unwrap();
    assert_eq!(c.reply.mem_id, b.reply.mem_id, "it lives as long as one port");
    let last = b.reply.mem_id;
    drop((two, b, three, c));
    common::until("the ports are gone", || d.ports() == ["vale0:c"]);
    let (_conn, fresh) = asked(&d, "vale0:e", &file, 0, LEN).unwrap();
    assert_ne!(fresh.reply.mem_id, last);
}

/// Objective: if a file is truncated while its region has ports, no other port is affected; after the file is extended
/// again, it can contain a new region.
#[test]
fn a_truncated_file_affects_no_other_port() {
    let d = Daemon::start("");
    let file = memfd(MemfdFlags::empty());
    let (conn, lost) = asked(&d, "vale0:lost", &file, 0, LEN).unwrap();
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    rustix::fs::ftruncate(&file, 0).unwrap();
    for tag in 0..100 {
        crosses(&mut a, &mut b, &frame(255, 1, tag));
    }
    common::until("its program is evicted", || !d.ports().contains(&"vale0:lost".to_owned()));
    let evicted = d.call("port.evicted", serde_json::json!({}))["result"][0].to_string();
    assert!(evicted.contains("vale0:lost") && evicted.contains(netvale_mem::fault::LOST), "{evicted}");
    rustix::fs::ftruncate(&file, LEN).unwrap();
    let (_conn, fresh) = asked(&d, "vale0:c", &file, 0, LEN).unwrap();
    assert_ne!(fresh.reply.mem_id, lost.reply.mem_id);
    drop((conn, lost));
    crosses(&mut a, &mut b, &frame(255, 1, 200));
}

mod as_root {
    use super::*;

    /// Objective: no user, not even root, gets a region at the place of another user's region, and root gets no region
    /// that a user could truncate.
    #[test]
    fn no_user_gets_a_region_in_place_of_anothers() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("needs root to be somebody else");
            return;
        }
        let d = Daemon::start("");
        std::fs::set_permissions(d.dir(), Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(d.path("attach.sock"), Permissions::from_mode(0o666)).unwrap();
        let file = memfd(MemfdFlags::empty());
        let (_conn, theirs) = std::thread::scope(|scope| {
            let somebody = scope.spawn(|| {
                let uid = rustix::fs::Uid::from_raw(4711);
                // Only this thread changes its user.
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
                asked(&d, "vale0:theirs", &file, 0, LEN / 2).unwrap()
            });
            somebody.join().unwrap()
        });
        assert!(theirs.reply.port_flags & IN_FILE != 0);
        refused(&d, &file, 0, LEN / 2, "another user's region");
        refused(&d, &file, 4096, LEN - 4096, "another user's region");
        asked(&d, "vale0:beside", &file, LEN / 2, LEN / 2).expect("the rest of the file is free");
        for name in [format!("vale0:mine@{}", theirs.reply.mem_id), "vale0:theirs".to_owned()] {
            let conn = raw::connect_to(Some(d.dir())).unwrap();
            let request = AttachRequest { name: name.clone(), flags: FLAG_SHARED, ..Default::default() };
            let refused = raw::attach(conn.as_fd(), &request).err();
            assert!(matches!(refused, Some(Error::Refused { errno: libc::EACCES, .. })), "{name}: {refused:?}");
        }
    }

    /// Objective: a file on a full tmpfs is refused, and the daemon continues.
    #[test]
    fn a_file_on_a_full_tmpfs_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("needs root to mount a tmpfs");
            return;
        }
        if !common::inside(&["--mount"]) {
            return;
        }
        let d = Daemon::start("");
        let folder = d.path("small");
        std::fs::create_dir(&folder).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8k", "none"]).arg(&folder);
        assert!(mount.status().unwrap().success());
        let file = File::options().read(true).write(true).create_new(true).open(folder.join("file")).unwrap();
        file.set_len(LEN).unwrap();
        refused(&d, &file, 0, LEN, "full");
        let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
        crosses(&mut a, &mut b, &frame(255, 1, 1));
        drop(file);
        // The tmpfs is unmounted here, because the end of the test removes only the daemon's own folder.
        assert!(std::process::Command::new("umount").arg("-l").arg(&folder).status().unwrap().success());
    }
}
