//! A guest that is up, and what is measured in it.

use std::net::UdpSocket;

use super::services::Busy;
use super::*;

/// The time for which register accesses are counted, which takes long.
const COUNTED: Duration = Duration::from_millis(100);

/// The agent's answer.
#[derive(Clone, Copy)]
pub struct Played {
    count: u64,
    seconds: f64,
    interrupts: u64,
}

/// What was done in a window, as the agent says, and as the port counts.
struct WindowCount {
    played: Played,
    /// Frames that came from the guest, frames that went to it, doorbells.
    moved: [u64; 3],
    beside: Disturbance,
}

/// The guest, with what is around it.
pub struct BootedGuest {
    /// The case that is measured.
    pub case: Case,
    /// What it moves.
    pub traffic: Traffic,
    /// Its machine.
    pub machine: Rc<Machine>,
    /// The machine that it sends to.
    pub peer: Option<Rc<Machine>>,
    /// Doorbells, or register accesses, a frame or round trip.
    pub exits: Option<f64>,
    /// What QEMU calls its registers, if QEMU is to count accesses to them.
    pub registers: Option<&'static str>,
    /// Whether its port counts doorbells.
    pub has_doorbells: bool,
    /// The switch that it is on.
    pub switch: Option<Switch>,
    /// The guest's TAP, if there is no switch.
    pub tap: String,
    /// The host's network.
    pub hub: Netns,
    /// The services of the host's.
    pub services: Rc<Worker>,
}

/// Reads the answer of a machine's agent at the end of its task.
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

/// The time that a receiver waits longer than the sender.
const LINGER: Duration = Duration::from_millis(300);

impl BootedGuest {
    /// Goes on with another case, if what is booted is the same for it.
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

    /// How CPUs are used.
    pub fn cores(&self) -> String {
        let worker = if self.switch.is_some() { ", the switch's worker on the second" } else { "" };
        if self.traffic.arrangement().has_two_cpus {
            let machines = if self.peer.is_some() { "both machines" } else { "the machine" };
            return format!("{machines}, two emulated processors each and devices, on both{worker}");
        }
        let peer = if self.peer.is_some() { ", the receiving machine beside it" } else { "" };
        format!("the machine, emulated processor and devices, on the first{worker}{peer}")
    }

    /// Has the agent do a task, of the case's kind or another one.
    pub fn play(&self, what: &str, window: Duration) -> Result<Played> {
        let line = |what: &str, window: Duration| format!("{what} {} {}", self.case.frame_bytes, window.as_millis());
        // Others count what comes themselves, or are answered.
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

    /// Sends to the guest until dropped, unless the guest asks for what comes.
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
            // A full queue is nothing else than frames lost.
            let _ = socket.send_to(&payload, (format!("10.1.0.{GUEST}"), DISCARD));
            Ok(())
        };
        Ok(Some(Busy::start(send)))
    }

    /// Frames that have come from the guest, and gone to it, and doorbells it has rung.
    fn counters(&self) -> Result<[u64; 3]> {
        if let Some(switch) = &self.switch {
            return switch.counters();
        }
        Ok([self.hub.counter(&self.tap, 1)?, self.hub.counter(&self.tap, 9)?, 0])
    }

    /// Moves what the case moves, for a window.
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

    /// Frames of the case's direction, or round trips.
    fn units(&self, count: &WindowCount) -> f64 {
        let frames = count.moved[usize::from(self.traffic.direction == Direction::In)];
        let done = if self.traffic.is_round_trips() { count.played.count } else { frames };
        done.max(1) as f64
    }

    /// Register accesses a frame or round trip, where each is an exit.
    fn count_accesses(&self, registers: &str) -> Result<f64> {
        let (count, accesses) = self.machine.accesses(registers, |_| self.count(COUNTED))?;
        Ok(accesses as f64 / self.units(&count))
    }

    /// What was moved, and interrupts a frame or round trip.
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
