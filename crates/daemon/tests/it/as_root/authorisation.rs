//! Access rights: the table of docs/reference/security.md, tested with real users on the daemon's real sockets.

use crate::common;

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use common::users::{as_user, folder_of};
use common::{Daemon, request};
use netvale::{Error, Options, Port};
use netvale_abi::nmreq::*;
use netvale_control::ErrorCode;
use netvale_control::attach::{AttachReply, REPLY_LEN};
use netvale_control::client::{BringConnection, Client, ClientError};
use netvale_control::succession::{Succession, VERSION};
use netvale_control::types::{AttachParams, Event, EventName, SubscribeParams};
use rustix::net::{RecvFlags, SendFlags};
use serde_json::{Value, json};

const TABLE: &str = include_str!("../../../../../docs/reference/security.md");
const DAEMON: u32 = 70_000;
const OWNER: u32 = 70_001;
const OTHER: u32 = 70_002;
/// User IDs of the table's columns.
const CALLERS: [u32; 4] = [0, DAEMON, OWNER, OTHER];

/// A daemon that runs as a separate user. The owner has the switch `vale0` with the persistent port `vale0:a`, a pipe's
/// end, and the persistent port `v0`.
struct World {
    d: Daemon,
    port: Port,
    pipe: Port,
}

/// A user, for whom the test finds out which requests are permitted.
struct Question<'a> {
    world: &'a World,
    uid: u32,
}

fn world() -> World {
    let more = "allow_dirs = ['/nowhere']\n[switch]\nshared = ['vale9']\n[sockets]\nmode = '0666'";
    let d = Daemon::start_as(DAEMON, folder_of(DAEMON, 0o755), more);
    let by_owner = |name| open(&d, OWNER, name).unwrap();
    let port = by_owner("vale0:mine");
    let pipe = by_owner("netmap:p{1");
    World { d, port, pipe }
}

fn open(d: &Daemon, uid: u32, name: &str) -> Result<Port, Error> {
    let options = Options { run_dir: Some(d.dir().into()), slots: 64, ..Options::default() };
    as_user(uid, || Port::open_with(name, &options))
}

fn call(d: &Daemon, uid: u32, method: &str, params: Value) -> Value {
    as_user(uid, || d.call(method, params))
}

impl World {
    /// Creates the owner's port on the switch if it does not exist. Returns the port's full name.
    fn attached(&self) -> &'static str {
        call(&self.d, OWNER, "port.attach", json!({"switch": "vale0", "port": "a"}));
        "vale0:a"
    }

    /// Makes sure that the owner's persistent port exists and is on no switch. Returns the port's name.
    fn persistent(&self) -> &'static str {
        request(&self.d, OWNER, NETMAP_REQ_VALE_DETACH, "vale0:v0", &[]);
        request(&self.d, OWNER, NETMAP_REQ_VALE_NEWIF, "v0", &[]);
        "v0"
    }
}

