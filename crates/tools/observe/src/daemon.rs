//! A client of the *daemon* ([`ObservedDaemon`]) that sends requests repeatedly: it connects again after another
//! process has replaced the daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use netvale_control::client::{Client, ClientError};

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A client of the daemon in a run directory. The daemon need not run yet.
#[derive(Debug)]
pub struct ObservedDaemon {
    run_dir: PathBuf,
    client: Option<Client>,
}

impl ObservedDaemon {
    /// Creates a client for the daemon of the run directory `run_dir`.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> ObservedDaemon {
        ObservedDaemon { run_dir, client: None }
    }

    /// Sends one request, as in `daemon.ask(Client::all_stats)`, and returns its result. If the connection has ended,
    /// for example because the daemon was replaced, connects again and repeats the request once.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn ask<T>(&mut self, question: impl Fn(&mut Client) -> Result<T, ClientError>) -> Result<T, ClientError> {
        if let Some(client) = &mut self.client {
            let answer = question(client);
            if matches!(answer, Ok(_) | Err(ClientError::Refused(_))) {
                return answer;
            }
            self.client = None;
            if !matches!(answer, Err(ClientError::Lost { .. })) {
                return answer;
            }
        }
        let mut client = connect(&self.run_dir)?;
        let answer = question(&mut client)?;
        self.client = Some(client);
        Ok(answer)
    }
}

/// Opens a control connection whose requests have a time limit.
///
/// # Errors
/// No daemon answers.
pub fn connect(run_dir: &Path) -> Result<Client, ClientError> {
    let mut client = Client::connect(run_dir)?;
    client.set_timeout(TIMEOUT);
    Ok(client)
}
