//! The *source* of metrics: a connection to the daemon's control socket. A request's *outcome* is the daemon's *figures*, or why there are none.
//!
//! Those who ask while another one's request is answered, or shortly after, get the same answer: however often somebody asks, the daemon is asked
//! ten times a second at most.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use netvale_control::client::{Client, ClientError};
use netvale_control::types::AllStats;

use crate::metrics::format::Format;

/// How old an answer may be.
pub const FRESH: Duration = Duration::from_millis(100);
/// Time limit of a request to the daemon.
const TIMEOUT: Duration = Duration::from_secs(5);

/// An answer of the daemon's, and the texts that were made of it.
#[derive(Debug, Default)]
pub struct Figures {
    stats: Arc<AllStats>,
    texts: [OnceLock<Arc<str>>; 2],
}

impl Figures {
    /// The answer.
    #[must_use]
    pub fn stats(&self) -> &AllStats {
        &self.stats
    }

    /// Its text, which is made once.
    pub fn text(&self, format: Format) -> Arc<str> {
        let [open, own] = &self.texts;
        let known = if format == Format::OpenMetrics { open } else { own };
        Arc::clone(known.get_or_init(|| format.encode(&self.stats).into()))
    }
}

impl From<AllStats> for Figures {
    fn from(stats: AllStats) -> Figures {
        Figures { stats: Arc::new(stats), ..Figures::default() }
    }
}

/// A daemon's answer, or why there is none.
pub type Outcome = Result<Arc<Figures>, Arc<ClientError>>;

/// Where figures come from.
#[derive(Debug)]
pub struct Source {
    run_dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    client: Option<Client>,
    last: Option<(Instant, Outcome)>,
}

impl Source {
    /// The daemon with that run directory, which need not run yet.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Source {
        Source { run_dir, state: Mutex::default() }
    }

    /// The daemon's figures of now.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses to.
    pub fn figures(&self) -> Outcome {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = state.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return known.clone();
        }
        let outcome = self.ask(&mut state).map(|stats| Arc::new(stats.into())).map_err(Arc::new);
        let failed_before = state.last.as_ref().is_some_and(|(_, before)| before.is_err());
        match &outcome {
            Err(why) if !failed_before => tracing::warn!("no figures: {}", why.what()),
            Ok(_) if failed_before => tracing::info!("the daemon answers again"),
            _ => {}
        }
        state.last = Some((Instant::now(), outcome.clone()));
        outcome
    }

    fn ask(&self, state: &mut State) -> Result<AllStats, ClientError> {
        // The daemon may have been replaced since, and the connection ended with it.
        if let Some(mut client) = state.client.take() {
            match client.all_stats() {
                Err(ClientError::Lost { .. }) => {}
                Ok(stats) => {
                    state.client = Some(client);
                    return Ok(stats);
                }
                Err(error) => return Err(error),
            }
        }
        let mut client = Client::connect(&self.run_dir)?;
        client.set_timeout(TIMEOUT);
        let answer = client.all_stats()?;
        state.client = Some(client);
        Ok(answer)
    }
}