impl Question<'_> {
    fn call(&self, method: &str, params: Value) -> Value {
        call(&self.world.d, self.uid, method, params)
    }

    /// Whether a method succeeds, or fails for a reason other than missing permission.
    fn may_call(&self, method: &str, params: Value) -> bool {
        self.call(method, params)["error"]["data"]["errno"] != libc::EACCES
    }

    /// Whether this user may attach a port to that switch. The port is removed after that.
    fn may_attach(&self, switch: &str, port: &str) -> bool {
        let options = json!({"name": format!("by{}", self.uid)});
        let may = self.may_call("port.attach", json!({"switch": switch, "port": port, "options": options}));
        self.call("port.detach", json!({"switch": switch, "port": format!("by{}", self.uid)}));
        may
    }

    fn may_open(&self, name: &str) -> bool {
        match open(&self.world.d, self.uid, name) {
            Err(Error::Refused { errno, .. }) => errno != libc::EACCES,
            _ => true,
        }
    }

    fn may_request(&self, reqtype: u16, name: &str, body: &[(usize, u8)]) -> bool {
        request(&self.world.d, self.uid, reqtype, name, body).status != libc::EACCES
    }

    /// Whether this user may pass a TAP to the daemon. The descriptor that this function passes is not a TAP; the
    /// daemon checks the permission first.
    fn may_hand_over(&self, switch: &str) -> bool {
        let params = AttachParams { switch: switch.into(), port: "tap:x".into(), ..AttachParams::default() };
        let dir = self.world.d.dir();
        let done = as_user(self.uid, || {
            let nothing = std::fs::File::open("/dev/null").unwrap();
            BringConnection::connect(dir).unwrap().attach(params, &[nothing.into()])
        });
        !matches!(done, Err(ClientError::Refused(why)) if why.is(ErrorCode::NotPermitted))
    }

    /// Whether the daemon would hand over its ports to a successor of this user. If it refuses the user's inquiry, it
    /// must also refuse the request to begin.
    fn may_succeed(&self) -> bool {
        let dir = self.world.d.dir();
        let connection = as_user(self.uid, || netvale::raw::connect_to(Some(dir)).unwrap());
        let status = |message: Succession| {
            rustix::net::send(&connection, &message.encode(), SendFlags::NOSIGNAL).unwrap();
            let mut bytes = [0; REPLY_LEN];
            assert!(netvale_mem::notify::nap(connection.as_fd(), common::LIMIT), "no answer");
            let (got, _) = rustix::net::recv(&connection, &mut bytes[..], RecvFlags::empty()).unwrap();
            AttachReply::decode(&bytes[..got]).unwrap().status
        };
        let may = status(Succession::Hello(VERSION)) != libc::EACCES;
        assert!(may || status(Succession::Begin) == libc::EACCES);
        may
    }

    /// Returns a specification of kind `kind`, with a path in the daemon's folder.
    fn path(&self, kind: &str) -> String {
        format!("{kind}:{}/by{}", self.world.d.dir().display(), self.uid)
    }
}

/// Returns the answer to several questions, which must be the same for all of them.
fn same(may: &[bool]) -> bool {
    assert!(may.iter().all(|one| *one == may[0]), "{may:?}");
    may[0]
}

