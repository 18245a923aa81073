//! AF_PACKET over a veth pair: the kernel's raw path without a switch.

use crate::frames::frame;
use crate::peers::packets;
use crate::prelude::*;
use crate::sys::rawsock::{MAX_BATCH, PacketSocket, Role, batch};

const NAME: &str = "af-packet-veth";

/// Returns the peer: a sender and a receiver at the two ends of a veth pair.
pub fn peers() -> Vec<Contender> {
    let fits = |case: &Case| {
        case.is_across_a_switch() || (case.scenario == "pipe" && case.touches()) || case.is_crowded("pipe")
    };
    contenders! {
        NAME, "AF_PACKET sender and receiver at the ends of a veth pair, no switch; one direction";
        &[NETWORKS, TWO], fits, start;
    }
}

fn start(case: &Case, cores: Cores) -> Result<Session> {
    let namespace = Netns::with_wire()?;
    if case.foreign.is_some() {
        return packets::start(case, namespace);
    }
    let (mut sender, mut receiver) =
        namespace.inside(|| Ok((PacketSocket::open("p0", Role::Send)?, PacketSocket::open("p1", Role::Receive)?)))?;
    let own = case.clone();
    let bytes = frame(1, 0, case.frame_bytes);
    let batch = batch(case);
    let measuring = move |window| {
        let jobs = vec![
            Job::new(cores.0, || sender.send(&bytes, batch).map(|_| 0)),
            Job::new(cores.1, || receiver.receive(MAX_BATCH)),
        ];
        let (done, beside) = run_pinned(jobs, window)?;
        Ok(Sample::new(own.rate(total_rate(NAME, &done)?), beside))
    };
    let words = format!("sender on CPU {}, receiver on CPU {}", cores.0, cores.1);
    Ok(Session::new(words, true, measuring).keeping(namespace))
}
