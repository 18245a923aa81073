//! Virtual machines that move between two daemons and back during a TCP connection.

use crate::common;
use crate::common::guest;
use crate::common::up;

use std::path::PathBuf;
use std::time::Duration;

use netvale::{Options, Port};
use netvale_control::client::Client;
use serde_json::json;

use guest::{Guest, Image, Nic, Qmp, alone, image};
use up::Up;

/// Number of times that the guest moves away and back.
const ROUNDS: usize = 5;

/// The address of the guest that moves.
const MAC: &str = "52:54:00:00:00:01";
const MAC_BYTES: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
/// EtherType of the announcement, which the daemon sends when QEMU requests it.
const RARP: [u8; 2] = [0x80, 0x35];

/// Script of the guest that moves: receives a stream until its end, and meanwhile executes commands. nc must not read
/// from the console, hence its empty input.
const MOVING: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
mkfifo /tmp/mute
nc -l -p 5000 0<>/tmp/mute | md5sum >/tmp/sum &
echo ready
while read -r what value </dev/ttyS0; do
    case $what in
        mtu) ip link set eth0 mtu $value && echo \"mtu is $(cat /sys/class/net/eth0/mtu)\" ;;
        queues) ethtool -L eth0 combined $value && echo \"queues are $value\" ;;
        end) break ;;
    esac
done
wait
cat /tmp/sum
";

/// Script of the guest that stays: sends numbered blocks until told to stop, and prints their number and checksum.
const STAYING: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 50); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
dd if=/dev/urandom of=/tmp/block bs=16k count=1 2>/dev/null
mkfifo /tmp/mute
blocks() {
    i=0
    while [ ! -e /tmp/stop ]; do cat /tmp/block; echo $i; i=$((i + 1)); echo $i >/tmp/count; sleep 0.1; done
}
blocks | nc 10.1.0.1 5000 &
echo sending
read line </dev/ttyS0
echo >/tmp/stop
wait
count=$(cat /tmp/count)
echo \"count $count\"
for i in $(seq 0 $((count - 1))); do cat /tmp/block; echo $i; done | md5sum
";

fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(netvale_harness::until(guest::LIMIT, Duration::from_millis(20), done), "time is up: {what}");
}

/// A daemon with a port for the guest, and a port that receives broadcasts.
struct Place {
    up: Up,
    socket: PathBuf,
    listener: Port,
}

impl Place {
    /// Returns whether the guest was announced by a broadcast.
    fn hears(&mut self) -> bool {
        let ring = &mut self.listener.rx()[0];
        ring.sync();
        let mut frame = [0; 64];
        let mut heard = false;
        while let Some(len) = ring.recv(&mut frame) {
            heard |= len >= 14 && frame[..6] == [0xff; 6] && frame[6..12] == MAC_BYTES && frame[12..14] == RARP;
        }
        heard
    }
}

/// Two daemons whose switches are joined; the guest that stays is on the first daemon's switch.
struct Places {
    all: [Place; 2],
    staying: PathBuf,
}

impl Places {
    fn new(options: &str) -> Places {
        let all = [(), ()].map(|()| {
            let up = Up::start(&[]);
            let socket = up.path("guest.sock");
            common::stdout(&up.run(&format!("attach vale0 vhost:{} {options}", socket.display())));
            let listener = Options { run_dir: Some(up.dir().into()), ..Options::default() };
            let listener = Port::open_with("vale0:listener", &listener).expect("the port opens");
            Place { up, socket, listener }
        });
        let staying = all[0].up.path("staying.sock");
        let link = all[0].up.path("link.sock");
        common::stdout(&all[0].up.run(&format!("attach vale0 vhost:{}", staying.display())));
        common::stdout(&all[0].up.run(&format!("attach vale0 vhost:{} --name link", link.display())));
        let beyond = format!("attach vale0 virtio:{} --name link", link.display());
        // The second daemon connects to a socket in the first daemon's folder.
        up::until("the link", || all[1].up.run(&beyond).status.success());
        Places { all, staying }
    }

    /// Returns the port behind which a place's daemon has learned the guest's address; `None` if the daemon has not
    /// learned it.
    fn seen_at(&self, place: usize) -> Option<String> {
        let mut client = Client::connect(self.all[place].up.dir()).ok()?;
        let table = client.table("vale0").ok()?;
        table.into_iter().find(|entry| entry.mac.to_string() == MAC).map(|entry| entry.port)
    }

    /// Returns the bytes of the stream that the guest that stays has sent.
    fn streamed(&self) -> u64 {
        let shown = self.all[0].up.show("vale0:staying");
        let rings = shown["rings"].as_array().cloned().unwrap_or_default();
        rings.iter().filter(|r| r["dir"] == "in").filter_map(|r| r["bytes"].as_u64()).sum()
    }

