//! The daemon's *ports*, and the details of one. Each answer is briefly cached, for all clients with the same question.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use netvale_control::client::{Client, ClientError, Failure};
use serde::Serialize;

use crate::daemon::Daemon;
use crate::http::answer::Status;

/// Maximum age of the list of ports: names and owners change seldom.
const LIST_FRESH: Duration = Duration::from_secs(2);
/// Maximum age of an answer about one port: its rings move.
const PORT_FRESH: Duration = Duration::from_millis(200);
/// Maximum questions about single ports in a second: for each the daemon reads all slots of the port.
const MOST_A_SECOND: u32 = 40;

/// An answer as JSON, or status and reason of a failure.
pub type Told = Result<Arc<str>, (Status, String)>;

/// The daemon's ports.
#[derive(Debug)]
pub struct Ports {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    daemon: Daemon,
    list: Option<(Instant, Told)>,
    single: BTreeMap<String, (Instant, Told)>,
    /// Start of the second in which questions about single ports are counted, and their number.
    asked: (Instant, u32),
}

impl Ports {
    /// The ports of the daemon of that run directory.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Ports {
        let state =
            State { daemon: Daemon::new(run_dir), list: None, single: BTreeMap::new(), asked: (Instant::now(), 0) };
        Ports { state: Mutex::new(state) }
    }

    /// All ports, as `port.list` returns them.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn list(&self) -> Told {
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
    pub fn one(&self, name: &str) -> Told {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.single.retain(|_, (at, _)| at.elapsed() < PORT_FRESH);
        if let Some((_, known)) = state.single.get(name) {
            return known.clone();
        }
        if state.asked.0.elapsed() >= Duration::from_secs(1) {
            state.asked = (Instant::now(), 0);
        }
        if state.asked.1 >= MOST_A_SECOND {
            return Err((Status::TooMany, "too many ports are looked at".into()));
        }
        state.asked.1 += 1;
        let told = told(state.daemon.ask(|client: &mut Client| client.show(name)));
        state.single.insert(name.to_owned(), (Instant::now(), told.clone()));
        told
    }
}

fn told(answer: Result<impl Serialize, ClientError>) -> Told {
    match answer {
        Ok(answer) => Ok(serde_json::to_string(&answer).unwrap_or_default().into()),
        Err(error) if error.failure() == Failure::Refused => Err((Status::NotFound, error.what())),
        // The socket's path is not for the browser.
        Err(_) => Err((Status::Unavailable, "the daemon does not answer".into())),
    }
}
