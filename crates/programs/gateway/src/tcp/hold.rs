//! How a connection waits for its guest's rate limit ([`FlowHolds`]), in each direction.

use std::time::{Duration, Instant};

use crate::core::GatewayCore;
use crate::guests::GuestId;
use crate::rates::{GrantedFlow, RateTurn, RateWay};
use crate::slots::SlotId;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum FlowHold {
    /// The connection may ask for bytes to pass.
    #[default]
    Free,
    /// The connection was allowed no bytes, and must join its guest's queue.
    Needs,
    /// The connection waits in its guest's queue.
    Waits(RateTurn),
    /// The connection's turn in the queue has come.
    Granted,
}

/// Whether a connection waits for its guest's rate limit, in each direction, and how long it has waited.
#[derive(Clone, Default, Debug)]
pub struct FlowHolds {
    ways: [FlowHold; 2],
    /// Id of the guest's limits when they were last looked up; `None` if the guest has no limits.
    state: Option<SlotId>,
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
        self.state = core.rates.state(who, &core.flows.ports, core.now);
        let most = self.state.map_or(usize::MAX, |state| core.rates.allowance(state, way, granted, core.now));
        if most == 0 {
            *hold = FlowHold::Needs;
        }
        most
    }

    /// Counts bytes that have passed against the guest's rate limit.
    pub fn spend(&self, core: &mut GatewayCore, way: RateWay, bytes: usize) {
        if let Some(state) = self.state {
            core.rates.spend(state, way, bytes);
        }
    }

    /// Returns the minimum number of bytes that pass in one turn; a very large number if there is no limit.
    pub fn piece(&self, core: &mut GatewayCore, way: RateWay) -> usize {
        self.state.map_or(usize::MAX / 2, |state| core.rates.piece(state, way))
    }

    /// Notes that bytes are left for which the connection has to wait.
    pub fn need(&mut self, way: RateWay) {
        let hold = &mut self.ways[way as usize];
        if *hold == FlowHold::Free {
            *hold = FlowHold::Needs;
        }
    }

    /// Returns whether the connection waits, or must wait.
    pub fn is_held(&self, way: RateWay) -> bool {
        matches!(self.ways[way as usize], FlowHold::Needs | FlowHold::Waits(_))
    }

    /// Puts the connection into its guest's queue, if it must wait.
    pub fn queue(&mut self, core: &mut GatewayCore, who: GuestId, flow: SlotId) {
        for way in RateWay::BOTH {
            let hold = &mut self.ways[way as usize];
            if *hold == FlowHold::Needs {
                // The guest's rate state may have been removed since the connection asked, by a change of rules or
                // because the guest was idle.
                let state = core.rates.state(who, &core.flows.ports, core.now);
                let wait = |state| core.rates.wait(state, GrantedFlow { flow, way }, core.now, &mut core.timers);
                *hold = state.and_then(wait).map_or(FlowHold::Free, FlowHold::Waits);
            }
        }
        let waits = RateWay::BOTH.into_iter().any(|way| self.is_held(way));
        if waits {
            self.since.get_or_insert(core.now);
        }
    }

    /// Ends the wait in one direction, since the connection's turn has come.
    pub fn grant(&mut self, way: RateWay, now: Instant) {
        self.ways[way as usize] = FlowHold::Granted;
        self.count(now);
    }

    /// Leaves the guest's queues, since the connection has ended.
    pub fn leave(&mut self, core: &mut GatewayCore) {
        for way in RateWay::BOTH {
            if let FlowHold::Waits(turn) = std::mem::take(&mut self.ways[way as usize]) {
                core.rates.leave(way, turn);
            }
        }
        self.count(core.now);
    }

    /// Returns how long the connection has waited, excluding a wait that is still in progress.
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