    /// Waits until the stream has continued.
    fn flows(&self) {
        let before = self.streamed();
        until("the stream flows", || self.streamed() > before + (64 << 10));
    }
}

/// The configuration of the guest's device.
struct Way<'a> {
    device: &'a str,
    pairs: u32,
}

/// A QEMU that is connected to one of the daemons and runs the guest that moves, or waits for it.
struct Runs {
    guest: Guest,
    qmp: Qmp,
    channel: PathBuf,
}

fn start(image: &Image, places: &Places, place: usize, turn: usize, way: &Way<'_>) -> Runs {
    let at = &places.all[place];
    let control = at.up.path(&format!("qmp{turn}"));
    let channel = at.up.path(&format!("channel{turn}"));
    let mut more = vec!["-qmp".to_owned(), format!("unix:{},server=on,wait=off", control.display())];
    if turn > 0 {
        more.extend(["-incoming".to_owned(), format!("unix:{}", channel.display())]);
    }
    let nic = Nic { more: &more, device: way.device, pairs: way.pairs, ..Nic::new(&at.socket) };
    let guest = Guest::start_with_netvale(image, MOVING, 1, &nic);
    if turn > 0 {
        until("somewhere to go", || up::listens(&channel));
    }
    Runs { guest, qmp: Qmp::connect(&control), channel }
}

/// Moves the guest, and waits until both switches have learned its address at the new port.
fn move_to(places: &mut Places, from: &mut Runs, to: &Runs, place: usize) {
    let _before = places.all[place].hears();
    from.qmp.run("migrate-set-parameters", &json!({ "downtime-limit": 1000, "max-bandwidth": 1u64 << 32 }));
    from.qmp.run("migrate", &json!({ "uri": format!("unix:{}", to.channel.display()) }));
    until("the guest has moved", || {
        let state = from.qmp.run("query-migrate", &json!({}));
        assert_ne!(state["status"], "failed", "{state}");
        state["status"] == "completed"
    });
    until("it is announced", || places.all[place].hears());
    until("its address has moved", || {
        places.seen_at(place).as_deref() == Some("vale0:guest")
            && places.seen_at(1 - place).as_deref() == Some("vale0:link")
    });
}

/// Changes the guest's settings between two moves.
fn change(guest: &mut Guest, turn: usize, pairs: u32) {
    let mtu = if turn.is_multiple_of(2) { 1500 } else { 1300 };
    guest.say(&format!("mtu {mtu}"));
    guest.expect(&format!("mtu is {mtu}"));
    if pairs > 1 {
        let queues = 1 + turn as u32 % pairs;
        guest.say(&format!("queues {queues}"));
        guest.expect(&format!("queues are {queues}"));
    }
}

/// Moves the guest ten times during a TCP stream, which must arrive unchanged.
fn there_and_back(way: &Way<'_>) {
    let _one = alone();
    let Some(image) = image() else { return };
    let mut places = Places::new(&format!("--rings {}", way.pairs));
    let mut here = start(image, &places, 0, 0, way);
    here.guest.expect("ready");
    let mut staying = Guest::start(image, STAYING, 2, &Nic::new(&places.staying));
    staying.expect("sending");
    for turn in 1..=2 * ROUNDS {
        places.flows();
        let place = turn % 2;
        let there = start(image, &places, place, turn, way);
        move_to(&mut places, &mut here, &there, place);
        // The QEMU from which the guest came ends here.
        here = there;
        change(&mut here.guest, turn, way.pairs);
    }
    places.flows();
    staying.say("stop");
    staying.expect("count ");
    let count: u64 = staying.expect("\n").trim().parse().expect("a number");
    assert!(count > 2 * ROUNDS as u64, "{count} blocks");
    let theirs = staying.end();
    here.guest.say("end");
    let ours = here.guest.end();
    let sum = |text: &str| text.split_whitespace().find(|w| w.len() == 32).map(str::to_owned);
    assert!(sum(&ours).is_some() && sum(&ours) == sum(&theirs), "{ours}\n{theirs}");
}

/// Objective: a guest with split rings moves between two daemons five times and back; it is announced, its address
/// moves in both switches, and a TCP connection continues and loses no byte.
#[test]
fn a_guest_with_split_rings_moves_between_daemons() {
    there_and_back(&Way { device: "", pairs: 1 });
}

/// Objective: a guest with packed rings and two queue pairs, whose number in use changes between moves, moves between
/// two daemons and keeps its TCP connection.
#[test]
fn packed_rings_and_queues() {
    there_and_back(&Way { device: ",packed=on", pairs: 2 });
}
