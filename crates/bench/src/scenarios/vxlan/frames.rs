//! One way across a tunnel: a sender at one host's switch, a receiver at the other's. Both sleep when there is nothing
//! to do, and so leave their core to the host's daemon.

use std::time::Duration;

use netvale::{Interest, Port};

use super::hosts::Hosts;
use crate::case::Case;
use crate::contender::{Sample, Session};
use crate::error::Result;
use crate::peers::across::OneWay;
use crate::peers::dpdk::Part;
use crate::scenarios::own::failed;
use crate::scenarios::stations::FIRST_SENDER;
use crate::scenarios::traffic::{Receiver, SLOTS, Sender, Touch, frame};
use crate::sys::threads::{Job, run_pinned_with};

/// The longest sleep of the programs.
const PATIENCE: Duration = Duration::from_millis(10);
/// The station that receives.
const STATION: u16 = 0;

/// Both programs, and the hosts.
pub struct Frames {
    case: Case,
    cores: (usize, usize),
    sender: (Port, Sender),
    receiver: (Port, Receiver),
    lost_percent: f64,
    // Ports belong to daemons: dropped in this order.
    hosts: Hosts,
}

impl Frames {
    /// Opens a port at each host; the switches and tunnels learn where the receiver is.
    ///
    /// # Errors
    /// A daemon's refusal, or no frame passes.
    pub fn start(case: &Case, hosts: Hosts, cores: (usize, usize)) -> Result<Self> {
        let touch = Touch::of(case);
        let mut from = hosts.daemon(0).open("vale0:from", SLOTS)?;
        let mut to = hosts.daemon(1).open("vale0:to", SLOTS)?;
        let mut sender = Sender::new(FIRST_SENDER, (STATION, 1), case.frame_bytes, touch);
        sender.fill(&from.tx()[0]);
        // To an address that nobody has: it goes to all, through the tunnel.
        to.tx()[0].send(&frame(u16::MAX, STATION, case.frame_bytes));
        to.sync();
        hosts.daemon(0).wait_for_frames(1)?;
        hosts.freeze()?;
        Ok(Self {
            case: case.clone(),
            cores,
            sender: (from, sender),
            receiver: (to, Receiver::new(touch)),
            lost_percent: 0.0,
            hosts,
        })
    }
}

/// Waits until there is room, sends a batch.
fn send((port, sender): &mut (Port, Sender), batch: u32) -> Result<u64> {
    port.wait(Interest::Tx, Some(PATIENCE)).map_err(|error| failed(&error))?;
    Ok(sender.send(&mut port.tx()[0], batch).into())
}

/// Waits until there are frames, takes up to a batch.
fn receive((port, receiver): &mut (Port, Receiver), batch: u32) -> Result<u64> {
    port.wait(Interest::Rx, Some(PATIENCE)).map_err(|error| failed(&error))?;
    Ok(receiver.receive(&mut port.rx()[0], batch).into())
}

impl Session for Frames {
    fn resume(&mut self) -> Result<()> {
        self.hosts.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.hosts.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let (batch, pids) = (self.case.batch.max(1), self.hosts.pids());
        let (sender, receiver) = (&mut self.sender, &mut self.receiver);
        let jobs = vec![
            Job::new(self.cores.0, move || send(sender, batch)),
            Job::new(self.cores.1, move || receive(receiver, batch)),
        ];
        let (done, beside) = run_pinned_with(jobs, window, &pids, &[])?;
        let one_way = OneWay::of(&done, beside, "netvale's tunnel", self.receiver.1.wrong)?;
        self.lost_percent = one_way.lost_percent;
        Ok(Sample::new(self.case.rate(one_way.received), one_way.beside))
    }

    fn cores(&self) -> String {
        OneWay::cores(self.cores)
    }

    fn touched(&self) -> bool {
        self.case.touches()
    }

    fn processes(&self) -> Vec<u32> {
        self.hosts.pids()
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![
            ("slots".into(), SLOTS.to_string()),
            ("bytes".into(), Touch::of(&self.case).words().into()),
            ("lost_percent".into(), format!("{:.2}", self.lost_percent)),
        ]
    }
}
