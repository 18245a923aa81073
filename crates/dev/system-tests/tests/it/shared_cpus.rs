//! Sender, receiver and daemon that share CPUs with each other and with other programs, get only a part of a CPU, or
//! get no CPU for a while. Over a pipe, all frames arrive in order; across a switch, frames stay in order; and no
//! process spins for a peer that cannot run.

use crate::common;
use crate::common::up;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::stdout;
use rustix::process::Signal;
use up::{Guarded, LIMIT, Up};

/// Number of frames sent.
const FRAMES: &str = "300000";
/// Interval over which the CPU time of a process is measured.
const WHILE: Duration = Duration::from_millis(300);

/// Pairs of ports, and for each whether all frames from the first to the second must arrive.
const WAYS: [(&str, &str, bool); 2] = [("netmap:way{1", "netmap:way}1", true), ("vale0:from", "vale0:to", false)];

/// A process's part of the CPUs.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// A fair share of all CPUs.
    Fair,
    /// A fair share of one CPU.
    Cpu(u32),
    /// As much CPU time as the process wants, before all others.
    RealTime,
    /// At most a tenth of a CPU.
    Tenth,
}

impl Part {
    /// Gives this part to a process. Returns whether that is possible here.
    fn give(self, pid: u32, group: Option<&Group>) -> bool {
        let set = |program: &str, args: &[&str]| {
            let done = Command::new(program).args(args).arg(pid.to_string()).output();
            done.is_ok_and(|done| done.status.success())
        };
        match self {
            Part::Fair => true,
            Part::Cpu(cpu) => set("taskset", &["-a", "-c", "-p", &cpu.to_string()]),
            Part::RealTime => set("chrt", &["-a", "-f", "-p", "20"]),
            Part::Tenth => group.is_some_and(|group| group.add(pid)),
        }
    }
}

/// A control group with a tenth of a CPU.
struct Group(PathBuf);

impl Group {
    /// Creates a group; `None` if that is impossible here.
    fn new(name: &str) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let mounted = |kind: &str, with: &str| {
            let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let found = fields.filter(|f| f.len() > 3 && f[2] == kind && f[3].split(',').any(|option| option == with));
            found.map(|f| PathBuf::from(f[1])).next()
        };
        let name = format!("netvale-test-{name}-{}", std::process::id());
        let first = mounted("cgroup", "cpu").map(|root| (root, "cpu.cfs_quota_us", "10000"));
        let (root, file, limit) = first.or_else(|| Some((mounted("cgroup2", "rw")?, "cpu.max", "10000 100000")))?;
        let group = Group(root.join(name));
        fs::create_dir(&group.0).ok()?;
        // If the limit cannot be set, the group is dropped here, which removes it.
        fs::write(group.0.join(file), limit).ok().map(|()| group)
    }

    fn add(&self, pid: u32) -> bool {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is empty only a moment after its processes have ended.
        netvale_harness::until(LIMIT, Duration::from_millis(5), || fs::remove_dir(&self.0).is_ok());
    }
}

fn pkt_gen(up: &Up, args: &[&str]) -> Guarded {
    Guarded::start(&mut up.command(["pkt-gen"].iter().chain(args)))
}

fn busy() -> Guarded {
    Guarded::start(Command::new("sh").args(["-c", "while :; do :; done"]))
}

/// Returns the numbers of frames received, missing, and out of order, according to the receiver.
fn result(receiver: Guarded) -> [u64; 3] {
    let text = stdout(&receiver.output());
    let numbers = |line: &str| {
        let line = text.lines().find(|one| one.starts_with(line)).unwrap_or_else(|| panic!("no {line} in: {text}"));
        line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect::<Vec<u64>>()
    };
    let sequence = numbers("Sequence: ");
    [numbers("Received ")[0], sequence[0], sequence[1]]
}

