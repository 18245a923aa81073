//! `bridge`, `fwd`, `lb` and `pkt-gen` as processes, with a daemon.

use crate::common;
use crate::common::up;

use common::stderr;
use netvale_pcapport::PcapReader;
use rustix::process::Signal;
use up::{Guarded, Up, last_json, until};

/// Returns the frames of a file.
fn frames(up: &Up, file: &str) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::open(&up.path(file)).expect("a capture");
    let mut all = Vec::new();
    while let Some(frame) = reader.next_frame().expect("whole") {
        all.push(frame.bytes.to_vec());
    }
    all
}

/// Dumps `count` frames of a port into a file.
fn dump(up: &Up, port: &str, file: &str, count: u32) -> Guarded {
    let dump = up.start_program(&format!("dump {port} -w {} -c {count}", up.path(file).display()));
    up.wait_for_port(port);
    dump
}

/// Returns the number of frames of a lane (a way from one port to another) in a forwarding program's summary.
fn lane(sum: &serde_json::Value, name: &str) -> u64 {
    let lanes = sum["lanes"].as_array().expect("lanes");
    lanes
        .iter()
        .find(|lane| lane["lane"] == name)
        .and_then(|lane| lane["frames"].as_u64())
        .expect("a lane of that name")
}

/// Objective: `bridge` joins two switches: frames sent on one switch arrive on the other switch, unchanged.
#[test]
fn bridge_joins_two_switches() {
    let up = Up::start(&[]);
    let bridge = up.start_program("bridge -i vale0:x -i vale1:x --json");
    up.wait_for_port("vale0:x");
    up.wait_for_port("vale1:x");
    let dump = dump(&up, "vale1:d", "d.pcap", 500);
    assert_eq!(last_json(&up.run("pkt-gen -i vale0:g -f tx -n 500 -l 100 -R 50000 --json"))["frames"], 500);
    assert!(dump.output().status.success());
    assert!(frames(&up, "d.pcap").iter().all(|frame| frame.len() == 100 && frame[..6] == [0xff; 6]));
    bridge.signal(Signal::INT);
    assert_eq!(lane(&last_json(&bridge.output()), "vale0:x -> vale1:x"), 500);
}

/// Objective: `fwd` forwards frames unchanged, with other addresses, or with swapped addresses.
#[test]
fn fwd_sends_frames_on_with_their_addresses() {
    let up = Up::start(&[]);
    for (mode, to, from) in
        [("io", [2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 8]), ("macswap", [2, 0, 0, 0, 0, 8], [2, 0, 0, 0, 0, 7])]
    {
        let fwd = up.start_program(&format!("fwd -i vale0:x -i vale1:x --mode {mode} --json"));
        up.wait_for_port("vale0:x");
        up.wait_for_port("vale1:x");
        let dump = dump(&up, "vale1:d", mode, 20);
        let sent = up.run("pkt-gen -i vale0:g -f tx -n 20 -D 02:00:00:00:00:07 -S 02:00:00:00:00:08 --json");
        assert_eq!(last_json(&sent)["frames"], 20);
        assert!(dump.output().status.success());
        assert!(frames(&up, mode).iter().all(|frame| frame[..6] == to && frame[6..12] == from), "{mode}");
        fwd.signal(Signal::INT);
        assert!(fwd.output().status.success());
    }
}

