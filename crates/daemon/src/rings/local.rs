//! Rings that programs open: the rings that a name denotes, and the holders of rings.

use std::ops::Range;
use std::os::fd::OwnedFd;

use netvale_control::attach::{AttachReply, PORT_OF_SWITCH};
use netvale_mem::region::{Binding, RingRanges};
use netvale_port::ring_out::RingEgress;
use netvale_portspec::{Directions, PortSpec, Rings as RingsSpec};
use rustix::io::Errno;

use super::holders::Holders;
use super::switched::PortRings;
use crate::refusal::{Refusal, refuse};

/// Discards all frames in a ring that has no reader.
pub(crate) fn empty(egress: &RingEgress) {
    let side = egress.host().side();
    let tail = egress.host().hwtail();
    side.csb.publish_head(tail, tail);
    side.ring.set_indices(tail, tail, tail);
}

/// The rings of a port that programs open, and the holders of these rings.
pub struct LocalRings {
    /// The memory and both ends of each ring.
    pub rings: PortRings,
    /// Holders of each tx ring.
    pub tx_held: Vec<Holders>,
    /// Holders of each rx ring.
    pub rx_held: Vec<Holders>,
    /// Whether the port joins two switches, so that the daemon forwards the frames in its rx rings to the second
    /// switch.
    pub is_joint: bool,
}

impl LocalRings {
    /// Creates the value from rings that no connection holds.
    pub(crate) fn unheld(rings: PortRings) -> LocalRings {
        let shape = rings.mem.shape();
        let nobody = |n: u32| vec![Holders::default(); n as usize];
        let tx_held = nobody(shape.tx_rings);
        let rx_held = nobody(shape.rx_rings);
        let local = LocalRings { rings, tx_held, rx_held, is_joint: false };
        local.look_who_reads();
        local
    }

    /// Sets, for each rx ring, whether the ring's egress accepts frames: it does if a program holds the ring, or if a
    /// second switch reads the ring.
    pub(crate) fn look_who_reads(&self) {
        for (egress, held) in self.rings.rx.iter().zip(&self.rx_held) {
            egress.host().side().offsets.set_idle(held.is_empty() && !self.is_joint);
        }
    }

    /// Sets whether the port joins two switches.
    pub(crate) fn set_joint(&mut self, is_joint: bool) {
        self.is_joint = is_joint;
        self.look_who_reads();
    }

    /// Iterates over the clients that hold at least one of the rings.
    pub(crate) fn clients(&self) -> impl Iterator<Item = u64> + '_ {
        self.tx_held.iter().chain(&self.rx_held).flat_map(Holders::clients)
    }

    /// Returns the rings that a specification denotes.
    pub(crate) fn wanted(&self, spec: &PortSpec) -> Result<RingRanges, Refusal> {
        let shape = self.rings.mem.shape();
        let (tx, rx) = match spec.rings {
            RingsSpec::AllNic => (0..shape.tx_rings, 0..shape.rx_rings),
            RingsSpec::OneNic(i) => {
                let i = u32::from(i.get());
                if i >= shape.tx_rings.max(shape.rx_rings) {
                    return refuse(
                        Errno::INVAL,
                        format!(
                            "ring {i} does not exist: the port has {} tx and {} rx rings, numbered from 0",
                            shape.tx_rings, shape.rx_rings
                        ),
                    );
                }
                let one = |n: u32| if i < n { i..i + 1 } else { 0..0 };
                (one(shape.tx_rings), one(shape.rx_rings))
            }
            _ => return refuse(Errno::INVAL, "a VALE port has no host rings; attach a TAP for the host stack"),
        };
        Ok(match spec.flags.directions {
            Directions::Both => RingRanges { tx, rx },
            Directions::Tx => RingRanges { tx, rx: 0..0 },
            Directions::Rx => RingRanges { tx: 0..0, rx },
        })
    }

    pub(crate) fn hold(&mut self, full: &str, rings: &RingRanges, client: u64, shares: bool) -> Result<(), Refusal> {
        let taken = |held: &[Holders], range: &Range<u32>| {
            held.get(range.start as usize..range.end as usize).is_some_and(|h| !h.iter().all(|h| h.admits(shares)))
        };
        if taken(&self.tx_held, &rings.tx) || taken(&self.rx_held, &rings.rx) {
            return refuse(
                Errno::BUSY,
                format!("{full} is already open; open another port, or one ring per program (-0, -1, …)"),
            );
        }
        self.renew(rings)?;
        let all = |held: &mut Vec<Holders>, range: &Range<u32>| {
            held.iter_mut().skip(range.start as usize).take(range.len()).for_each(|h| h.add(client, shares))
        };
        all(&mut self.tx_held, &rings.tx);
        all(&mut self.rx_held, &rings.rx);
        self.look_who_reads();
        Ok(())
    }

    /// Empties the rings that have no holder, as netmap does at registration, so that the next program finds neither
    /// unread nor unsent frames of the previous program.
    fn renew(&self, rings: &RingRanges) -> Result<(), Refusal> {
        let unheld = |held: &[Holders], i: u32| held.get(i as usize).is_some_and(Holders::is_empty);
        let rx = rings.rx.clone().filter(|&i| unheld(&self.rx_held, i));
        let rx: Vec<_> = rx.filter_map(|i| self.rings.rx.get(i as usize).cloned()).collect();
        let tx = rings.tx.clone().filter(|&i| unheld(&self.tx_held, i));
        let tx: Vec<_> = tx.filter_map(|i| Some(self.rings.tx.get(i as usize)?.side.clone())).collect();
        if rx.is_empty() && tx.is_empty() {
            return Ok(());
        }
        self.rings.mem.region().touch(move || {
            rx.iter().for_each(|egress| empty(egress));
            for side in tx {
                let sent = side.csb.head().min(side.ring.num_slots() - 1);
                side.ring.set_indices(sent, sent, side.csb.hwtail());
            }
        })?;
        Ok(())
    }

    pub(crate) fn bind(
        &self,
        full: &str,
        rings: &RingRanges,
        extra: u32,
    ) -> Result<(AttachReply, Vec<OwnedFd>, Binding), Refusal> {
        let name = full.strip_prefix("netmap:").unwrap_or(full);
        let binding = self.rings.mem.bind(name, rings.tx.clone(), rings.rx.clone(), extra)?;
        let (reply, fds) = self.reply(&binding, rings)?;
        Ok((reply, fds, binding))
    }

    /// Returns the reply to a client that is bound to these rings, and the descriptors to send with it.
    pub(crate) fn reply(&self, binding: &Binding, rings: &RingRanges) -> Result<(AttachReply, Vec<OwnedFd>), Refusal> {
        let (reply, fds) =
            self.rings.reply(binding.nifp(), binding.extra_bufs(), rings.tx.clone(), rings.rx.clone())?;
        Ok((AttachReply { port_flags: reply.port_flags | PORT_OF_SWITCH, ..reply }, fds))
    }

    /// Whether the client shares none of the rings that it holds with another client.
    pub(crate) fn holds_alone(&self, client: u64) -> bool {
        let shared = |h: &Holders| h.clients().any(|c| c == client) && h.clients().any(|c| c != client);
        !self.tx_held.iter().chain(&self.rx_held).any(shared)
    }

    pub(crate) fn let_go(&mut self, client: u64) {
        self.tx_held.iter_mut().chain(&mut self.rx_held).for_each(|h| h.remove(client));
        self.look_who_reads();
    }

    /// Whether no client holds any of the rings.
    pub(crate) fn is_unheld(&self) -> bool {
        self.tx_held.iter().chain(&self.rx_held).all(Holders::is_empty)
    }
}
