//! The *source* of all counters, which requests the counters from the daemon. The *result* of a request is the
//! *figures* (the counters, and texts into which they are encoded), or the error.
//!
//! Clients that request the figures while a request to the daemon is in progress, or shortly after, share the daemon's
//! answer. Therefore, the daemon serves at most ten requests per second.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use netvale_control::client::{Client, ClientError};
use netvale_control::types::AllStats;
use netvale_gateway::control::survey;

use crate::daemon::ObservedDaemon;
use crate::gateways::{self, ObservedGateway};
use crate::metrics::collect::Snapshot;
use crate::metrics::format::TextFormat;

/// Maximum age of figures with which a request is answered.
pub const FRESH: Duration = Duration::from_millis(100);

/// The daemon's counters, and texts into which they are encoded. The gateways' counters are requested when a text needs
/// them.
#[derive(Debug, Default)]
pub struct Figures {
    stats: Arc<AllStats>,
    /// Directories with control sockets of gateways.
    folders: Vec<PathBuf>,
    gateways: OnceLock<Arc<[ObservedGateway]>>,
    texts: [OnceLock<Arc<str>>; 2],
    json: OnceLock<Arc<str>>,
}

impl Figures {
    /// Returns the daemon's counters.
    #[must_use]
    pub fn stats(&self) -> &AllStats {
        &self.stats
    }

    /// Returns the counters of the daemon and of the gateways, as metrics in a text format. The text is encoded only
    /// once.
    pub fn text(&self, format: TextFormat) -> Arc<str> {
        let [open, own] = &self.texts;
        let known = if format == TextFormat::OpenMetrics { open } else { own };
        Arc::clone(known.get_or_init(|| format.encode(&self.snapshot()).into()))
    }

    fn snapshot(&self) -> Snapshot {
        let gateways = self.gateways.get_or_init(|| gateways::observe(&self.folders).into());
        Snapshot { stats: Arc::clone(&self.stats), gateways: Arc::clone(gateways) }
    }

    /// Returns the counters as JSON, in the daemon's format. The text is encoded only once.
    pub fn json(&self) -> Arc<str> {
        // Serialization of numbers, strings and lists of them cannot fail.
        let encode = || serde_json::to_string(&*self.stats).unwrap_or_default().into();
        Arc::clone(self.json.get_or_init(encode))
    }

    /// Creates the figures from a daemon's counters. [`Figures::text`] adds the counters of the gateways whose control
    /// sockets are in `folders`.
    #[must_use]
    pub fn new(stats: AllStats, folders: Vec<PathBuf>) -> Figures {
        Figures { stats: Arc::new(stats), folders, ..Figures::default() }
    }
}

/// The figures, or the error of the request to the daemon.
pub type FiguresResult = Result<Arc<Figures>, Arc<ClientError>>;

/// Requests figures from the daemon, and shares each answer among clients for up to [`FRESH`].
#[derive(Debug)]
pub struct FiguresSource {
    state: Mutex<SourceState>,
}

#[derive(Debug)]
struct SourceState {
    daemon: ObservedDaemon,
    folders: Vec<PathBuf>,
    last: Option<(Instant, FiguresResult)>,
}

impl FiguresSource {
    /// Creates the source for the daemon of the run directory `run_dir`. The daemon need not run yet.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> FiguresSource {
        let folders = survey::folders(&run_dir);
        FiguresSource { state: Mutex::new(SourceState { daemon: ObservedDaemon::new(run_dir), folders, last: None }) }
    }

    /// Returns the daemon's current figures.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub fn figures(&self) -> FiguresResult {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = state.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return known.clone();
        }
        let outcome = state.daemon.ask(Client::all_stats);
        let outcome = outcome.map(|stats| Arc::new(Figures::new(stats, state.folders.clone()))).map_err(Arc::new);
        let failed_before = state.last.as_ref().is_some_and(|(_, before)| before.is_err());
        match &outcome {
            Err(why) if !failed_before => tracing::warn!("no counters: {}", why.what()),
            Ok(_) if failed_before => tracing::info!("the daemon answers again"),
            _ => {}
        }
        state.last = Some((Instant::now(), outcome.clone()));
        outcome
    }
}
