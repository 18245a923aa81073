//! Connections to the daemon: one for events and counters, and one for each trace from which sampled frames are taken.
//! A connection can have only one trace, and a trace covers ports on one switch at one *rate* ([`SamplingRates`]).
//! Therefore, each switch has one connection for each different rate of its ports.
//!
//! A trace covers the ports that exist at its start. When a port is attached, a new trace replaces it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use netvale_control::ErrorCode;
use netvale_control::client::{Client, ClientError};
use netvale_control::types::{AllStats, EventName, SubscribeParams, TraceBeginParams, TracedFrame};

use crate::daemon::connect;

/// The sampling rates of ports. A rate of N means that, on each ring, one in N frames is sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SamplingRates {
    /// Rate of all ports that are not in `ports`.
    pub one_of: u32,
    /// Rates of single ports, by the ports' full names.
    pub ports: BTreeMap<String, u32>,
}

impl SamplingRates {
    /// Returns, for each switch and rate, the names that must be traced: names of ports, or the name of the switch for
    /// all its ports.
    fn groups(&self, all: &AllStats) -> BTreeMap<(String, u32), Vec<String>> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for (switch, port) in all.ports.iter().filter_map(|port| Some((port.switch.as_ref()?, &port.name))) {
            let rate = self.ports.get(port).copied().unwrap_or(self.one_of);
            groups.entry((switch.clone(), rate)).or_default().push(port.clone());
        }
        let switches: Vec<String> = groups.keys().map(|(switch, _)| switch.clone()).collect();
        for ((switch, _), of) in &mut groups {
            if switches.iter().filter(|other| *other == switch).count() == 1 {
                // All ports have the same rate, so the switch is traced as a whole. Such a trace cannot fail because a
                // port is removed at the same time.
                *of = vec![switch.clone()];
            }
        }
        groups
    }
}

/// Connections to a daemon.
#[derive(Debug)]
pub struct Sessions {
    run_dir: PathBuf,
    rates: SamplingRates,
    /// If not empty, only these switches are sampled.
    only: Vec<String>,
    /// The connection on which counters are requested and events about ports arrive.
    main: Client,
    /// The connections for traces, by switch and rate.
    traces: BTreeMap<(String, u32), Client>,
    is_stale: bool,
}

