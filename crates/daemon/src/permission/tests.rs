//! Refusals of requests by users, by root, and by the daemon's own user.

use netvale_control::attach::FilePlacement;
use netvale_control::types::PortKind;
use netvale_mem::layout::RegionSizes;
use netvale_mem::mapping::PageKind;
use netvale_switch::{Switch, SwitchSettings};

use super::*;
use crate::config::ConfigFile;
use crate::daemon::PortBackend;
use crate::registry::ports::PortRecord;
use crate::registry::regions::FilePlace;

const ROOT: Caller = Caller { client: 1, uid: 0, pid: 1 };
const ALICE: Caller = Caller { client: 2, uid: 70_001, pid: 2 };
const BOB: Caller = Caller { client: 3, uid: 70_002, pid: 3 };

struct Thing {
    interface: Option<&'static str>,
}

impl PortBackend for Thing {
    fn kind(&self) -> PortKind {
        PortKind::Tap
    }

    fn interface(&self) -> Option<&str> {
        self.interface
    }

    fn wrapped_queues(&self) -> Option<u32> {
        self.interface.map(|_| 1)
    }
}

/// A daemon with Alice's port `vale0:a`, and the interface `wire0` as `vale0:w`, on a shared switch.
fn daemon(config: &str) -> Daemon {
    let config = format!("{config}\n[switch]\nshared = ['vale0']");
    let mut d = Daemon::new(ConfigFile::parse(&config).unwrap().into_config()).unwrap();
    d.switches.get_or_make("vale0", ALICE.uid);
    for (name, interface) in [("vale0:a", None), ("vale0:w", Some("wire0"))] {
        d.ports.insert(name, PortRecord::new(Box::new(Thing { interface }) as Box<dyn PortBackend>, ALICE));
    }
    d
}

fn errno(done: Result<(), Refusal>) -> i32 {
    done.map_or_else(|refusal| refusal.errno, |()| 0)
}

fn attached(d: &Daemon, caller: Caller, port: &str) -> i32 {
    let spec = AttachSpec::parse(port).unwrap();
    errno(admit(d, caller, PermissionRequest::Attach(&SwitchPort::new("vale0", spec.port_name()), &spec)))
}

fn opened(d: &Daemon, caller: Caller, port: &str, flags: u32) -> i32 {
    let spec = PortSpec::parse(port).unwrap();
    let request = AttachRequest { flags, ..AttachRequest::default() };
    errno(admit(d, caller, PermissionRequest::Open(&spec, &request)))
}

/// Objective: a caller may attach devices and name arbitrary files only if it could access them without the daemon; the
/// configuration can permit this to other callers.
#[test]
fn only_permitted_callers_attach_devices() {
    let folder = tempfile::tempdir().unwrap();
    let inside = format!("pcap:{}/in.pcap", folder.path().display());
    let d = daemon(&format!("allow_nics = ['wire1']\nallow_taps = ['t1']\nallow_dirs = [{:?}]", folder.path()));
    for port in [
        "pcap:/x",
        "vhost:/x",
        "ptnet:/x",
        "e1000:/x",
        "virtio:/x",
        "virtio-pci:3:0.0",
        "e1000-pci:3:0.0",
        "netmap:wire0",
        "tap:t",
    ] {
        assert_eq!((attached(&d, BOB, port), attached(&d, ROOT, port)), (libc::EACCES, 0), "{port}");
    }
    for port in ["b", "tap:t1", "null:", "netmap:wire1", &inside] {
        assert_eq!(attached(&d, BOB, port), 0, "{port}");
    }
    assert_eq!(attached(&d, BOB, &format!("pcap:in={0}/in,out=/x", folder.path().display())), libc::EACCES);
    assert_eq!((attached(&d, ROOT, "pcap:x"), attached(&d, ROOT, "tap:a")), (libc::EINVAL, libc::EEXIST));
    let backend = PortSpec::parse("netmap:wire0").unwrap();
    let through = |caller, path| errno(admit(&d, caller, PermissionRequest::Passthrough(Path::new(path), &backend)));
    assert_eq!((through(BOB, "/x"), through(ROOT, "/x"), through(ROOT, "x")), (libc::EACCES, 0, libc::EINVAL));
}