/// Objective: `lb` sends both directions of each flow to one pipe, distributes flows, and loses no frame.
#[test]
fn lb_gives_each_flow_to_one_pipe() {
    let up = Up::start(&[]);
    let lb = up.start_program("lb -i vale0:in -p 2 --json");
    for k in 0..2 {
        until("the pipe is there", || {
            !up.show(&format!("vale0:in{{{k}")).is_null() || !up.show(&format!("vale0:in}}{k}")).is_null()
        });
    }
    let pipes: Vec<Guarded> = (0..2)
        .map(|k| up.start_program(&format!("dump vale0:in}}{k} -w {} --json", up.path(&format!("pipe{k}")).display())))
        .collect();
    // Both directions of the same flows: the ranges of source and destination are exchanged.
    let one = "10.0.0.1:1000-10.0.0.1:1199";
    let other = "10.1.0.1:80-10.1.0.1:80";
    for (src, dst) in [(one, other), (other, one)] {
        let sent = up.run(&format!("pkt-gen -i vale0:g -f tx -n 400 -R 20000 -s {src} -d {dst} --json"));
        assert_eq!(last_json(&sent)["frames"], 400);
    }
    until("lb has taken all", || up.frames("vale0:in", "out") == 800);
    lb.signal(Signal::INT);
    let sum = last_json(&lb.output());
    assert_eq!((lane(&sum, "vale0:in}0 dropped"), lane(&sum, "vale0:in}1 dropped")), (0, 0));
    let shares = [lane(&sum, "vale0:in}0"), lane(&sum, "vale0:in}1")];
    assert_eq!(shares[0] + shares[1], 800);
    assert!(shares.iter().all(|&share| share > 200), "uneven: {shares:?}");
    for pipe in pipes {
        pipe.signal(Signal::INT);
        pipe.output();
    }
    let flows = |file: &str| {
        let ends = |frame: &[u8]| {
            let a = frame[34..36].to_vec();
            let b = frame[36..38].to_vec();
            if a < b { (a, b) } else { (b, a) }
        };
        frames(&up, file).iter().map(|frame| ends(frame)).collect::<std::collections::HashSet<_>>()
    };
    let first = flows("pipe0");
    let second = flows("pipe1");
    assert_eq!((first.intersection(&second).count(), first.len() + second.len()), (0, 200));
}

/// Objective: pkt-gen counts exactly, and sends frames of the requested lengths, from ranges or from a file;
/// unsupported options are refused.
#[test]
fn pkt_gen_counts_exactly_and_obeys_its_options() {
    let up = Up::start(&[]);
    // The captured port is lossless, because more frames are sent than it has slots.
    assert!(up.run("attach vale0 d --lossless").status.success());
    let lengths = dump(&up, "vale0:d", "lengths.pcap", 300);
    assert_eq!(last_json(&up.run("pkt-gen -i vale0:g -f tx -n 300 -l 200 -l 100 -R 50000 --json"))["frames"], 300);
    lengths.output();
    let sent = frames(&up, "lengths.pcap");
    assert!(
        sent.iter().all(|frame| (100..=200).contains(&frame.len()))
            && sent.iter().any(|frame| frame.len() != sent[0].len())
    );
    let again = dump(&up, "vale0:d", "again.pcap", 600);
    let file = up.path("lengths.pcap");
    let replayed = up.run(&format!("pkt-gen -i vale0:g -f tx -n 600 -R 50000 -P {} --json", file.display()));
    assert_eq!(last_json(&replayed)["frames"], 600);
    again.output();
    assert_eq!(frames(&up, "again.pcap"), [sent.clone(), sent].concat());
    for (line, word) in [
        ("pkt-gen -i vale0:g -f tx -I", "NS_INDIRECT"),
        ("pkt-gen -i vale0:g -f rx -P /x", "-f tx"),
        ("pkt-gen -i vale0:g -f tx -o 16", "-o 16"),
        ("pkt-gen -i vale0:g -f tx -s nonsense", "invalid address range"),
    ] {
        let output = up.run(line);
        assert_eq!(
            (output.status.code(), stderr(&output).contains(word)),
            (Some(2), true),
            "{line}: {}",
            stderr(&output)
        );
    }
}

/// Objective: ping and pong exchange frames through the switch while polling, while sleeping, and by default, and
/// report percentiles.
#[test]
fn ping_and_pong_see_each_other() {
    let up = Up::start(&[]);
    for how in ["", "--sleep", "--poll"] {
        let pong = up.start_program(&format!("pkt-gen -i vale0:b -f pong {how}"));
        up.wait_for_port("vale0:b");
        let ping = last_json(&up.run(&format!("pkt-gen -i vale0:a -f ping -n 200 {how} --json")));
        assert_eq!((&ping["round_trips"], &ping["lost"]), (&200.into(), &0.into()), "{ping}");
        pong.signal(Signal::INT);
        pong.output();
    }
}