type Ask = fn(&Question<'_>) -> bool;

/// The rows of the table, each with a function that makes the row's requests.
const ROWS: &[(&str, Ask)] = &[
    ("`version`, `switch.list`", |q| q.may_call("version", json!({})) && q.may_call("switch.list", json!({}))),
    ("`switch.table`, `switch.groups` of the owner's switch", |q| {
        q.may_call("switch.table", json!({"switch": "vale0"}))
            && q.may_call("switch.groups", json!({"switch": "vale0"}))
    }),
    ("`port.attach` to the owner's switch", |q| q.may_attach("vale0", "null:")),
    ("`port.attach` to a shared switch, or to the caller's own switch", |q| {
        q.may_attach("vale9", "null:") && q.may_attach(&format!("vale{}", q.uid), "echo:")
    }),
    ("`port.attach` of a file or socket outside `allow_dirs`", |q| {
        let kinds = ["pcap", "vhost", "ptnet", "e1000", "virtio", "stream", "seqpacket", "unixgram"];
        same(&kinds.map(|kind| q.may_attach("vale9", &q.path(kind))))
    }),
    ("`port.attach` of an interface, a TAP, a PCI device, a tunnel or a socket with an IP address", |q| {
        let ports = [
            "netmap:lo",
            "tap:nvtest",
            "virtio-pci:0:1f.7",
            "e1000-pci:0:1f.7",
            "vxlan:7,local=127.0.0.1,port=14789",
            "stream:127.0.0.1:14790",
            "dgram:127.0.0.1:14791,remote=127.0.0.1:14792",
        ];
        same(&ports.map(|port| q.may_attach("vale9", port)))
    }),
    ("passes a TAP that the caller created, for the owner's switch", |q| q.may_hand_over("vale0")),
    ("the same for a shared switch, or for the caller's own switch", |q| {
        q.may_hand_over("vale9") && q.may_hand_over(&format!("vale{}", q.uid))
    }),
    ("`port.detach` of the owner's port", |q| {
        q.world.attached();
        q.may_call("port.detach", json!({"switch": "vale0", "port": "a"}))
    }),
    ("`vxlan.set`, `vxlan.local`, `vde.set` of the owner's port", |q| {
        // The port is neither a tunnel nor a VDE switch. Permitted users get an error that says this; other users get a
        // refusal.
        let port = q.world.attached();
        let may = ["vxlan.set", "vxlan.local", "vde.set"].map(|method| q.may_call(method, json!({"port": port})));
        same(&may)
    }),
    ("`port.set` of the owner's port", |q| {
        let port = q.world.attached();
        let may = q.may_call("port.set", json!({"port": port, "set": {"isolated": null}}));
        // Policies that one caller has set would affect the result of the next caller.
        call(&q.world.d, 0, "port.detach", json!({"switch": "vale0", "port": "a"}));
        may
    }),
    ("`port.set` of the owner's port, once root has set policies on it", |q| {
        let port = q.world.attached();
        call(&q.world.d, 0, "port.set", json!({"port": port, "set": {"isolated": true}}));
        let may = q.may_call("port.set", json!({"port": port, "set": {"isolated": null}}));
        call(&q.world.d, 0, "port.detach", json!({"switch": "vale0", "port": "a"}));
        may
    }),
    ("sees the owner's port: `port.list`, `port.show`, `stats.all`, `port.evicted`", |q| {
        let (name, lists) = (q.world.attached(), |reply: &Value, key: &str| {
            reply.as_array().unwrap().iter().any(|port| port[key] == "vale0:a")
        });
        let told = [
            lists(&q.call("port.list", json!({}))["result"], "name"),
            lists(&q.call("stats.all", json!({}))["result"]["ports"], "name"),
            q.call("port.show", json!({"port": name}))["result"]["name"] == name,
        ];
        same(&told)
    }),
    ("receives events of the owner's ports: `subscribe`", |q| {
        call(&q.world.d, OWNER, "port.detach", json!({"switch": "vale0", "port": "a"}));
        let dir = q.world.d.dir();
        let mut client = as_user(q.uid, || Client::connect(dir).unwrap());
        client.subscribe(SubscribeParams::default()).unwrap();
        q.world.attached();
        // The refusal is reported to the user who made the request.
        client.show("vale0:nothing").unwrap_err();
        let mut told = Vec::new();
        while told.last().is_none_or(|event: &Event| event.name != EventName::RequestRefused.as_str()) {
            told.push(client.next_event(common::LIMIT).unwrap().unwrap());
        }
        told.iter().any(|event| event.port.as_deref() == Some("vale0:a"))
    }),
    ("`config.apply`, `config.export`", |q| {
        let dry = json!({"text": "", "dry_run": true});
        let both = [q.call("config.apply", dry), q.call("config.export", json!({}))];
        same(&both.map(|reply| reply["error"]["data"]["errno"] != libc::EACCES))
    }),
    ("traces the owner's port: `trace.begin`", |q| {
        let may = [q.world.attached(), "vale0"].map(|of| {
            let reply = q.call("trace.begin", json!({"of": [of]}));
            reply["result"]["ports"].as_array().is_some_and(|ports| ports.iter().any(|port| port == "vale0:a"))
        });
        same(&may)
    }),
    ("`shutdown`", |q| {
        let fresh = world();
        call(&fresh.d, q.uid, "shutdown", json!({}))["error"]["data"]["errno"] != libc::EACCES
    }),
    ("takes the daemon's place (`netvale upgrade`)", |q| q.may_succeed()),
    ("opens a new port on the owner's switch", |q| q.may_open("vale0:new")),
    ("opens a new port on a shared switch, or on the caller's own switch", |q| {
        q.may_open("vale9:new") && q.may_open(&format!("vale{}:new", q.uid))
    }),
    ("opens the owner's port, or an end of the owner's pipe", |q| {
        q.world.persistent();
        // The last two names are names of new pipes. A new pipe is in the memory of the port whose name is part of the
        // pipe's name.
        let names = [q.world.attached(), "netmap:p}1", "netmap:v0", "netmap:v0{7", "vale0:a{7"];
        same(&names.map(|name| q.may_open(name)))
    }),
    ("the same, with the owner's memory specified (`@ID`)", |q| {
        q.may_open(&format!("{}@{}", q.world.pipe.name().replace('{', "}"), q.world.pipe.info().mem_id))
    }),
    ("opens a port of the caller's in the owner's memory (`@ID`)", |q| {
        q.may_open(&format!("vale{}:in@{}", q.uid, q.world.port.info().mem_id))
    }),
    ("the same, with other memory specified (`@ID`), or as a zero-copy monitor (`/z`)", |q| {
        let own = open(&q.world.d, q.uid, &format!("vale{}:own", q.uid)).unwrap();
        let other = own.info().mem_id;
        // The owner may open both ports. An existing port keeps its memory, even if the name specifies other memory.
        let may = [format!("netmap:p}}1@{other}"), "vale0:mine/z".to_owned()].map(|name| q.may_open(&name));
        same(&may)
    }),
    ("monitors the owner's port (`/r`, `/t`)", |q| q.may_open("vale0:mine/r") && q.may_open("vale0:mine/t")),
    ("opens an interface", |q| q.may_open("netmap:lo")),
    ("`NETMAP_REQ_PORT_INFO_GET`, `PORT_HDR_GET`, `PORT_HDR_SET`, `VALE_POLLING_ENABLE` of the owner's port", |q| {
        let name = q.world.attached();
        let types = [
            NETMAP_REQ_PORT_INFO_GET,
            NETMAP_REQ_PORT_HDR_GET,
            NETMAP_REQ_PORT_HDR_SET,
            NETMAP_REQ_VALE_POLLING_ENABLE,
        ];
        let mut may = types.map(|reqtype| q.may_request(reqtype, name, &[])).to_vec();
        q.world.persistent();
        for name in ["netmap:v0", "netmap:p{1"] {
            may.extend(
                [NETMAP_REQ_PORT_INFO_GET, NETMAP_REQ_PORT_HDR_GET].map(|reqtype| q.may_request(reqtype, name, &[])),
            );
        }
        same(&may)
    }),
    ("`NETMAP_REQ_VALE_LIST` names the owner's port", |q| {
        let name = q.world.attached();
        request(&q.world.d, q.uid, NETMAP_REQ_VALE_LIST, name, &[]).name == name
            && request(&q.world.d, q.uid, NETMAP_REQ_VALE_LIST, name, &[]).status == 0
    }),
    ("`NETMAP_REQ_VALE_NEWIF`", |q| q.may_request(NETMAP_REQ_VALE_NEWIF, &format!("v{}", q.uid), &[])),
    ("`NETMAP_REQ_VALE_ATTACH`, `VALE_DETACH`, `VALE_DELIF` of the owner's persistent port", |q| {
        q.world.persistent();
        let attach = q.may_request(NETMAP_REQ_VALE_ATTACH, "vale0:v0", &[(16, 1)]);
        request(&q.world.d, OWNER, NETMAP_REQ_VALE_ATTACH, "vale0:v0", &[(16, 1)]);
        let detach = q.may_request(NETMAP_REQ_VALE_DETACH, "vale0:v0", &[]);
        q.world.persistent();
        let may = [attach, detach, q.may_request(NETMAP_REQ_VALE_DELIF, "v0", &[])];
        same(&may)
    }),
];

/// Returns the rows of the table: the request, and for each user in [`CALLERS`] whether the request is permitted.
fn rows() -> Vec<(&'static str, [bool; 4])> {
    let lines = TABLE.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let may: Vec<bool> =
            cells[1..].iter().filter_map(|cell| ["no", "yes"].iter().position(|w| w == cell)).map(|i| i == 1).collect();
        Some((cells[0], <[bool; 4]>::try_from(may).ok()?))
    };
    lines.filter_map(row).collect()
}

/// Objective: each request on both sockets is executed for the users in the table of the documentation, and refused to
/// other users.
#[test]
fn requests_are_executed_only_for_the_listed_users() {
    let documented: BTreeSet<&str> = rows().iter().map(|(what, _)| *what).collect();
    assert_eq!(documented, ROWS.iter().map(|(what, _)| *what).collect());
    let world = world();
    for (what, expected) in rows() {
        let (_, ask) = ROWS.iter().find(|(row, _)| *row == what).unwrap();
        let got = CALLERS.map(|uid| ask(&Question { world: &world, uid }));
        assert_eq!(got, expected, "{what}");
    }
}

/// Objective: clients outside a daemon's container have no process ID inside the container; their permissions depend on
/// their user alone.
#[test]
fn clients_outside_of_the_daemons_container() {
    if !common::is_root("needs root, to make a PID namespace") {
        return;
    }
    let d = Daemon::start_apart();
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    common::send(&mut a, &common::frame(255, 1, 7));
    assert_eq!(common::receive(&mut b)[59], 7);
    let shown = d.show("vale0:a");
    assert_eq!(shown["owner"], json!({"uid": 0, "pid": 0}), "{shown}");
}