/// Objective: only their user and root can open a port, a pipe's end and their monitors.
#[test]
fn ports_and_monitors_are_open_only_to_their_user() {
    let mut d = daemon("");
    let (region, id) =
        d.regions.make(7, RegionSizes::for_port(2, 64, 2048, 1, 0), PageKind::Ordinary, ALICE.uid).unwrap();
    let mut pipe = PipeRecord::new(&region, id, 64, ALICE.uid).unwrap();
    pipe.held_by[0].add(ALICE.client, false);
    d.pipes.insert("netmap:p{1".to_owned(), pipe);
    for port in ["vale0:a", "netmap:p{1", "netmap:p}1"] {
        let by = |caller, more| opened(&d, caller, &format!("{port}{more}"), 0);
        assert_eq!((by(ALICE, ""), by(BOB, ""), by(ROOT, "")), (0, libc::EACCES, libc::EACCES), "{port}");
        let if_there = if port == "vale0:a" { libc::EACCES } else { 0 };
        assert_eq!((by(BOB, "@7"), by(ROOT, "@7")), (libc::EACCES, if_there), "{port}: the memory is named");
        assert_eq!(["@6", "@1", "@share:vale0:a"].map(|other| by(ROOT, other)), [libc::EACCES; 3], "{port}");
    }
    assert_eq!(
        opened(&d, ROOT, "netmap:p{1/z", 0),
        libc::EACCES,
        "a zero-copy monitor lies in the memory that it watches"
    );
    d.persistent.add(
        "v0",
        ALICE.uid,
        Switch::with("", SwitchSettings { table_entries: 8, ..SwitchSettings::default() }),
    );
    d.ports.insert("netmap:v0", PortRecord::new(Box::new(Thing { interface: None }) as Box<dyn PortBackend>, ALICE));
    for pipe in ["vale0:a{1", "netmap:v0{1"] {
        let by = |caller| opened(&d, caller, pipe, 0);
        assert_eq!(
            (by(ALICE), by(BOB), by(ROOT)),
            (0, libc::EACCES, libc::EACCES),
            "{pipe}: named after another user's port"
        );
    }
    for port in ["vale0:a/r", "netmap:p{1/t", "netmap:wire0/r"] {
        let by = |caller| opened(&d, caller, port, 0);
        assert_eq!((by(ALICE), by(BOB), by(ROOT)), (0, libc::EACCES, 0), "{port}");
    }
    assert_eq!((opened(&d, ALICE, "netmap:wire0", 0), opened(&d, ROOT, "netmap:wire0", 0)), (libc::EACCES, 0));
    assert_eq!(opened(&d, BOB, "netmap:p}1/t", 0), 0, "nobody has it open: that is found out later");
}

/// Objective: ports of a switch cannot take the names of interfaces and persistent ports, and the number of switches is
/// limited.
#[test]
fn reserved_names_and_too_many_switches_are_refused() {
    let mut d = daemon("");
    assert_eq!((opened(&d, BOB, "vale0:lo", FLAG_NETMAP), opened(&d, BOB, "vale0:lo", 0)), (libc::EINVAL, 0));
    let make = |d: &Daemon, name| errno(admit(d, BOB, PermissionRequest::MakePersistent(name)));
    assert_eq!((make(&d, "lo"), make(&d, "v0")), (libc::EEXIST, 0));
    d.persistent.add(
        "v0",
        ALICE.uid,
        Switch::with("", SwitchSettings { table_entries: 8, ..SwitchSettings::default() }),
    );
    assert_eq!((make(&d, "v0"), opened(&d, ALICE, "vale0:v0", 0)), (libc::EEXIST, libc::EINVAL));
    for caller in [ALICE, BOB, ROOT] {
        let refused = if caller == BOB { libc::EACCES } else { 0 };
        assert_eq!(opened(&d, caller, "netmap:v0", 0), refused);
        assert_eq!(errno(admit(&d, caller, PermissionRequest::RemovePersistent("v0"))), refused);
        assert_eq!(errno(admit(&d, caller, PermissionRequest::AttachNamed(&SwitchPort::new("vale0", "v0")))), refused);
        assert_eq!(errno(admit(&d, caller, PermissionRequest::Change("vale0:a"))), refused);
    }
    assert_eq!(errno(admit(&d, ROOT, PermissionRequest::AttachNamed(&SwitchPort::new("vale0", "a")))), libc::EBUSY);
    assert_eq!(errno(admit(&d, BOB, PermissionRequest::AttachNamed(&SwitchPort::new("vale0", "lo")))), libc::EACCES);
    (1..MAX_SWITCHES).for_each(|i| drop(d.switches.get_or_make(&format!("vale{i}"), BOB.uid)));
    assert_eq!((opened(&d, ROOT, "vale9999:a", 0), opened(&d, ROOT, "vale1:a", 0)), (libc::ENOSPC, 0));
}

