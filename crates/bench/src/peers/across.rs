//! What all contenders with two hosts measure alike: a stream of TCP, and frames one way.

use std::time::Duration;

use crate::contender::{Sample, Session};
use crate::disturb::Disturbance;
use crate::error::{BenchError, Result};
use crate::peers::dpdk::Part;
use crate::peers::iperf::Iperf;
use crate::peers::underlay;
use crate::sys::netns::Netns;
use crate::sys::threads::Done;

/// One stream of TCP between stations of two hosts.
pub struct Stream<H> {
    iperf: Iperf,
    cores: (usize, usize),
    context: Vec<(String, String)>,
    // The stations' interfaces go with the hosts: dropped last.
    hosts: H,
}

impl<H: Part> Stream<H> {
    /// Starts the server in the second of two stations. The hosts are stopped until a measurement.
    ///
    /// # Errors
    /// iperf3 does not start, or a host's process has ended.
    pub fn start(hosts: H, [client, server]: [Netns; 2], cores: (usize, usize)) -> Result<Self> {
        let iperf = Iperf::start(client, server, &underlay::station(1), cores)?;
        let iperf = hosts.pids().into_iter().fold(iperf, Iperf::beside);
        hosts.freeze()?;
        Ok(Self { iperf, cores, context: Vec::new(), hosts })
    }

    /// A further fact for the record.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.context.push((name.into(), value.into()));
        self
    }
}

impl<H: Part> Session for Stream<H> {
    fn resume(&mut self) -> Result<()> {
        self.hosts.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.hosts.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        self.iperf.measure(window)
    }

    fn cores(&self) -> String {
        format!("the client's host on {}, the server's on {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        true
    }

    fn processes(&self) -> Vec<u32> {
        self.hosts.pids()
    }

    fn context(&self) -> Vec<(String, String)> {
        self.context.clone()
    }
}

/// What a sender at one host and a receiver at the other have done.
pub struct OneWay {
    /// Frames received a second.
    pub received: f64,
    /// Frames that were sent and not received, per cent.
    pub lost_percent: f64,
    /// What disturbed them. That programs wait for their own host's switch is what is measured.
    pub beside: Disturbance,
}

impl OneWay {
    /// Of the sender's and the receiver's threads; `who` is what lies between, of which `wrong` frames were not what
    /// was sent.
    ///
    /// # Errors
    /// Nothing was received, or something wrong.
    pub fn of(done: &[Done], beside: Disturbance, who: &str, wrong: u64) -> Result<OneWay> {
        if wrong > 0 {
            return Err(BenchError::WrongBytes { who: who.into(), frames: wrong });
        }
        let [sent, received] = [done.first(), done.last()].map(|one| one.map_or(0.0, Done::rate));
        if received <= 0.0 {
            return Err(BenchError::NoTraffic(who.into()));
        }
        let lost_percent = (100.0 * (1.0 - received / sent.max(1.0))).max(0.0);
        let beside = Disturbance { foreign_percent: beside.foreign_percent, ..Disturbance::default() };
        Ok(OneWay { received, lost_percent, beside })
    }

    /// Where the two run.
    #[must_use]
    pub fn cores((sender, receiver): (usize, usize)) -> String {
        format!("the sender's host on {sender}, the receiver's on {receiver}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: rates and losses are those of the two threads; nothing received, and wrong bytes, are errors that
    /// name who lost them.
    #[test]
    fn one_way() {
        let done = |count| Done { count, elapsed: Duration::from_secs(1) };
        let beside = Disturbance { foreign_percent: 7.0, waited_percent: 50.0, ..Disturbance::default() };
        let both = OneWay::of(&[done(200), done(150)], beside, "the tunnel", 0).expect("frames came");
        assert_eq!((both.received, both.lost_percent), (150.0, 25.0));
        assert_eq!((both.beside.foreign_percent, both.beside.waited_percent), (7.0, 0.0));
        for (received, wrong) in [(0, 0), (1, 1)] {
            let error = OneWay::of(&[done(1), done(received)], Disturbance::default(), "the tunnel", wrong).err();
            assert!(error.is_some_and(|error| error.to_string().contains("the tunnel")));
        }
    }
}
