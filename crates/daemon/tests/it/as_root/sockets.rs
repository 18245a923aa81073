//! Permissions on socket addresses: on IP addresses, and on the sockets that peers name as their own sockets. The
//! daemon runs in its sandbox.

use crate::common;

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::users::{as_user, folder_of, open_to};
use common::{Daemon, LIMIT, frame, receive, send, until};
use serde_json::{Value, json};

const DAEMON: u32 = 70_000;
const USER: u32 = 70_001;

/// A daemon, and a folder in which users may name sockets.
fn daemon(uid: u32) -> (Daemon, tempfile::TempDir) {
    let [dir, allowed] = [folder_of(uid, 0o755), folder_of(uid, 0o1777)];
    let config = format!(
        "sandbox = true\nallow_dirs = [{:?}]\n[switch]\nshared = ['*']\n[sockets]\nmode = '0666'\n",
        allowed.path()
    );
    (Daemon::start_as(uid, dir, &config), allowed)
}

fn attach(d: &Daemon, uid: u32, switch: &str, port: &str, options: Value) -> Value {
    let params = json!({"switch": switch, "port": port, "options": options});
    as_user(uid, || d.call("port.attach", params))
}

/// Objective: only root and the daemon's own user may use sockets with IP addresses; these sockets work in the sandbox,
/// for a daemon of any user.
#[test]
fn addresses() {
    for uid in [0, DAEMON] {
        let (d, _allowed) = daemon(uid);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap()).map(|s| s.local_addr().unwrap());
        let pairs = [
            [(format!("stream:{tcp}"), json!({})), (format!("stream:{tcp}"), json!({"client": true}))],
            [(format!("dgram:{one},remote={other}"), json!({})), (format!("dgram:{other},remote={one}"), json!({}))],
            [
                ("dgram:239.77.1.1:5003,interface=127.0.0.1".to_owned(), json!({})),
                ("dgram:239.77.1.1:5003,interface=127.0.0.1".to_owned(), json!({})),
            ],
        ];
        for (number, pair) in pairs.into_iter().enumerate() {
            let switches = [format!("here{number}"), format!("there{number}")];
            for (switch, (port, options)) in switches.iter().zip(&pair) {
                let text = attach(&d, USER, switch, port, options.clone())["error"].to_string();
                assert!(text.contains("root"), "{port}: {text}");
                let reply = attach(&d, 0, switch, port, options.clone());
                assert!(reply["error"].is_null(), "{port}: {reply}");
            }
            let [mut here, mut there] = switches.map(|switch| as_user(uid, || d.open(&format!("{switch}:a")).unwrap()));
            until("a frame comes", || {
                send(&mut here, &frame(255, 1, 1));
                there.wait(netvale::Interest::Rx, Some(Duration::from_millis(20))).unwrap()
            });
            assert_eq!(receive(&mut there), frame(255, 1, 1));
        }
    }
}

/// Returns whether the daemon answers a VDE plug whose request names `own` as its socket.
fn is_answered(folder: &Path, own: &Path) -> bool {
    let mut request = [0xfeed_face_u32, 3, 0].map(u32::to_ne_bytes).concat();
    request.extend(1u16.to_ne_bytes());
    request.extend(own.as_os_str().as_encoded_bytes());
    request.resize(122, 0);
    as_user(USER, || {
        let mut control = UnixStream::connect(folder.join("ctl")).unwrap();
        control.set_read_timeout(Some(LIMIT)).unwrap();
        control.write_all(&request).unwrap();
        control.read_exact(&mut [0; 110]).is_ok()
    })
}

/// Creates a datagram socket at a path, with that owner and those permissions.
fn datagrams(path: &Path, owner: u32, mode: u32) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    open_to(path, owner, mode);
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Returns paths that a user names as its own socket, each with whether this is permitted: a socket of the user, a
/// socket to which everybody may send, a socket of another user, a socket behind a link, and a socket outside the
/// folders in which the daemon accepts users' sockets.
fn named(folder: &Path) -> Vec<(PathBuf, Option<UnixDatagram>, bool)> {
    let at = |name: &str| folder.join(name);
    let socket = |name: &str, owner, mode| Some(datagrams(&at(name), owner, mode));
    symlink(at("hidden"), at("link")).unwrap();
    vec![
        (at("own"), socket("own", USER, 0o666), true),
        (at("open"), socket("open", 0, 0o666), true),
        (at("hidden"), socket("hidden", 0, 0o600), false),
        (at("link"), None, false),
        (at("in/../hidden"), None, false),
        ("/run/systemd/notify".into(), None, false),
    ]
}

/// Objective: a user's plug gets frames only at sockets to which the user may send.
#[test]
fn plugs_of_users() {
    let (d, allowed) = daemon(0);
    let folder = allowed.path().join("vde");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o1777)).unwrap();
    let reply = attach(&d, USER, "vale0", &format!("vde:{}", folder.display()), json!({}));
    assert!(reply["error"].is_null(), "{reply}");
    for (own, _socket, may) in named(&folder) {
        assert_eq!(is_answered(&folder, &own), may, "{}", own.display());
    }
}

/// Objective: if a user replaces the socket at the named path by another file, the daemon sends no answer to that file.
#[test]
fn guests_of_users() {
    let (d, allowed) = daemon(0);
    let path = allowed.path().join("vm.sock");
    let own = allowed.path().join("guest");
    let victim = datagrams(&allowed.path().join("victim"), 0, 0o600);
    let reply = attach(&d, USER, "vale0", &format!("unixgram:{}", path.display()), json!({"name": "p"}));
    assert!(reply["error"].is_null(), "{reply}");
    let guest = as_user(USER, || {
        let guest = UnixDatagram::bind(&own).unwrap();
        guest.connect(&path).unwrap();
        guest
    });
    let mut a = as_user(USER, || d.open("vale0:a").unwrap());
    let is_taken = || d.notes("vale0:p").contains("peer connected");
    std::fs::remove_file(&own).unwrap();
    symlink(allowed.path().join("victim"), &own).unwrap();
    as_user(USER, || guest.send(&frame(255, 9, 1)).unwrap());
    // The next peer is served after this peer has been checked.
    let other = allowed.path().join("other");
    let other_guest = as_user(USER, || {
        let guest = UnixDatagram::bind(&other).unwrap();
        std::fs::set_permissions(&other, PermissionsExt::from_mode(0o666)).unwrap();
        guest.send_to(&frame(255, 9, 2), &path).unwrap();
        guest
    });
    until("the other one has the port", is_taken);
    send(&mut a, &frame(255, 1, 3));
    other_guest.set_read_timeout(Some(LIMIT)).unwrap();
    let mut datagram = [0; 100];
    assert_eq!(other_guest.recv(&mut datagram).unwrap(), 60);
    assert_eq!(datagram[..60], frame(255, 1, 3));
    assert!(victim.recv(&mut datagram).is_err());
}