impl Sessions {
    /// Connects, and begins traces of the existing ports.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn begin(run_dir: PathBuf, rates: SamplingRates, only: Vec<String>) -> Result<Sessions, ClientError> {
        let mut main = connect(&run_dir)?;
        let names = [EventName::PortAttached, EventName::DaemonContinued, EventName::EventsLost];
        let names = names.map(|name| name.as_str().to_owned()).to_vec();
        main.subscribe(SubscribeParams { names, only: only.clone(), ..SubscribeParams::default() })?;
        let mut sessions = Sessions { run_dir, rates, only, main, traces: BTreeMap::new(), is_stale: true };
        sessions.renew()?;
        sessions.warn_of_missing()?;
        Ok(sessions)
    }

    /// Warns if a port for which a rate was given does not exist, since its name may be misspelt.
    fn warn_of_missing(&mut self) -> Result<(), ClientError> {
        if self.rates.ports.is_empty() {
            return Ok(());
        }
        let all = self.stats()?;
        for name in self.rates.ports.keys().filter(|name| all.ports.iter().all(|port| port.name != **name)) {
            tracing::warn!("port {name}, which has its own sampling rate, does not exist yet");
        }
        Ok(())
    }

    /// Waits for an event for up to `limit`, and begins new traces if the ports have changed.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn wait(&mut self, limit: Duration) -> Result<(), ClientError> {
        if self.main.next_event(limit)?.is_some() {
            // All pending events are read, so that they cause only one renewal of the traces.
            while self.main.next_event(Duration::ZERO)?.is_some() {}
            self.is_stale = true;
        }
        if self.is_stale { self.renew() } else { Ok(()) }
    }

    /// Returns the counters of all sampled ports.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn stats(&mut self) -> Result<AllStats, ClientError> {
        let mut all = self.main.all_stats()?;
        all.ports.retain(|port| port.switch.as_ref().is_some_and(|switch| is_among(&self.only, switch)));
        Ok(all)
    }

    /// Calls `take` with each frame that was traced since the last call, and with the frame's sampling rate. Returns
    /// the number of traced frames that were lost.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn read(&mut self, mut take: impl FnMut(&TracedFrame, u32)) -> Result<u64, ClientError> {
        let mut lost = 0;
        let mut ended = Vec::new();
        for (key, client) in &mut self.traces {
            loop {
                let read = match client.trace_read() {
                    // The trace has ended, for example because another version replaced the daemon.
                    Err(ClientError::Refused(_)) => {
                        ended.push(key.clone());
                        break;
                    }
                    read => read?,
                };
                lost += read.lost;
                if read.frames.is_empty() {
                    break;
                }
                read.frames.iter().for_each(|frame| take(frame, key.1));
            }
        }
        self.is_stale |= !ended.is_empty();
        ended.iter().for_each(|key| _ = self.traces.remove(key));
        Ok(lost)
    }

    /// Begins a trace for each switch and each rate of its ports. Each trace replaces the previous trace for the same
    /// switch and rate.
    fn renew(&mut self) -> Result<(), ClientError> {
        self.is_stale = false;
        let all = self.stats()?;
        let groups = self.rates.groups(&all);
        self.traces.retain(|key, _| groups.contains_key(key));
        for (key, of) in groups {
            let before = self.traces.remove(&key);
            let goes_on = before.is_some();
            let mut client = before.map_or_else(|| connect(&self.run_dir), Ok)?;
            match client.trace_begin(TraceBeginParams { of, one_of: key.1, ..TraceBeginParams::default() }) {
                Ok(_) => _ = self.traces.insert(key, client),
                Err(ClientError::Refused(why)) => {
                    // If a port was removed since the list was read, the next attempt omits this port.
                    let has_gone = why.code == ErrorCode::NotFound as i32;
                    self.is_stale |= has_gone;
                    if !has_gone {
                        tracing::warn!("{}: cannot sample 1 in {} frames of all ports: {why}", key.0, key.1);
                    }
                    // The daemon has refused the new trace, and the previous trace continues.
                    goes_on.then(|| self.traces.insert(key, client));
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}

fn is_among(only: &[String], switch: &str) -> bool {
    only.is_empty() || only.iter().any(|name| name == switch)
}

#[cfg(test)]
mod tests {
    use netvale_control::types::PortDetails;

    use super::*;

    /// Objective: a switch is traced as a whole unless one of its ports has its own rate; in that case, each port is
    /// traced at its rate.
    #[test]
    fn a_port_is_traced_at_its_own_rate() {
        let port = |switch: Option<&str>, name: &str| PortDetails {
            name: name.into(),
            switch: switch.map(str::to_owned),
            ..PortDetails::default()
        };
        let names = [
            (Some("v0"), "v0:a"),
            (Some("v0"), "v0:b"),
            (Some("v0"), "v0:c"),
            (Some("v1"), "v1:a"),
            (None, "netmap:p"),
        ];
        let ports = names.map(|(switch, name)| port(switch, name)).to_vec();
        let all = AllStats { ports, ..AllStats::default() };
        let ports = [("v0:b".to_owned(), 10), ("v0:gone".to_owned(), 5)].into();
        let groups = SamplingRates { one_of: 100, ports }.groups(&all);
        let expected: [(_, &[&str]); 3] =
            [(("v0", 10), &["v0:b"]), (("v0", 100), &["v0:a", "v0:c"]), (("v1", 100), &["v1"])];
        assert_eq!(groups.len(), expected.len());
        for ((switch, rate), of) in expected {
            assert_eq!(groups[&(switch.to_owned(), rate)], of);
        }
    }
}
