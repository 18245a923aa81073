//! The *agent*, sFlow's term for a sender of samples. It turns the daemon's answers into samples of frames that the
//! daemon traces and, every few seconds, samples of counters.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use netvale_control::client::ClientError;
use netvale_control::types::{AllStats, PortState, RingStats, TraceStep, TracedFrame};

use super::datagram::DatagramSender;
use super::indices::Indices;
use super::samples::{CounterSample, Discard, FlowSample, FrameOutput, PortTraffic};
use super::sessions::{SamplingRates, Sessions};

/// Interval at which traced frames are read from the daemon while reads find frames.
const LOOK: Duration = Duration::from_millis(50);
/// Interval at which traced frames are read from the daemon after a read found none.
const LOOK_IDLE: Duration = Duration::from_millis(250);
/// Retry interval while no daemon runs.
const AGAIN: Duration = Duration::from_secs(1);

/// The agent's options: what to sample, and how often.
#[derive(Clone, Debug)]
pub struct SflowOptions {
    /// The daemon's run directory.
    pub run_dir: PathBuf,
    /// If not empty, only these switches are sampled.
    pub switches: Vec<String>,
    /// Sampling rates of the ports.
    pub rates: SamplingRates,
    /// Interval of counter samples; zero means that none are sent.
    pub polling: Duration,
    /// Maximum number of bytes of each sampled frame that are sent.
    pub header: usize,
}

/// An sFlow agent, with the sampling state of each port.
#[derive(Debug)]
pub struct SflowAgent {
    options: SflowOptions,
    sender: DatagramSender,
    indices: Indices,
    sources: HashMap<String, SampledPort>,
    /// Number of sampled frames that the daemon has lost for lack of room.
    lost: u32,
}

/// The sampling state of a port.
#[derive(Debug, Default)]
struct SampledPort {
    flows: u32,
    counters: u32,
    pool: u32,
}

impl SflowAgent {
    /// Creates an agent that sends to `sender`.
    #[must_use]
    pub fn new(options: SflowOptions, sender: DatagramSender) -> SflowAgent {
        SflowAgent { options, sender, indices: Indices::default(), sources: HashMap::new(), lost: 0 }
    }

    /// Sends samples until `is_to_stop` returns `true`. If no daemon answers, tries again every second.
    pub fn run(&mut self, is_to_stop: &dyn Fn() -> bool) {
        let mut is_known_missing = false;
        while !is_to_stop() {
            let Err(why) = self.run_once(&mut is_known_missing, is_to_stop) else { return self.sender.flush() };
            if !std::mem::replace(&mut is_known_missing, true) {
                tracing::warn!("no samples: {}", why.what());
            }
            let until = Instant::now() + AGAIN;
            while Instant::now() < until && !is_to_stop() {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Sends samples until `is_to_stop` returns `true`, or until the connection to the daemon fails, which is returned
    /// as an error.
    fn run_once(&mut self, is_known_missing: &mut bool, is_to_stop: &dyn Fn() -> bool) -> Result<(), ClientError> {
        let dir = self.options.run_dir.clone();
        let switches = self.options.switches.clone();
        let mut sessions = Sessions::begin(dir, self.options.rates.clone(), switches)?;
        if std::mem::take(is_known_missing) {
            tracing::info!("the daemon answers again");
        }
        let mut next = Instant::now();
        while !is_to_stop() {
            let mut frames = 0;
            let lost = sessions.read(|frame, one_of| {
                frames += 1;
                self.frame(frame, one_of);
            })?;
            self.lost = self.lost.wrapping_add(lost as u32);
            if !self.options.polling.is_zero() && Instant::now() >= next {
                next += self.options.polling;
                self.counters(&sessions.stats()?);
            }
            self.sender.tick();
            match self.sender.unsent() {
                0 => {}
                unsent => tracing::debug!("{unsent} datagrams could not be sent: check the collector"),
            }
            sessions.wait(if frames > 0 { LOOK } else { LOOK_IDLE })?;
        }
        Ok(())
    }

    /// Sends the sample of a frame, which stands for `one_of` frames. Drops that the daemon recorded without a frame
    /// (length 0) are skipped.
    fn frame(&mut self, frame: &TracedFrame, one_of: u32) {
        if frame.len == 0 {
            return;
        }
        let output = self.output(&frame.steps);
        let port = self.indices.of(&frame.port);
        let source = self.sources.entry(frame.port.clone()).or_default();
        source.flows = source.flows.wrapping_add(1);
        source.pool = source.pool.wrapping_add(one_of);
        let mut head = bytes(&frame.head);
        head.truncate(self.options.header);
        let sequence = source.flows;
        let pool = source.pool;
        let lost = self.lost;
        let len = frame.len;
        let rate = one_of;
        self.sender.put(&FlowSample { sequence, port, rate, pool, lost, output, len, head: &head }.encode());
    }

    /// Returns a frame's destination: the ports to which it was sent without being dropped.
    fn output(&mut self, steps: &[TraceStep]) -> FrameOutput {
        let mut ports = Vec::new();
        let mut dropped = None;
        for step in steps {
            match step {
                TraceStep::To(ring) => ports.push(ring.rsplit_once('/').map_or(ring.as_str(), |(port, _)| port)),
                TraceStep::Dropped(why, _) => {
                    dropped = Some(Discard::of(why));
                    ports.pop();
                }
                _ => {}
            }
        }
        match (ports.as_slice(), dropped) {
            ([port], _) => FrameOutput::Port(self.indices.of(port)),
            ([], Some(why)) => FrameOutput::Discarded(why),
            ([], None) => FrameOutput::Unknown,
            (several, _) => FrameOutput::Several(several.len() as u32),
        }
    }

    /// Sends the counters of all ports.
    fn counters(&mut self, all: &AllStats) {
        let names: std::collections::HashSet<&str> = all.ports.iter().map(|port| port.name.as_str()).collect();
        self.indices.retain(|name| names.contains(name));
        self.sources.retain(|name, _| names.contains(name.as_str()));
        for port in &all.ports {
            let source = self.sources.entry(port.name.clone()).or_default();
            source.counters = source.counters.wrapping_add(1);
            let sample = CounterSample {
                sequence: source.counters,
                port: self.indices.of(&port.name),
                name: &port.name,
                is_up: port.state == PortState::Open,
                input: traffic(&port.ingress, &port.in_drops),
                output: traffic(&port.egress, &port.out_drops),
            };
            self.sender.put(&sample.encode());
        }
        self.sender.flush();
    }
}

fn traffic(rings: &[RingStats], drops: &netvale_control::types::Drops) -> PortTraffic {
    let sum = |of: fn(&RingStats) -> u64| rings.iter().map(of).fold(0, u64::wrapping_add);
    PortTraffic { bytes: sum(|ring| ring.bytes), frames: sum(|ring| ring.frames), drops: drops.values().sum() }
}

/// Decodes pairs of hexadecimal digits up to the first invalid pair.
fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16);
    let pairs = hex.as_bytes().chunks_exact(2);
    pairs.map_while(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

#[cfg(test)]
mod tests;
