//! The state that `top` shows and that its keys change. This module has no input or output.

use netvale_control::types::{AllStats, PortInfo};

use super::drops::{self, DropRow};
use super::latency::{self, LatencyRow};
use super::workers::{self, WorkerShares};
use super::{SortColumn, TopView, next};
use crate::rates::{self, DaemonRates, PortRates};

/// The state of a running `top`.
#[derive(Default)]
pub struct TopState {
    pub sort: SortColumn,
    pub paused: bool,
    pub view: TopView,
    /// Index of the first line that is shown. In the view of ports, a line is a port.
    pub scroll: usize,
    /// Name of the port whose rings are shown; `None` if none is chosen.
    pub chosen: Option<String>,
    /// The chosen port with its rings; `None` if the port does not exist.
    pub port: Option<PortInfo>,
    pub drops: Vec<DropRow>,
    pub latency: Vec<LatencyRow>,
    pub workers: Vec<WorkerShares>,
    /// The rates between the last two readings, sorted.
    pub rates: DaemonRates,
    last: Option<AllStats>,
}

impl TopState {
    /// Returns the state before the first reading.
    pub fn new(sort: SortColumn) -> Self {
        Self { sort, ..Self::default() }
    }

    /// Adds a reading. Returns whether rates are known: they need two readings.
    pub fn take(&mut self, sample: AllStats) -> bool {
        let last = self.last.as_ref();
        let rates = last.and_then(|last| rates::between(last, &sample));
        self.workers = last.map_or_else(Vec::new, |last| workers::between(last, &sample));
        self.drops = drops::rows(last, &sample);
        self.latency = latency::rows(last, &sample);
        self.last = Some(sample);
        let known = rates.is_some();
        self.rates = rates.unwrap_or_default();
        self.order();
        known
    }

    pub fn show(&mut self, view: TopView) {
        self.view = view;
        self.scroll = 0;
        self.port = None;
        if self.chosen.is_none() {
            self.chosen = self.rates.ports.first().map(|port| port.port.clone());
        }
    }

    /// Selects the next or previous port by name; after the last port, the first follows.
    pub fn choose(&mut self, forward: bool) {
        let mut names: Vec<_> = self.rates.ports.iter().map(|port| &port.port).collect();
        names.sort();
        let known = self.chosen.as_ref();
        let next = if forward {
            names.iter().find(|name| Some(**name) > known).or(names.first())
        } else {
            names.iter().rev().find(|name| Some(**name) < known).or(names.last())
        };
        self.chosen = next.map(|name| (*name).clone());
        self.port = None;
        self.scroll = 0;
    }

    pub fn next_sort(&mut self) {
        self.sort = next(self.sort);
        self.order();
    }

    /// Scrolls by `by` lines, but not past the first or last line.
    pub fn scroll_by(&mut self, by: isize) {
        let lines = match self.view {
            TopView::Ports => self.rates.ports.len(),
            TopView::Drops => self.drops.len(),
            TopView::Workers => self.workers.len(),
            TopView::Latency => self.latency.len(),
            // The view of rings has a title, a legend, and three lines per ring.
            TopView::Rings => 2 + 3 * self.port.as_ref().map_or(0, |port| port.rings.len()),
        };
        let last = lines.saturating_sub(1);
        self.scroll = self.scroll.saturating_add_signed(by).min(last);
    }

    /// Returns the sums of the rates of all ports.
    pub fn total(&self) -> PortRates {
        // If there are no ports, `Iterator::sum` would return -0.
        let sum = |rate: fn(&PortRates) -> f64| self.rates.ports.iter().map(rate).fold(0.0, |sum, rate| sum + rate);
        PortRates {
            port: "total".to_owned(),
            in_pps: sum(|port| port.in_pps),
            in_bps: sum(|port| port.in_bps),
            out_pps: sum(|port| port.out_pps),
            out_bps: sum(|port| port.out_bps),
            drops_ps: sum(|port| port.drops_ps),
            kicks_per_packet: None,
        }
    }

    /// Sorts by the sort key, largest value first. Rows with equal values are sorted by name, so that their order does
    /// not change.
    fn order(&mut self) {
        let key = match self.sort {
            SortColumn::Rate => PortRates::pps,
            SortColumn::Drops => |port: &PortRates| port.drops_ps,
            SortColumn::Name => |_: &PortRates| 0.0,
        };
        self.rates.ports.sort_by(|a, b| key(b).total_cmp(&key(a)).then_with(|| a.port.cmp(&b.port)));
        self.scroll_by(0);
    }
}

#[cfg(test)]
mod tests {
    use netvale_control::types::{PortDetails, RingStats};

    use super::*;

    fn sample(now_ns: u64, ports: &[(&str, u64, u64)]) -> AllStats {
        let port = |&(name, frames, drops): &(&str, u64, u64)| PortDetails {
            name: name.into(),
            ingress: vec![RingStats { frames, ..RingStats::default() }],
            in_drops: [("rate".to_owned(), drops)].into(),
            ..PortDetails::default()
        };
        AllStats { now_ns, ports: ports.iter().map(port).collect(), ..AllStats::default() }
    }

    fn names(state: &TopState) -> Vec<&str> {
        state.rates.ports.iter().map(|port| port.port.as_str()).collect()
    }

    /// Objective: rates are known from the second reading on, and each sort key sorts correctly.
    #[test]
    fn each_sort_key_sorts_correctly() {
        let mut state = TopState::new(SortColumn::Rate);
        assert!(!state.take(sample(0, &[])));
        assert!(state.take(sample(1_000_000_000, &[("b", 5, 0), ("a", 5, 1), ("c", 9, 7)])));
        assert_eq!(names(&state), ["c", "a", "b"]);
        state.next_sort();
        assert_eq!((state.sort, names(&state)), (SortColumn::Drops, vec!["c", "a", "b"]));
        state.next_sort();
        assert_eq!((state.sort, names(&state)), (SortColumn::Name, vec!["a", "b", "c"]));
        assert_eq!((state.total().in_pps, state.total().drops_ps), (19.0, 8.0));
    }

    /// Objective: left and right go through all ports by name, even if the chosen port no longer exists.
    #[test]
    fn left_and_right_go_through_all_ports() {
        let mut state = TopState::new(SortColumn::Rate);
        state.take(sample(0, &[]));
        state.choose(true);
        assert_eq!(state.chosen, None);
        state.take(sample(1, &[("a", 1, 0), ("b", 2, 0), ("c", 3, 0)]));
        state.show(TopView::Rings);
        let mut chosen = |forward| {
            state.choose(forward);
            state.chosen.clone().unwrap_or_default()
        };
        assert_eq!([chosen(true), chosen(true), chosen(true), chosen(true)], ["a", "b", "c", "a"]);
        assert_eq!([chosen(false), chosen(false)], ["c", "b"]);
        state.take(sample(2, &[("a", 1, 0), ("c", 3, 0)]));
        state.choose(true);
        assert_eq!(state.chosen.as_deref(), Some("c"));
    }

    /// Objective: the list never scrolls past its end, even when it gets shorter.
    #[test]
    fn the_list_never_scrolls_past_its_end() {
        let mut state = TopState::new(SortColumn::Name);
        state.take(sample(0, &[]));
        state.take(sample(1, &[("a", 0, 0), ("b", 0, 0), ("c", 0, 0)]));
        state.scroll_by(9);
        assert_eq!(state.scroll, 2);
        state.take(sample(2, &[("a", 0, 0)]));
        assert_eq!(state.scroll, 0);
        state.scroll_by(-1);
        assert_eq!(state.scroll, 0);
    }
}
