//! TCP by iperf3 between two namespaces whose TAPs are joined to socket peers.

use std::fs::File;
use std::io::{Read, Write};

use super::*;
use crate::peers::iperf::{self, Iperf};
use crate::sys::tapdev::TapDevice;

/// Name of the worker role [`bridge`].
pub const BRIDGE: &str = "socket-bridge";
/// Maximum number of bytes that one call receives.
const ROOM: usize = 256 << 10;

/// A TAP, and the sockets that join it to a switch: the port's socket, and the peer's own socket.
#[derive(Debug, Serialize, Deserialize)]
struct Joined {
    tap: String,
    kind: SocketKind,
    sockets: [PathBuf; 2],
}

/// Starts a process that joins the TAP `tap`, which it creates in `namespace`, to a port through the port's socket and
/// the peer's own socket.
pub fn joined(
    namespace: &Netns,
    core: usize,
    tap: &str,
    kind: SocketKind,
    sockets: [PathBuf; 2],
) -> Result<Rc<Worker>> {
    let task = Joined { tap: tap.into(), kind, sockets };
    Worker::spawn(Wrapper::Network(namespace), BRIDGE, Some(core), &task)
}

/// Measures one TCP stream. The CPU of each end also runs the process that joins this end's TAP to the switch.
pub fn session(kind: SocketKind, switch: RunningSwitch, place: SocketPlace, cores: Cores) -> Result<Session> {
    need(&[iperf::NEEDS], 2)?;
    let mut parts = switch.parts;
    let mut stations = Vec::new();
    for (index, core) in [cores.0, cores.1].into_iter().enumerate() {
        let namespace = Netns::silent()?;
        namespace.set("unix/max_dgram_qlen", switch::QUEUE)?;
        let worker = joined(&namespace, core, "tap0", kind, place.sockets(kind, index))?;
        namespace.set_up("tap0", &format!("10.77.0.{}/24", index + 1))?;
        parts.push(worker);
        stations.push(namespace);
    }
    let pids = parts.iter().flat_map(|part| part.pids()).collect();
    let stations = <[Netns; 2]>::try_from(stations).map_err(|_| no_frames("iperf3"))?;
    let iperf = Iperf::start(stations, "10.77.0.2", cores, pids)?;
    let words = format!("client on CPU {}, server and switch on CPU {}", cores.0, cores.1);
    iperf.session(words).with_all(parts).keeping(switch.kept).keeping(place).idle()
}

/// Copies frames between a TAP and a socket, until one of the two is closed.
pub fn bridge(context: &Context) -> Result<()> {
    let task: Joined = context.arguments()?;
    let (socket, is_stream, _control) = task.kind.connect(&task.sockets)?.into_socket();
    let socket = &File::from(socket);
    let tap = &TapDevice::create(&task.tap)?.blocking()?;
    context.ready()?;
    let failed = || BenchError::io("copying frames between a TAP and a socket");
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || send(tap, socket, is_stream).map_err(failed()));
        receive(socket, tap, is_stream).map_err(failed())?;
        sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn send(mut tap: &File, mut socket: &File, is_stream: bool) -> std::io::Result<()> {
    let mut room = vec![0; ROOM];
    let start = if is_stream { 4 } else { 0 };
    loop {
        let length = tap.read(&mut room[start..])?;
        if is_stream {
            room[..start].copy_from_slice(&(length as u32).to_be_bytes());
        }
        socket.write_all(&room[..start + length])?;
    }
}

fn receive(mut socket: &File, tap: &File, is_stream: bool) -> std::io::Result<()> {
    let mut room = vec![0; ROOM];
    let mut held = 0;
    loop {
        let length = socket.read(&mut room[held..])?;
        if length == 0 {
            return Ok(());
        }
        let filled = held + length;
        let mut rest = &room[..filled];
        if is_stream {
            while let Some((frame, more)) = ends::first_frame(rest) {
                write(tap, frame)?;
                rest = more;
            }
            held = rest.len();
            room.copy_within(filled - held..filled, 0);
        } else {
            write(tap, rest)?;
        }
    }
}

/// Writes a frame to a TAP. While the interface is down, the kernel refuses the frame (EIO), which is no error here.
fn write(mut tap: &File, frame: &[u8]) -> std::io::Result<()> {
    match tap.write(frame) {
        Err(error) if error.raw_os_error() != Some(libc::EIO) => Err(error),
        _ => Ok(()),
    }
}
