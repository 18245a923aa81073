//! A daemon with every kind of port that is replaced while numbered frames pass through all of them.

use crate::common;
use crate::common::guest;
use crate::common::sequence;
use crate::common::up;

use std::path::Path;
use std::time::Duration;

use guest::{Guest, Nic, image};
use netvale::{Options, Port};
use netvale_control::client::Client;
use netvale_harness::daemon::scratch;
use netvale_harness::net::{cable, inside, ip};
use netvale_harness::until;
use netvale_pcapport::{PcapFormat, PcapReader as FileReader, PcapWriter};
use sequence::{Came, LIMIT, Reader, Sender, frame, number_of};
use up::Up;

/// Number of times that the daemon is replaced.
const TIMES: usize = 5;

/// Number of frames that are replayed from a file.
const REPLAYED: u64 = 40_000;
const EVERY: Duration = Duration::from_micros(500);

/// Pause between two bursts of 16 frames, because the kernel's bridge on the path drops frames for which its neighbours
/// have no room.
const PAUSE: Duration = Duration::from_millis(8);

/// Script of a virtual machine that bridges its two interfaces.
const BRIDGE: &str = "
busybox brctl addbr br0; busybox brctl setfd br0 0
for i in eth0 eth1 br0; do echo 1 >/proc/sys/net/ipv6/conf/$i/disable_ipv6; ip link set $i up; done
busybox brctl addif br0 eth0; busybox brctl addif br0 eth1
for i in eth0 eth1; do until [ $(cat /sys/class/net/$i/brport/state) = 3 ]; do sleep 0.1; done; done
echo bridged
read line </dev/ttyS0
";

/// A daemon whose ports form one line: `vale0:from`, a guest's ptnet, its e1000, a vhost-user device and its driver, a
/// TAP, a bridge of the kernel, an interface, `vale3:to`.
struct Line {
    daemon: Up,
    folder: tempfile::TempDir,
    guest: Guest,
}

fn attach(daemon: &Up, line: &str) {
    let words: Vec<&str> = std::iter::once("attach").chain(line.split_whitespace()).collect();
    daemon.must(&words);
}

impl Line {
    fn new(image: &guest::Image) -> Line {
        let folder = scratch("all").expect("a folder");
        let daemon = Up::start(&["--allow-dir", folder.path().to_str().expect("text")]);
        let at = |name: &str| daemon.dir().join(name).display().to_string();
        let ptnet = at("ptnet.sock");
        let e1000 = at("e1000.sock");
        let cord = at("cord.sock");
        cable("va", "vb", 1).expect("a cable");
        cable("vc", "vd", 1).expect("a cable");
        for line in [
            format!("vale0 ptnet:{ptnet} --name guest --lossless"),
            format!("vale1 e1000:{e1000} --name guest"),
            format!("vale1 vhost:{cord} --name cord --lossless"),
            format!("vale2 virtio:{cord} --name cord"),
            "vale2 tap:ta --name tap --lossless".to_owned(),
            "vale3 netmap:vb --host".to_owned(),
            "vale3 to --lossless".to_owned(),
            "vale4 here --lossless".to_owned(),
            format!("vale5 pcap:out={} --name seen --lossless", folder.path().join("seen.pcap").display()),
            "vale6 null: --name sink".to_owned(),
        ] {
            attach(&daemon, &line);
        }
        ip("link add br0 type bridge forward_delay 0").expect("a bridge");
        for name in ["br0", "ta"] {
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        }
        for line in ["link set ta master br0", "link set va master br0", "link set br0 up", "link set ta up"] {
            ip(line).expect("a bridge");
        }
        let card = serde_json::json!({"driver": "vfio-user-pci", "socket": {"type": "unix", "path": e1000}});
        let more = ["-device".to_owned(), card.to_string()];
        let nic = Nic { ptnet: 3, more: &more, ..Nic::new(Path::new(&ptnet)) };
        let mut guest = Guest::start_with_netvale(image, BRIDGE, 1, &nic);
        guest.expect("bridged");
        let line = Line { daemon, folder, guest };
        line.say_hello();
        line
    }

