//! Frames for programs to receive, and a port to send and receive them.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use netvale::{Interest, Options, Port};

use crate::common::up::{Guarded, LIMIT, Up};

/// A port of the test's own.
pub struct Peer(Port);

impl Peer {
    pub fn open(up: &Up, name: &str) -> Peer {
        let options = Options { run_dir: Some(up.dir().into()), ..Options::default() };
        Peer(Port::open_with(name, &options).expect("the port opens"))
    }

    pub fn send(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            assert!(self.0.tx()[0].send_now(frame, LIMIT), "no room");
        }
    }

    /// Sends the frames repeatedly until the program has received enough of them and ends.
    pub fn repeat_until_ended(mut self, program: Guarded, frames: &[Vec<u8>]) -> Output {
        until_ended(program, || self.send(frames))
    }

    /// Receives the next `count` frames.
    pub fn take(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut buffer = [0; 2048];
        while frames.len() < count {
            while let Some(n) = self.0.rx()[0].recv(&mut buffer) {
                frames.push(buffer[..n].to_vec());
            }
            let _ = self.0.rx()[0].sync();
            if frames.len() < count {
                assert!(self.0.wait(Interest::Rx, Some(LIMIT)).expect("the daemon is there"), "{} came", frames.len());
            }
        }
        frames
    }
}

/// Repeats an action until a program has ended by itself.
pub fn until_ended(mut program: Guarded, mut act: impl FnMut()) -> Output {
    let start = Instant::now();
    while program.0.child().try_wait().expect("a child").is_none() {
        assert!(start.elapsed() < LIMIT, "the program does not end");
        act();
        std::thread::sleep(Duration::from_millis(10));
    }
    program.output()
}

/// Returns a UDP datagram over IPv4 from 10.9.0.1:49000 to 10.9.0.2.
pub fn datagram(to_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let udp_len = 8 + payload.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp_len).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    let sum = header_sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend(49000u16.to_be_bytes());
    frame.extend(to_port.to_be_bytes());
    frame.extend(udp_len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// Returns the checksum of an IPv4 header (RFC 1071).
fn header_sum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Writes a classic pcap file.
pub fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (i, frame) in frames.iter().enumerate() {
        for word in [0, i as u32, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).expect("written");
}