/// Objective: a switch is open only to its creator, root and the daemon's own user; a shared switch is open to all
/// users.
#[test]
fn a_switch_is_open_only_to_permitted_users() {
    let mut d = daemon("");
    for (switch, owner) in [("vale0", ALICE), ("vale1", ALICE), ("vale2", BOB)] {
        drop(d.switches.get_or_make(switch, owner.uid));
    }
    let by = |caller, switch| errno(may_join(&d, switch, caller));
    for (caller, expected) in [(ALICE, [0, 0, libc::EACCES, 0]), (BOB, [0, libc::EACCES, 0, 0]), (ROOT, [0; 4])] {
        assert_eq!(["vale0", "vale1", "vale2", "vale3"].map(|switch| by(caller, switch)), expected);
    }
    d.config.switch.shared = vec![ALL.to_owned()];
    assert_eq!(errno(may_join(&d, "vale1", BOB)), 0);
}

/// Objective: only a port's owner and trusted users detach a port; only trusted users end the daemon.
#[test]
fn only_owners_and_trusted_users_detach_ports() {
    let d = daemon("");
    let by = |caller, request| errno(admit(&d, caller, request));
    for (caller, detach, shutdown) in [(ALICE, 0, libc::EACCES), (BOB, libc::EACCES, libc::EACCES), (ROOT, 0, 0)] {
        assert_eq!(
            (by(caller, PermissionRequest::Detach("vale0:a")), by(caller, PermissionRequest::Shutdown)),
            (detach, shutdown)
        );
    }
    assert!(sees(ALICE, Some(Owner { uid: ALICE.uid, pid: 1 })) && !sees(BOB, Some(Owner { uid: ALICE.uid, pid: 1 })));
}

/// Objective: only a trusted user may keep workers awake for a port with queues to poll, because such a worker occupies
/// a CPU.
#[test]
fn only_owners_allowed_a_cpu_keep_workers_awake() {
    let d = daemon("");
    let by = |caller, name| errno(admit(&d, caller, PermissionRequest::KeepAwake(name)));
    assert_eq!((by(BOB, "vale0:w"), by(ALICE, "vale0:w"), by(ROOT, "vale0:w")), (libc::EACCES, libc::EPERM, 0));
    assert_eq!(by(ALICE, "vale0:a"), 0, "there is nothing to poll: that is found out later");
}

/// Objective: a region is open to its user and root; a region in a file is open only to its user, and no other user's
/// region may overlap it.
#[test]
fn a_region_is_open_to_its_user_and_root() {
    let mut d = daemon("");
    let (region, id) =
        d.regions.make(7, RegionSizes::for_port(2, 64, 2048, 1, 0), PageKind::Ordinary, ALICE.uid).unwrap();
    let by = |d: &Daemon, id, caller| errno(may_use_region(d.regions.get(id).unwrap(), caller));
    assert_eq!((by(&d, id, ALICE), by(&d, id, BOB), by(&d, id, ROOT)), (0, libc::EACCES, 0));
    let place = |offset| FilePlace { device: 1, inode: 1, asked: FilePlacement { offset, len: 8192 } };
    d.regions.add(id + 1, ALICE.uid, &region, Some(place(8192))).unwrap();
    assert_eq!((by(&d, id + 1, ALICE), by(&d, id + 1, ROOT)), (0, libc::EACCES));
    let lies = |offset, caller| errno(may_lie_in_file(&d, &place(offset), caller));
    assert_eq!((lies(4096, ALICE), lies(4096, BOB), lies(16_384, BOB)), (0, libc::EACCES, 0));
    assert_eq!((errno(may_map_file(&d, id + 1, ALICE)), errno(may_map_file(&d, id + 1, ROOT))), (0, libc::EACCES));
}