/// Sends frames over a pipe and across a switch while daemon, sender and receiver have these parts of the CPUs, beside
/// `strangers` busy programs.
fn crossings(name: &str, [daemon, sender, receiver]: [Part; 3], strangers: usize) {
    // The group is dropped last, because it must be empty.
    let group = Group::new(name);
    let up = Up::start(&[]);
    let given = |part: Part, pid| {
        let given = part.give(pid, group.as_ref());
        if !given {
            netvale_harness::skip(&format!("{part:?} is impossible here"));
        }
        given
    };
    if !given(daemon, up.pid()) {
        return;
    }
    let _busy: Vec<_> = (0..strangers).map(|_| busy()).collect();
    for (from, to, all_arrive) in WAYS {
        let end: &[&str] = if all_arrive { &["-n", FRAMES] } else { &["-W"] };
        let to_end = pkt_gen(&up, &[&["-i", to, "-f", "rxseq", "-N"], end].concat());
        if !given(receiver, to_end.0.id()) {
            return;
        }
        up.wait_for_port(to);
        let from_end = pkt_gen(&up, &["-i", from, "-f", "txseq", "-n", FRAMES]);
        if !given(sender, from_end.0.id()) {
            return;
        }
        stdout(&from_end.output());
        let [frames, missing, disordered] = result(to_end);
        assert_eq!(disordered, 0, "{name}: {from}");
        assert!(frames > 0 && (missing == 0 || !all_arrive), "{name}: {frames} frames over {from}, {missing} missing");
    }
}

/// Objective: frames arrive in order if daemon, sender and receiver share one CPU with two other busy programs.
#[test]
fn frames_arrive_in_order_on_one_shared_cpu() {
    crossings("one", [Part::Cpu(0); 3], 2);
}

/// Objective: frames arrive in order if daemon, sender and receiver share CPUs only in part.
#[test]
fn frames_arrive_in_order_on_partly_shared_cpus() {
    let last = std::thread::available_parallelism().map_or(1, |n| n.get()) as u32 - 1;
    crossings("apart", [Part::Cpu(0), Part::Cpu(last), Part::Cpu(0)], 1);
    crossings("partly", [Part::Fair, Part::Cpu(last), Part::Fair], 2);
}

/// Objective: frames arrive in order if daemon, sender or receiver has a real-time priority on the CPU of the other
/// two.
#[test]
fn frames_arrive_in_order_beside_a_real_time_peer() {
    for (at, name) in ["daemon", "sender", "receiver"].into_iter().enumerate() {
        let mut parts = [Part::Cpu(0); 3];
        parts[at] = Part::RealTime;
        crossings(name, parts, 1);
    }
}

/// Objective: frames arrive in order if daemon, sender or receiver has only a tenth of a CPU.
#[test]
fn a_tenth_of_a_cpu() {
    for (at, name) in ["slow-daemon", "slow-sender", "slow-receiver"].into_iter().enumerate() {
        let mut parts = [Part::Fair; 3];
        parts[at] = Part::Tenth;
        crossings(name, parts, 0);
    }
}

/// Returns the CPU time of a process in clock ticks, 100 per second.
fn cpu_time(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    behind_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
}

/// Waits until a process has used hardly any CPU time for a while.
fn until_idle(what: &str, pid: u32) {
    up::until(what, || {
        let before = cpu_time(pid);
        std::thread::sleep(WHILE);
        cpu_time(pid) - before <= 1
    });
}

/// Objective: no process spins for a peer that is stopped, whether receiver, sender or daemon; when the peer continues,
/// frames arrive again, in order, and over a pipe without a gap.
#[test]
fn nobody_spins_for_a_stopped_peer() {
    for (from, to, all_arrive) in WAYS {
        let up = Up::start(&[]);
        let receiver = pkt_gen(&up, &["-i", to, "-f", "rxseq", "-N"]);
        up.wait_for_port(to);
        let sender = pkt_gen(&up, &["-i", from, "-f", "txseq", "-R", "2000"]);
        up.wait_for_port(from);
        receiver.signal(Signal::STOP);
        if all_arrive {
            until_idle("the sender sleeps", sender.0.id());
        }
        until_idle("the daemon sleeps", up.pid());
        receiver.signal(Signal::CONT);
        sender.signal(Signal::STOP);
        until_idle("the receiver sleeps", receiver.0.id());
        let daemon = rustix::process::Pid::from_raw(up.pid().cast_signed()).expect("a process");
        rustix::process::kill_process(daemon, Signal::STOP).expect("it runs");
        sender.signal(Signal::CONT);
        rustix::process::kill_process(daemon, Signal::CONT).expect("it runs");
        sender.signal(Signal::INT);
        stdout(&sender.output());
        until_idle("all has arrived", receiver.0.id());
        receiver.signal(Signal::INT);
        let [frames, missing, disordered] = result(receiver);
        assert!(frames > 0 && disordered == 0 && (missing == 0 || !all_arrive), "{from}: {frames}, {missing}");
    }
}
