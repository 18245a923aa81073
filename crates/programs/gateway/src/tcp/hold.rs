//! How a connection waits for its guest's rate ([`FlowHolds`]), in each direction.

use std::time::{Duration, Instant};

use crate::core::GatewayCore;
use crate::guests::GuestId;
use crate::rates::{GrantedFlow, RateWay};
use crate::slots::SlotId;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum FlowHold {
    /// The connection may ask for bytes to pass.
    #[default]
    Free,
    /// It was allowed no bytes, and is to wait.
    Needs,
    /// It waits in its guest's queue; this is the number of its turn.
    Waits(u64),
    /// Its turn has come.
    Granted,
}

/// Whether a connection waits for its guest's rate, in each direction, and how long it has waited.
#[derive(Clone, Default, Debug)]
pub struct FlowHolds {
    ways: [FlowHold; 2],
    since: Option<Instant>,
    waited: Duration,
}

impl FlowHolds {
    /// Returns how many bytes may pass now: as many as the guest's rate allows, or 0 if the connection has to wait.
    pub fn allowance(&mut self, core: &mut GatewayCore, who: GuestId, way: RateWay) -> usize {
        let hold = &mut self.ways[way as usize];
        if matches!(hold, FlowHold::Waits(_)) {
            return 0;
        }
        let granted = std::mem::take(hold) == FlowHold::Granted;
        let most = core.rates.allowance(who, way, granted, &core.flows.ports, core.now);
        if most == 0 {
            *hold = FlowHold::Needs;
        }
        most
    }

    /// Notes that bytes are left for which the connection has to wait.
    pub fn need(&mut self, way: RateWay) {
        let hold = &mut self.ways[way as usize];
        if *hold == FlowHold::Free {
            *hold = FlowHold::Needs;
        }
    }

    /// Returns whether the connection waits, or is to wait.
    pub fn is_held(&self, way: RateWay) -> bool {
        matches!(self.ways[way as usize], FlowHold::Needs | FlowHold::Waits(_))
    }

    /// Puts the connection into its guest's queue, if it is to wait.
    pub fn queue(&mut self, core: &mut GatewayCore, who: GuestId, flow: SlotId) {
        for way in RateWay::BOTH {
            let hold = &mut self.ways[way as usize];
            if *hold == FlowHold::Needs {
                let turn = core.rates.wait(who, GrantedFlow { flow, way }, core.now, &mut core.timers);
                *hold = turn.map_or(FlowHold::Free, FlowHold::Waits);
            }
        }
        let waits = RateWay::BOTH.into_iter().any(|way| self.is_held(way));
        if waits {
            self.since.get_or_insert(core.now);
        }
    }

    /// Ends the waiting in a direction: it is the connection's turn.
    pub fn grant(&mut self, way: RateWay, now: Instant) {
        self.ways[way as usize] = FlowHold::Granted;
        self.count(now);
    }

    /// Leaves the guest's queues, since the connection has ended.
    pub fn leave(&mut self, core: &mut GatewayCore, who: GuestId) {
        for way in RateWay::BOTH {
            if let FlowHold::Waits(turn) = std::mem::take(&mut self.ways[way as usize]) {
                core.rates.leave(who, way, turn);
            }
        }
        self.count(core.now);
    }

    /// Returns for how long the connection has waited, without the present time of waiting.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    fn count(&mut self, now: Instant) {
        if !RateWay::BOTH.into_iter().any(|way| self.is_held(way)) {
            let since = self.since.take();
            self.waited += since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        }
    }
}
