//! The daemon's traces, from which sampled frames come: one for each switch, as a connection has one trace, and a trace is of one switch.
//!
//! A trace is of the ports that are there when it begins. Another one takes its place when a port is attached.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use netvale_control::client::{Client, ClientError};
use netvale_control::types::{AllStats, EventName, SubscribeParams, TraceBeginParams, TracedFrame};

use crate::daemon::connect;

/// Connections to a daemon.
#[derive(Debug)]
pub struct Sessions {
    run_dir: PathBuf,
    one_of: u32,
    /// Only these switches, if any are named.
    only: Vec<String>,
    /// Asks for counters, and is told of ports.
    main: Client,
    traces: BTreeMap<String, Client>,
    is_stale: bool,
}

impl Sessions {
    /// Connects, and begins traces of ports that are there.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn begin(run_dir: PathBuf, one_of: u32, only: Vec<String>) -> Result<Sessions, ClientError> {
        let mut main = connect(&run_dir)?;
        let names = [EventName::PortAttached, EventName::DaemonContinued, EventName::EventsLost];
        let names = names.map(|name| name.as_str().to_owned()).to_vec();
        main.subscribe(SubscribeParams { names, only: only.clone(), ..SubscribeParams::default() })?;
        let mut sessions = Sessions { run_dir, one_of, only, main, traces: BTreeMap::new(), is_stale: true };
        sessions.renew()?;
        Ok(sessions)
    }

    /// Lets time pass, and begins traces anew if there are other ports by then.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn wait(&mut self, limit: Duration) -> Result<(), ClientError> {
        if self.main.next_event(limit)?.is_some() {
            // Those of one moment together.
            while self.main.next_event(Duration::ZERO)?.is_some() {}
            self.is_stale = true;
        }
        if self.is_stale { self.renew() } else { Ok(()) }
    }

    /// Counters of all ports that are sampled.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn stats(&mut self) -> Result<AllStats, ClientError> {
        let mut all = self.main.all_stats()?;
        all.ports.retain(|port| port.switch.as_ref().is_some_and(|switch| is_among(&self.only, switch)));
        Ok(all)
    }

    /// Hands over all frames that were traced since the last time. Returns how many more there were.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn read(&mut self, mut take: impl FnMut(&TracedFrame)) -> Result<u64, ClientError> {
        let mut lost = 0;
        for client in self.traces.values_mut() {
            loop {
                let read = match client.trace_read() {
                    // It ended, for instance as another version has taken the daemon's place.
                    Err(ClientError::Refused(_)) => {
                        self.is_stale = true;
                        break;
                    }
                    read => read?,
                };
                lost += read.lost;
                if read.frames.is_empty() {
                    break;
                }
                read.frames.iter().for_each(&mut take);
            }
        }
        Ok(lost)
    }

    /// Begins a trace for each switch that has ports.
    fn renew(&mut self) -> Result<(), ClientError> {
        self.is_stale = false;
        let switches: Vec<String> = self.main.switches()?.into_iter().map(|switch| switch.name).collect();
        self.traces.retain(|name, _| switches.contains(name));
        for name in switches.into_iter().filter(|name| is_among(&self.only, name)) {
            let mut client = self.traces.remove(&name).map_or_else(|| connect(&self.run_dir), Ok)?;
            let (of, one_of) = (vec![name.clone()], self.one_of);
            match client.trace_begin(TraceBeginParams { of, one_of, ..TraceBeginParams::default() }) {
                Ok(_) => _ = self.traces.insert(name, client),
                Err(ClientError::Refused(why)) => tracing::warn!("{name} is not sampled: {why}"),
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}

fn is_among(only: &[String], switch: &str) -> bool {
    only.is_empty() || only.iter().any(|name| name == switch)
}
