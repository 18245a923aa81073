//! Many senders or many receivers that take turns on one core, over any kind of ring.

use super::traffic::{Books, Ring};
use super::*;

/// Number of the first sending station; receiving stations count from 0.
pub const FIRST_SENDER: u16 = 40_000;

/// The senders and receivers of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of sending ports.
    pub senders: u16,
    /// Number of receiving ports.
    pub receivers: u16,
    /// Number of stations behind each receiver.
    pub stations: u16,
    /// Whether senders change the destination station with each batch rather than with each frame.
    pub bursts: bool,
}

impl Plan {
    /// Returns the plan of a case: several senders and one receiver if the variant starts with `n-`, else one sender
    /// and several receivers. Behind each receiver are as many stations as the case has addresses, or one station if
    /// the case has no addresses.
    pub fn of(case: &Case) -> Self {
        let many = u16::try_from(case.ports.saturating_sub(1)).unwrap_or(u16::MAX).max(1);
        let stations = u16::try_from(case.addresses.unwrap_or(1)).unwrap_or(FIRST_SENDER).clamp(1, FIRST_SENDER);
        let bursts = case.variant == "1-to-n";
        if case.variant.starts_with("n-") {
            Self { senders: many, receivers: 1, stations, bursts }
        } else {
            Self { senders: 1, receivers: many, stations, bursts }
        }
    }

    /// Returns the stations behind receiver `index`.
    pub fn behind(self, index: u16) -> impl Iterator<Item = u16> {
        let first = index * self.stations;
        first..first + self.stations
    }

    /// Returns sender number `index`, which sends to all stations in turn.
    pub fn sender(self, index: u16, frame_bytes: u32, touch: Touch) -> Sender {
        let sender = Sender::new(FIRST_SENDER + index, (0, self.receivers * self.stations), frame_bytes, touch);
        if self.bursts { sender.in_bursts() } else { sender }
    }
}

/// The rings of all ports that one core serves.
pub struct Stations<T, R> {
    senders: Vec<(T, Sender)>,
    receivers: Vec<(R, Receiver)>,
    batch: u32,
    turn: usize,
    /// Number of frames sent but not received. Senders stop at `most`, so that no frame is dropped for lack of room.
    under_way: u64,
    most: u64,
}

impl<T: Ring, R: Ring> Stations<T, R> {
    /// Creates stations that send on the rings `tx`, whose buffers are filled here, and receive on the rings `rx`, with
    /// an empty virtio-net header of `hdr_len` bytes before each frame.
    pub fn new(plan: Plan, case: &Case, hdr_len: u32, touch: Touch, tx: Vec<T>, rx: Vec<R>) -> Self {
        let sender = |(index, ring): (u16, T)| {
            let mut sender = plan.sender(index, case.frame_bytes, touch).with_header(hdr_len);
            sender.fill(&ring);
            (ring, sender)
        };
        let receivers: Vec<_> = rx.into_iter().map(|ring| (ring, Receiver::new(touch).with_header(hdr_len))).collect();
        let room: u64 = receivers.iter().map(|(ring, _)| u64::from(ring.mem().num_slots()) - 1).sum();
        Self {
            senders: (0..).zip(tx).map(sender).collect(),
            receivers,
            batch: case.batch.max(1),
            turn: 0,
            under_way: 0,
            most: room,
        }
    }

    /// Sends a batch from the next sender, and takes up to a batch at every receiver. Returns the number of frames
    /// received.
    #[inline]
    pub fn round(&mut self) -> u64 {
        self.send();
        self.receive()
    }

    /// Sends a batch from the next sender, or as much of it as the receivers have room for. Sends nothing if that is
    /// less than half a batch.
    #[inline]
    pub fn send(&mut self) {
        let batch = u64::from(self.batch).min(self.most - self.under_way.min(self.most));
        // A very small batch would cost as much as a full batch.
        if batch < u64::from(self.batch / 2) {
            return;
        }
        if let Some((ring, sender)) = self.senders.get_mut(self.turn) {
            self.under_way += u64::from(sender.send(ring, batch as u32));
        }
        self.turn = if self.turn + 1 >= self.senders.len() { 0 } else { self.turn + 1 };
    }

    /// Takes up to a batch at every receiver. Returns the number of frames received.
    #[inline]
    pub fn receive(&mut self) -> u64 {
        let batch = self.batch;
        let taken = self.receivers.iter_mut().map(|(ring, receiver)| u64::from(receiver.receive(ring, batch))).sum();
        self.under_way = self.under_way.saturating_sub(taken);
        taken
    }

    /// Counts all frames under way as lost, so that senders no longer wait for them.
    pub fn forget_lost(&mut self) {
        self.under_way = 0;
    }

    /// Empties all rings without counting the frames as received. Returns their number.
    pub fn discard(&mut self) -> u32 {
        let empty = |ring: &mut R| {
            ring.sync();
            let held = ring.space();
            ring.advance(held);
            ring.sync();
            held
        };
        self.receivers.iter_mut().map(|(ring, _)| empty(ring)).sum()
    }

    /// Returns the counts so far, together with `dropped`, the count of dropped frames.
    pub fn books(&self, dropped: u64) -> Books {
        let sending = self.senders.iter().map(|(ring, _)| ring.mem().num_slots());
        let receiving = self.receivers.iter().map(|(ring, _)| ring.mem().num_slots());
        Books {
            sent: self.senders.iter().map(|(_, sender)| sender.sent).sum(),
            received: self.receivers.iter().map(|(_, receiver)| receiver.received).sum(),
            wrong: self.receivers.iter().map(|(_, receiver)| receiver.wrong).sum(),
            dropped,
            in_flight: sending.chain(receiving).map(u64::from).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Measure;
    use crate::scenarios::vale;

    /// Objective: every receiver has stations of its own, and a sender reaches all of them.
    #[test]
    fn every_receiver_has_stations_of_its_own() {
        let cases = vale::SCENARIO.cases(&Measure::default());
        let find = |variant: &str, ports| {
            Plan::of(cases.iter().find(|case| case.variant == variant && case.ports == ports).expect("listed"))
        };
        assert_eq!(find("1-to-n", 8), Plan { senders: 1, receivers: 7, stations: 1, bursts: true });
        assert_eq!(find("n-to-1", 8), Plan { senders: 7, receivers: 1, stations: 1, bursts: false });
        assert_eq!(find("daemon", 2), Plan { senders: 1, receivers: 1, stations: 1, bursts: false });
        let plan = Plan { senders: 1, receivers: 3, stations: 2, bursts: false };
        assert_eq!((0..3).flat_map(|index| plan.behind(index)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }
}
