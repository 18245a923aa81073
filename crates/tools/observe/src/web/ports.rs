//! The list of the daemon's *ports*, and the details of single ports ([`WebPorts`]). Each answer is cached for a short
//! time, for all clients that request the same.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use netvale_control::client::{Client, ClientError, ClientErrorKind};
use serde::Serialize;

use crate::daemon::ObservedDaemon;
use crate::http::answer::HttpStatus;

/// Maximum age of the cached list of ports. Names and owners rarely change.
const LIST_FRESH: Duration = Duration::from_secs(2);
/// Maximum age of a port's cached details. The state of the port's rings changes quickly.
const PORT_FRESH: Duration = Duration::from_millis(200);
/// Maximum number of requests for single ports per second. For each request, the daemon reads all slots of the port.
const MOST_A_SECOND: u32 = 40;

/// An answer as JSON, or the status and the reason of a failure.
pub type PortsAnswer = Result<Arc<str>, (HttpStatus, String)>;

/// A cache of the daemon's answers about its ports.
#[derive(Debug)]
pub struct WebPorts {
    state: Mutex<PortsState>,
}

#[derive(Debug)]
struct PortsState {
    daemon: ObservedDaemon,
    list: Option<(Instant, PortsAnswer)>,
    single: BTreeMap<String, (Instant, PortsAnswer)>,
    /// Start of the current second, and the number of requests for single ports in this second.
    asked: (Instant, u32),
}

impl WebPorts {
    /// Creates the cache for the daemon of the run directory `run_dir`.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> WebPorts {
        let state = PortsState {
            daemon: ObservedDaemon::new(run_dir),
            list: None,
            single: BTreeMap::new(),
            asked: (Instant::now(), 0),
        };
        WebPorts { state: Mutex::new(state) }
    }

    /// Returns all ports as JSON, in the format of the daemon's `port.list`.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn list(&self) -> PortsAnswer {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = state.list.as_ref().filter(|(at, _)| at.elapsed() < LIST_FRESH) {
            return known.clone();
        }
        let told = told(state.daemon.ask(|client| client.ports(None)));
        // An error is not cached: the next request may succeed.
        state.list = told.is_ok().then(|| (Instant::now(), told.clone()));
        told
    }

    /// Returns one port with its rings as JSON, in the format of the daemon's `port.show`.
    ///
    /// # Errors
    /// The port does not exist, there are too many requests, or the daemon does not answer.
    pub fn one(&self, name: &str) -> PortsAnswer {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.single.retain(|_, (at, _)| at.elapsed() < PORT_FRESH);
        if let Some((_, known)) = state.single.get(name) {
            return known.clone();
        }
        if state.asked.0.elapsed() >= Duration::from_secs(1) {
            state.asked = (Instant::now(), 0);
        }
        if state.asked.1 >= MOST_A_SECOND {
            return Err((HttpStatus::TooMany, "too many requests for single ports; try again later".into()));
        }
        state.asked.1 += 1;
        let told = told(state.daemon.ask(|client: &mut Client| client.show(name)));
        state.single.insert(name.to_owned(), (Instant::now(), told.clone()));
        told
    }
}

fn told(answer: Result<impl Serialize, ClientError>) -> PortsAnswer {
    match answer {
        Ok(answer) => Ok(serde_json::to_string(&answer).unwrap_or_default().into()),
        Err(error) if error.failure() == ClientErrorKind::Refused => Err((HttpStatus::NotFound, error.what())),
        // The daemon client's error contains the socket's path, which the browser must not see.
        Err(_) => Err((HttpStatus::Unavailable, "the daemon does not answer".into())),
    }
}
