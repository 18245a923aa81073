//! Attackers that are clients without a port.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use netvale_control::attach::AttachRequest;
use netvale_control::device::DeviceRequest;
use netvale_control::dirs::CONTROL_SOCKET;
use rustix::net::SendFlags;

use super::{Attacker, pause, text};

const METHODS: &[&str] =
    &["version", "switch.list", "switch.table", "port.list", "port.show", "port.attach", "stats.all"];

fn control(a: &Attacker) -> Result<UnixStream, String> {
    let stream = UnixStream::connect(a.dir.join(CONTROL_SOCKET)).map_err(text)?;
    stream.set_read_timeout(Some(Duration::from_millis(20))).map_err(text)?;
    stream.set_write_timeout(Some(Duration::from_millis(20))).map_err(text)?;
    Ok(stream)
}

/// Returns an almost valid request line, truncated.
fn almost(a: &mut Attacker) -> Vec<u8> {
    let method = METHODS[a.rng.index(METHODS.len())];
    let name = String::from_utf8_lossy(&a.rng.bytes(12)).replace(['"', '\\', '\n'], "?");
    let words = [format!("\"{name}\""), "null".into(), "-1e99".into(), "[[[[[]]]]]".into(), "\"vale0:bb\"".into()];
    let word = &words[a.rng.index(words.len())];
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{word},\"method\":\"{method}\",\
         \"params\":{{\"port\":{word},\"switch\":\"vale0\"}}}}\n"
    );
    let end = if a.rng.one_in(2) { line.len() } else { a.rng.index(line.len()) };
    line.as_bytes()[..end].to_vec()
}

/// Sends bytes of all kinds, and reads the answers occasionally.
pub fn noise_on_control(a: &mut Attacker) -> Result<(), String> {
    while a.goes_on() {
        let mut stream = control(a)?;
        for _ in 0..a.rng.below(20) {
            let bytes = if a.rng.one_in(3) { a.rng.bytes(300) } else { almost(a) };
            if stream.write_all(&bytes).is_err() {
                break;
            }
            if a.rng.one_in(4) {
                let _ = stream.read(&mut [0; 4096]);
            }
        }
        a.is_up();
        pause();
    }
    Ok(())
}

/// Sends messages in which single bits are flipped, and random messages.
pub fn noise_on_attach(a: &mut Attacker) -> Result<(), String> {
    while a.goes_on() {
        let line = netvale::raw::connect_to(Some(&a.dir)).map_err(text)?;
        for _ in 0..a.rng.below(20) {
            let attach = AttachRequest { name: a.own_port(), tx_slots: a.rng.word() as u32, ..Default::default() };
            let device =
                DeviceRequest { reqtype: a.rng.below(20) as u16, name: "vale0:bb".into(), ..Default::default() };
            let mut bytes = if a.rng.one_in(2) { attach.encode().to_vec() } else { device.encode().to_vec() };
            for _ in 0..a.rng.below(4) {
                let at = a.rng.index(bytes.len());
                bytes[at] ^= 1 << a.rng.below(8);
            }
            bytes.truncate(bytes.len() - if a.rng.one_in(4) { a.rng.index(bytes.len()) } else { 0 });
            let (ours, theirs) = UnixStream::pair().map_err(text)?;
            if pass(line.as_fd(), &bytes, &[theirs.as_fd()]).is_err() {
                break;
            }
            drop(ours);
        }
        a.is_up();
        pause();
    }
    Ok(())
}

/// Repeats requests that this user is not permitted to make.
pub fn refused(a: &mut Attacker) -> Result<(), String> {
    let stream = control(a)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(text)?;
    let mut lines = std::io::BufReader::new(stream.try_clone().map_err(text)?);
    while a.goes_on() {
        let words = ["pcap:out=/etc/passwd", "vhost:/nowhere/x", "netmap:nosuch0", "bb", "bb"];
        let port = words[a.rng.index(words.len())];
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"port.{}\",\
             \"params\":{{\"switch\":\"vale0\",\"port\":\"{port}\"}}}}\n",
            if port == "bb" { "detach" } else { "attach" }
        );
        (&stream).write_all(line.as_bytes()).map_err(text)?;
        let mut answer = String::new();
        std::io::BufRead::read_line(&mut lines, &mut answer).map_err(text)?;
        if answer.is_empty() {
            return Err("the daemon was killed".into());
        }
        if !answer.contains("error") {
            return Err(format!("not refused: {line}{answer}"));
        }
        a.is_up();
    }
    Ok(())
}

/// Opens more connections than a user may have.
pub fn connections(a: &mut Attacker) -> Result<(), String> {
    while a.goes_on() {
        let held: Vec<UnixStream> = (0..200).map_while(|_| control(a).ok()).collect();
        a.is_up();
        pause();
        drop(held);
    }
    Ok(())
}

/// Passes to the daemon descriptors whose last close waits for a peer (SO_LINGER).
pub fn lingers(a: &mut Attacker) -> Result<(), String> {
    let mut peers = Vec::new();
    while a.goes_on() && peers.len() < 50 {
        let to_control = control(a)?;
        let to_attach = netvale::raw::connect_to(Some(&a.dir)).map_err(text)?;
        for line in [to_control.as_fd(), to_attach.as_fd()] {
            let (fd, peer) = lingering().map_err(text)?;
            peers.push(peer);
            // The daemon may have closed the connection already.
            let _ = pass(line, b"{}\n", &[fd.as_fd()]);
        }
        a.is_up();
        pause();
    }
    while a.goes_on() {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns a connection whose last close waits for a peer that never reads, and that peer.
fn lingering() -> std::io::Result<(OwnedFd, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut socket = TcpStream::connect(listener.local_addr()?)?;
    let peer = listener.accept()?.0;
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(2)))?;
    socket.set_nonblocking(true)?;
    while socket.write(&[0; 65_536]).is_ok() {}
    Ok((socket.into(), peer))
}

fn pass(to: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    netvale_fdio::send(to, bytes, fds, SendFlags::DONTWAIT)
}
