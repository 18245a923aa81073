//! The daemon's *ports*, and the details of one. Each answer is briefly cached, for all clients with the same question.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use netvale_control::client::{Client, ClientError, ClientErrorKind};
use serde::Serialize;

use crate::daemon::ObservedDaemon;
use crate::http::answer::HttpStatus;

/// Maximum age of the list of ports: names and owners change seldom.
const LIST_FRESH: Duration = Duration::from_secs(2);
/// Maximum age of an answer about one port: its rings move.
const PORT_FRESH: Duration = Duration::from_millis(200);
/// Maximum questions about single ports in a second: for each the daemon reads all slots of the port.
const MOST_A_SECOND: u32 = 40;

/// An answer as JSON, or status and reason of a failure.
pub type PortsAnswer = Result<Arc<str>, (HttpStatus, String)>;

/// The daemon's ports.
#[derive(Debug)]
pub struct WebPorts {
    state: Mutex<PortsState>,
}

#[derive(Debug)]
struct PortsState {
    daemon: ObservedDaemon,
    list: Option<(Instant, PortsAnswer)>,
    single: BTreeMap<String, (Instant, PortsAnswer)>,
    /// Start of the second in which questions about single ports are counted, and their number.
    asked: (Instant, u32),
}

impl WebPorts {
    /// The ports of the daemon of that run directory.
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

    /// All ports, as `port.list` returns them.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn list(&self) -> PortsAnswer {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = state.list.as_ref().filter(|(at, _)| at.elapsed() < LIST_FRESH) {
            return known.clone();
        }
        let told = told(state.daemon.ask(|client| client.ports(None)));
        // A failed request may be retried sooner.
        state.list = told.is_ok().then(|| (Instant::now(), told.clone()));
        told
    }

    /// One port with its rings, as `port.show` returns it.
    ///
    /// # Errors
    /// No such port, too many questions, or no answer from the daemon.
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
            return Err((HttpStatus::TooMany, "too many ports are looked at".into()));
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
        // The socket's path is not for the browser.
        Err(_) => Err((HttpStatus::Unavailable, "the daemon does not answer".into())),
    }
}
