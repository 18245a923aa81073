use std::collections::BTreeMap;
use std::net::UdpSocket;

use netvale_control::types::PortDetails;

use super::*;

fn agent() -> (UdpSocket, SflowAgent) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sender = DatagramSender::new(&[socket.local_addr().unwrap()], None, 0).unwrap();
    let run_dir = PathBuf::new();
    let switches = Vec::new();
    let options = SflowOptions {
        run_dir,
        switches,
        rates: SamplingRates { one_of: 100, ports: BTreeMap::new() },
        polling: Duration::ZERO,
        header: 4,
    };
    (socket, SflowAgent::new(options, sender))
}

fn received(socket: &UdpSocket) -> Vec<u32> {
    let mut bytes = [0; 2000];
    let len = socket.recv(&mut bytes).unwrap();
    bytes[..len].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

fn frame(len: u32, steps: Vec<TraceStep>) -> TracedFrame {
    TracedFrame { port: "vale0:a".into(), len, head: "0102030405".into(), steps, ..TracedFrame::default() }
}

/// Objective: a port's samples are numbered, their pools count all frames that the samples stand for, and a sample
/// contains the requested number of bytes of the frame.
#[test]
fn the_samples_of_a_port_represent_all_its_frames() {
    let (socket, mut agent) = agent();
    agent.frame(&frame(60, vec![TraceStep::To("vale0:b/0".into())]), 100);
    agent.frame(&frame(0, vec![TraceStep::Dropped("runt".into(), 1)]), 100);
    agent.frame(&frame(61, vec![TraceStep::Dropped("filter".into(), 1)]), 50);
    agent.sender.flush();
    let words = received(&socket);
    let a = agent.indices.of("vale0:a");
    let b = agent.indices.of("vale0:b");
    assert_eq!(words[6], 2, "samples");
    assert_eq!(words[9..16], [1, a, 100, 100, 0, a, b]);
    assert_eq!(words[19..], {
        let second = [1, 60, 2, a, 50, 150, 0, a, 0x4000_0000 | 258, 1, 1, 20, 1, 65, 4, 4, 0x0102_0304];
        [[1, 64, 4, 4, 0x0102_0304].as_slice(), second.as_slice()].concat()
    });
}

/// Objective: a frame for several ports, one of which dropped it, is reported as sent to the other ports.
#[test]
fn a_frame_is_reported_where_it_went() {
    let (_socket, mut agent) = agent();
    let to = |port: &str| TraceStep::To(format!("{port}/0"));
    let dropped = || TraceStep::Dropped("no-room".into(), 1);
    assert_eq!(agent.output(&[to("s:a"), to("s:b"), dropped(), to("s:c")]), FrameOutput::Several(2));
    let index = agent.indices.of("s:a");
    assert_eq!(agent.output(&[to("s:a"), to("s:b"), dropped()]), FrameOutput::Port(index));
    assert_eq!(agent.output(&[TraceStep::Floods, to("s:a"), dropped()]), FrameOutput::Discarded(Discard::NoBuffer));
    assert_eq!(agent.output(&[TraceStep::Link]), FrameOutput::Unknown);
}

/// Objective: numbered samples with the counters of all ports are sent; the state of a removed port is dropped.
#[test]
fn counters_of_all_ports_are_sent() {
    let (socket, mut agent) = agent();
    let ring = RingStats { frames: 3, bytes: 180, batches: 1 };
    let drops = [("no-room".to_owned(), 2), ("runt".to_owned(), 5)].into();
    let a =
        PortDetails { name: "vale0:a".into(), ingress: vec![ring, ring], in_drops: drops, ..PortDetails::default() };
    let b = PortDetails { name: "vale0:b".into(), state: PortState::Open, ..PortDetails::default() };
    let all = |ports| AllStats { ports, ..AllStats::default() };
    agent.counters(&all(vec![a.clone(), b]));
    let words = received(&socket);
    assert_eq!((words[6], words[9]), (2, 1), "two samples, the first one of its port");
    assert_eq!(words[19..27], [1, 0, 360, 6, u32::MAX, u32::MAX, 7, u32::MAX]);
    agent.counters(&all(vec![a]));
    assert_eq!(received(&socket)[9], 2);
    assert!(!agent.sources.contains_key("vale0:b"));
}
