//! A booted guest, and measurements in it.

use std::net::UdpSocket;

use super::services::Busy;
use super::*;

/// How long register accesses are counted: briefly, because counting slows the guest down.
const COUNTED: Duration = Duration::from_millis(100);

/// The agent's answer to a task.
#[derive(Clone, Copy)]
pub struct Played {
    count: u64,
    seconds: f64,
    interrupts: u64,
}

/// What was done in a window, according to the agent and to the port's counters.
struct WindowCount {
    played: Played,
    /// Counts of frames from the guest, frames to the guest, and doorbells.
    moved: [u64; 3],
    beside: Disturbance,
}

/// A guest with all that it is connected to.
pub struct BootedGuest {
    /// The case.
    pub case: Case,
    /// The traffic of the case.
    pub traffic: Traffic,
    /// The machine in which the guest runs.
    pub machine: Rc<Machine>,
    /// The machine of the guest to which this guest sends, if there is one.
    pub peer: Option<Rc<Machine>>,
    /// Exits of the guest (doorbells or register accesses) per frame or round trip; `None` until counted.
    pub exits: Option<f64>,
    /// QEMU's name for the interface's registers, if QEMU counts accesses to them.
    pub registers: Option<&'static str>,
    /// Whether the guest's port counts doorbells.
    pub has_doorbells: bool,
    /// netvale's switch, if the guest's port is on it.
    pub switch: Option<Switch>,
    /// The guest's TAP, if there is no switch.
    pub tap: String,
    /// The host's network namespace.
    pub hub: Netns,
    /// The host's services.
    pub services: Rc<Worker>,
}

/// Reads the answer of a machine's agent at the end of a task.
fn answer(machine: &Machine) -> Result<Played> {
    loop {
        let line = machine.child().expect("\n", LIMIT)?;
        if let Some(why) = line.trim().strip_prefix("failed ") {
            return Err(BenchError::Usage(format!("in the guest: {why}")));
        }
        let Some(numbers) = line.trim().strip_prefix("done ") else { continue };
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if let [count, nanos, interrupts] = numbers[..] {
            return Ok(Played { count, seconds: nanos as f64 / 1e9, interrupts });
        }
    }
}

/// How much longer a receiver runs than the sender, so that it also counts the last frames.
const LINGER: Duration = Duration::from_millis(300);

impl BootedGuest {
    /// Changes to another case, if that case uses the same booted set-up. Returns whether it does.
    pub fn turn(&mut self, case: &Case) -> bool {
        let Some(traffic) = Traffic::of(case) else { return false };
        let is_same = case.scenario == self.case.scenario && traffic.arrangement() == self.traffic.arrangement();
        if is_same {
            self.case = case.clone();
            self.traffic = traffic;
            self.exits = None;
        }
        is_same
    }

    /// Describes the use of CPUs, for the record.
    pub fn cores(&self) -> String {
        let worker = if self.switch.is_some() { ", the switch's worker on the second" } else { "" };
        if self.traffic.arrangement().has_two_cpus {
            let machines = if self.peer.is_some() { "both machines" } else { "the machine" };
            return format!("{machines} (two emulated processors each, and devices) on both CPUs{worker}");
        }
        let peer = if self.peer.is_some() { ", the receiving machine beside it" } else { "" };
        format!("the machine (emulated processor and devices) on the first CPU{worker}{peer}")
    }

    /// Runs a task of the agent: the case's own task, or another task.
    pub fn play(&self, what: &str, window: Duration) -> Result<Played> {
        let line = |what: &str, window: Duration| format!("{what} {} {}", self.case.frame_bytes, window.as_millis());
        // For some tasks, a program in the receiving machine counts the frames. Other traffic is counted elsewhere or
        // echoed.
        let taker = self.peer.as_ref().zip(self.traffic.taker()).filter(|_| what == self.traffic.task);
        if let Some((peer, task)) = taker {
            peer.child().say(&line(task, window + LINGER))?;
            peer.child().expect("taking", LIMIT)?;
        }
        let to = match self.traffic.direction {
            Direction::Between | Direction::Bridged => format!(" 10.1.0.{PEER}"),
            Direction::Up => format!(" {HOST}"),
            _ if what == "pktgen" => format!(" {}", self.case.batch),
            _ => String::new(),
        };
        self.machine.child().say(&(line(what, window) + &to))?;
        let sent = answer(&self.machine)?;
        match taker {
            Some((peer, _)) => Ok(Played { seconds: sent.seconds, ..answer(peer)? }),
            None => Ok(sent),
        }
    }

