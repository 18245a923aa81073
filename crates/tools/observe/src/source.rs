//! The *source* of all counters: the daemon. A request's *outcome* is the daemon's *figures*, or the reason for their
//! absence.
//!
//! Clients that ask during another's request, or shortly after, get the same answer: however often they ask, the daemon
//! serves at most ten requests a second.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use netvale_control::client::{Client, ClientError};
use netvale_control::types::AllStats;

use crate::daemon::Daemon;
use crate::metrics::format::Format;

/// Maximum age of an answer.
pub const FRESH: Duration = Duration::from_millis(100);

/// An answer of the daemon, and the texts made from it.
#[derive(Debug, Default)]
pub struct Figures {
    stats: Arc<AllStats>,
    texts: [OnceLock<Arc<str>>; 2],
    json: OnceLock<Arc<str>>,
}

impl Figures {
    /// The answer.
    #[must_use]
    pub fn stats(&self) -> &AllStats {
        &self.stats
    }

    /// Its text in a format, made once.
    pub fn text(&self, format: Format) -> Arc<str> {
        let [open, own] = &self.texts;
        let known = if format == Format::OpenMetrics { open } else { own };
        Arc::clone(known.get_or_init(|| format.encode(&self.stats).into()))
    }

    /// The answer as JSON, as the daemon sent it; also made once.
    pub fn json(&self) -> Arc<str> {
        // Numbers, strings and lists of them always serialize.
        let encode = || serde_json::to_string(&*self.stats).unwrap_or_default().into();
        Arc::clone(self.json.get_or_init(encode))
    }
}

impl From<AllStats> for Figures {
    fn from(stats: AllStats) -> Figures {
        Figures { stats: Arc::new(stats), ..Figures::default() }
    }
}

/// The daemon's figures, or the error.
pub type Outcome = Result<Arc<Figures>, Arc<ClientError>>;

/// The source of figures.
#[derive(Debug)]
pub struct Source {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    daemon: Daemon,
    last: Option<(Instant, Outcome)>,
}

impl Source {
    /// The daemon of that run directory; it need not run yet.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Source {
        Source { state: Mutex::new(State { daemon: Daemon::new(run_dir), last: None }) }
    }

    /// The daemon's current figures.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses to.
    pub fn figures(&self) -> Outcome {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = state.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return known.clone();
        }
        let outcome = state.daemon.ask(Client::all_stats).map(|stats| Arc::new(stats.into())).map_err(Arc::new);
        let failed_before = state.last.as_ref().is_some_and(|(_, before)| before.is_err());
        match &outcome {
            Err(why) if !failed_before => tracing::warn!("no figures: {}", why.what()),
            Ok(_) if failed_before => tracing::info!("the daemon answers again"),
            _ => {}
        }
        state.last = Some((Instant::now(), outcome.clone()));
        outcome
    }
}
