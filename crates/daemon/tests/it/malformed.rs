//! Malformed messages on a connection that holds a port.

use crate::common;

use std::os::fd::{AsFd, OwnedFd};

use common::{Daemon, until};
use netvale::raw;
use netvale_control::attach::AttachRequest;

fn connected(d: &Daemon, name: &str) -> (OwnedFd, raw::AttachedRings) {
    let conn = raw::connect_to(Some(d.dir())).unwrap();
    let request = AttachRequest { name: name.to_owned(), ..AttachRequest::default() };
    let attached = raw::attach(conn.as_fd(), &request).unwrap();
    (conn, attached)
}

/// Objective: any malformed bytes that a client sends on the connection of a port are refused with a reason, and the
/// port is unchanged, even if the client does not read the answers, or the message is empty.
#[test]
fn bytes_cost_no_port() {
    let d = Daemon::start("");
    let (conn, attached) = connected(&d, "vale0:a");
    rustix::io::ioctl_fionbio(&conn, true).unwrap();
    let messages: [&[u8]; 4] = [b"", b"x", &[0xff; 300], b"NVdv and then something else"];
    let mut sent = 0;
    // This causes more unread answers than a socket has room for.
    until("2000 messages", || {
        match rustix::net::send(&conn, messages[sent % messages.len()], rustix::net::SendFlags::NOSIGNAL) {
            Ok(_) => sent += 1,
            Err(rustix::io::Errno::AGAIN) => {}
            Err(e) => panic!("message {sent}: {e}"),
        }
        sent == 2000
    });
    rustix::io::ioctl_fionbio(&conn, false).unwrap();
    let again = raw::resume(conn.as_fd()).expect("the port is still held");
    assert_eq!(again.reply.nifp, attached.reply.nifp);
    assert_eq!(d.ports(), ["vale0:a"]);
    drop((conn, again, attached));
    until("the port goes with its connection", || d.ports().is_empty());
}

/// Objective: a client that reads the answer learns what is wrong with its message.
#[test]
fn the_answer_says_why() {
    let d = Daemon::start("");
    let (conn, _attached) = connected(&d, "vale0:a");
    rustix::io::write(&conn, b"GET / HTTP/1.1\r\n").unwrap();
    let mut bytes = [0u8; netvale_control::attach::REPLY_LEN];
    let got = rustix::io::read(&conn, &mut bytes).unwrap();
    let reply = netvale_control::attach::AttachReply::decode(&bytes[..got]).unwrap();
    assert_eq!(reply.status, libc::EPROTO);
    assert!(reply.text.contains("attach message of 16 bytes"), "{}", reply.text);
    assert_eq!(d.ports(), ["vale0:a"]);
}