    /// Starts a thread that sends to the guest until the returned value is dropped; `None` if the guest sends, or
    /// itself requests the data.
    fn generator(&self) -> Result<Option<Busy>> {
        if self.traffic.direction != Direction::In || self.traffic.is_stream() {
            return Ok(None);
        }
        let bytes = self.case.frame_bytes as usize;
        if let Some(switch) = &self.switch {
            return switch.generator(bytes).map(|work| Some(Busy::start(work)));
        }
        let opening = || BenchError::io("opening a socket at the host's end");
        let socket = self.hub.inside(|| UdpSocket::bind((HOST, 0)).map_err(opening()))?;
        let payload = vec![0; bytes.saturating_sub(agent::HEADERS)];
        let send = move || {
            // Errors are ignored: a full queue only loses frames.
            let _ = socket.send_to(&payload, (format!("10.1.0.{GUEST}"), DISCARD));
            Ok(())
        };
        Ok(Some(Busy::start(send)))
    }

    /// Returns the numbers, so far, of frames from the guest, of frames to the guest, and of the guest's doorbells.
    fn counters(&self) -> Result<[u64; 3]> {
        if let Some(switch) = &self.switch {
            return switch.counters();
        }
        Ok([self.hub.counter(&self.tap, 1)?, self.hub.counter(&self.tap, 9)?, 0])
    }

    /// Runs the case's traffic for a window.
    fn count(&self, window: Duration) -> Result<WindowCount> {
        let machines = std::iter::once(&self.machine).chain(&self.peer).map(|machine| machine.child().pid());
        let mut processes: Vec<u32> = machines.chain([self.services.pid()]).collect();
        processes.extend(self.switch.iter().map(|switch| switch.daemon.pid()));
        let before = self.counters()?;
        let generator = self.generator()?;
        let watch = Watch::start(&processes, &[]);
        let played = self.play(self.traffic.task, window)?;
        let beside = watch.finish();
        drop(generator);
        let after = self.counters()?;
        Ok(WindowCount { played, moved: std::array::from_fn(|i| after[i] - before[i]), beside })
    }

    /// Returns the number of frames in the case's direction, or of round trips; at least 1, because callers divide by
    /// this number.
    fn units(&self, count: &WindowCount) -> f64 {
        let frames = count.moved[usize::from(self.traffic.direction == Direction::In)];
        let done = if self.traffic.is_round_trips() { count.played.count } else { frames };
        done.max(1) as f64
    }

    /// Returns the register accesses per frame or round trip. Each access is an exit.
    fn count_accesses(&self, registers: &str) -> Result<f64> {
        let (count, accesses) = self.machine.accesses(registers, |_| self.count(COUNTED))?;
        Ok(accesses as f64 / self.units(&count))
    }

    /// Measures for a window. Returns the sample, and the interrupts per frame or round trip.
    pub fn measure(&mut self, window: Duration) -> Result<(Sample, f64)> {
        if let Some(registers) = self.registers.filter(|_| self.exits.is_none()) {
            self.exits = Some(self.count_accesses(registers)?);
        }
        let count = self.count(window)?;
        let each = self.units(&count);
        let traffic = self.traffic;
        let done = if traffic.by_agent { count.played.count } else { count.moved[0] };
        if done == 0 {
            return Err(BenchError::NoTraffic("the guest".into()));
        }
        if self.has_doorbells {
            self.exits = Some(count.moved[2] as f64 / each);
        }
        let bytes = if traffic.is_stream() { 1 } else { self.case.frame_bytes };
        let rate = self.case.unit.rate(done, bytes, count.played.seconds).unwrap_or(0.0);
        Ok((Sample::new(rate, count.beside), count.played.interrupts as f64 / each))
    }
}