    /// Sends a frame from the end of the line to its beginning. Afterwards, no switch floods frames for the end, which
    /// matters because a sender waits only for a single receiver.
    fn say_hello(&self) {
        let mut to = self.open("vale3:to");
        let mut hello = [0; 60];
        hello[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 2, 0x88, 0xb6]);
        assert!(to.tx()[0].send(&hello));
        to.sync();
        let client = || Client::connect(self.daemon.dir()).expect("it answers");
        let has_come = || client().table("vale0").expect("it is there").iter().any(|entry| entry.port == "vale0:guest");
        assert!(until(LIMIT, PAUSE, has_come), "the end of the line is not heard: {}", self.losses());
    }

    /// Opens a port for reading. The kernel holds no sender back, so an interface's ring has slots for half a second of
    /// frames.
    fn open(&self, name: &str) -> Port {
        let slots = if name == "netmap:vc" { 1024 } else { 128 };
        let options = Options { run_dir: Some(self.daemon.dir().into()), slots, ..Options::default() };
        Port::open_with(name, &options).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn send(&self, name: &'static str) -> Sender {
        Sender::start(self.daemon.dir().into(), name, PAUSE)
    }

    /// Writes numbered frames into a file, which a port sends to its switch once.
    fn replay(&self) {
        let file = self.folder.path().join("replayed.pcap");
        let mut writer = PcapWriter::create(&file, PcapFormat::Pcap).expect("a file");
        for number in 0..REPLAYED {
            let time = EVERY * u32::try_from(number).expect("small");
            writer.write(time, &frame(number)).expect("written");
        }
        writer.finish().expect("written");
        attach(&self.daemon, &format!("vale4 pcap:in={} --name player", file.display()));
    }

    /// Counts the captured frames by their numbers.
    fn captured(&self) -> Came {
        let mut came = Came::default();
        let mut file = FileReader::open(&self.folder.path().join("seen.pcap")).expect("a file");
        // The last frame may not be complete yet.
        while let Ok(Some(frame)) = file.next_frame() {
            number_of(frame.bytes).into_iter().for_each(|number| came.note(number));
        }
        came
    }

    /// Lists where frames were lost, to explain a failure.
    fn losses(&self) -> String {
        let links = std::process::Command::new("ip").args(["-s", "link"]).output().expect("it runs");
        format!("{}\n{}", self.daemon.must(&["list"]), String::from_utf8_lossy(&links.stdout))
    }

    /// Returns the notes of the peers' ports, without digits, because counts change.
    fn notes(&self) -> String {
        let client = || Client::connect(self.daemon.dir()).expect("it answers");
        let ports = ["vale0:guest", "vale1:guest", "vale1:cord", "vale2:cord"];
        ports
            .map(|name| client().show(name).expect("it is there").notes.join("; "))
            .join("; ")
            .replace(|letter: char| letter.is_ascii_digit(), "")
    }
}

/// Objective: in upgrades with every kind of port, all of them in use, no frame is lost, duplicated or out of order:
/// along a line of ports of all kinds, across a pipe, across a veth pair between programs' own interfaces, and from a
/// file; captures and monitors continue.
#[test]
fn every_kind_at_once() {
    if !common::is_root("XDP programs need root") {
        return;
    }
    let Some(image) = image() else { return };
    if !inside(&["--net"]).unwrap_or_else(|e| panic!("{e}")) {
        return;
    }
    let line = Line::new(image);
    let readers = ["vale3:to", "netmap:p{1", "netmap:vc"].map(|name| Reader::start(line.open(name)));
    let copy = Reader::start(line.open("vale3:to/r"));
    let replayed = Reader::start(line.open("vale4:here"));
    line.replay();
    let before = line.notes();
    let senders = ["vale0:from", "netmap:p}1", "netmap:vd"].map(|name| line.send(name));
    let recorded = line.send("vale5:from");
    let all = || readers.iter().chain([&copy, &replayed]);
    for _ in 0..TIMES {
        all().for_each(|reader| reader.wait_for(reader.next() + 100));
        line.daemon.upgrade();
    }
    all().for_each(|reader| reader.wait_for(reader.next() + 100));
    let sent = senders.map(Sender::finish);
    let recorded = recorded.finish();
    // The monitor is finished first, because it ends with its port. It may lack frames that passed while no monitor was
    // open, but has no frame twice.
    assert_eq!(copy.finish(0).again, 0);
    for ((reader, sent), way) in readers.into_iter().zip(sent).zip(["line", "pipe", "cable"]) {
        assert_eq!(reader.finish(sent), Came { next: sent, ..Came::default() }, "{way}: {}", line.losses());
    }
    assert_eq!(replayed.finish(REPLAYED), Came { next: REPLAYED, ..Came::default() });
    assert!(until(LIMIT, PAUSE, || line.captured().next == recorded), "{:?} of {recorded}", line.captured());
    assert_eq!(line.captured(), Came { next: recorded, ..Came::default() });
    assert_eq!(line.notes(), before);
    let Line { mut guest, daemon, .. } = line;
    guest.say("off");
    guest.end();
    daemon.must(&["stop"]);
}
