//! AF_PACKET over a veth pair: the kernel's raw path without a switch.

use std::time::Duration;

use crate::case::Case;
use crate::contender::{Contender, Env, Sample, Session};
use crate::error::{Result, Skip};
use crate::peers::frames::{self, frame};
use crate::peers::packets::Packets;
use crate::sys::netns::Netns;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role};
use crate::sys::threads::{Job, run_pinned, total_rate};
use crate::{crowd, pin, sys};

/// The peer: a sender at one end of a veth pair, a receiver at the other.
#[derive(Clone, Copy, Debug)]
pub struct AfPacket;

impl Contender for AfPacket {
    fn name(&self) -> &str {
        "af-packet-veth"
    }

    fn about(&self) -> &str {
        "AF_PACKET sender and receiver at the ends of a veth pair, no switch; one direction"
    }

    fn fits(&self, case: &Case) -> bool {
        case.is_across_a_switch() || (case.scenario == "pipe" && case.touches()) || case.is_crowded("pipe")
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        sys::need_root("network namespaces")?;
        sys::need_program("ip", "iproute2")?;
        pin::need(2, &env.cores)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = env.two_cores()?;
        let namespace = Netns::new()?;
        frames::silence_ipv6(&namespace)?;
        namespace.ip("link add p0 type veth peer name p1")?;
        namespace.ip("link set p0 up")?;
        namespace.ip("link set p1 up")?;
        if case.foreign.is_some() {
            return crowd::beside(case, Box::new(Packets::start(case, namespace)?));
        }
        let (sender, receiver) = namespace
            .inside(|| Ok((PacketSocket::open("p0", Role::Send)?, PacketSocket::open("p1", Role::Receive)?)))?;
        Ok(Box::new(Pair { case: case.clone(), cores, sender, receiver, _namespace: namespace }))
    }
}

struct Pair {
    case: Case,
    cores: (usize, usize),
    sender: PacketSocket,
    receiver: PacketSocket,
    _namespace: Netns,
}

impl Session for Pair {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let batch = frames::batch(&self.case);
        let bytes = frame(0, 1, self.case.frame_bytes);
        let (sender, receiver) = (&mut self.sender, &mut self.receiver);
        let jobs = vec![
            Job::new(self.cores.0, move || sender.send(&bytes, batch).map(|_| 0)),
            Job::new(self.cores.1, move || receiver.receive(MAX_BATCH)),
        ];
        let (done, beside) = run_pinned(jobs, window)?;
        let rate = total_rate("af-packet-veth", &done)?;
        Ok(Sample::new(frames::in_unit(&self.case, rate), beside))
    }

    fn cores(&self) -> String {
        format!("sender {}, receiver {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        true
    }
}
