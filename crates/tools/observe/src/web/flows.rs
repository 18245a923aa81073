//! The open flows of gateways ([`WebFlows`]). The list is cached for a short time, for all clients.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use netvale_gateway::control::survey;

use crate::gateways;

/// Maximum age of the list.
const FRESH: Duration = Duration::from_secs(1);

/// A cache of the gateways' answers about their flows.
#[derive(Debug)]
pub struct WebFlows {
    folders: Vec<PathBuf>,
    list: Mutex<Option<(Instant, Arc<str>)>>,
}

impl WebFlows {
    /// Creates the cache for the gateways of the run directory `run_dir`, and of the user's own run directory.
    #[must_use]
    pub fn new(run_dir: &Path) -> WebFlows {
        WebFlows { folders: survey::folders(run_dir), list: Mutex::new(None) }
    }

    /// Returns the gateways as JSON, each with some of its open flows and the number of its other open flows. A gateway
    /// that has not answered in time has no list.
    pub fn list(&self) -> Arc<str> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = list.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Arc::clone(known);
        }
        // Serialization of texts, numbers and lists of them cannot fail.
        let text: Arc<str> = serde_json::to_string(&gateways::flows(&self.folders)).unwrap_or_default().into();
        *list = Some((Instant::now(), Arc::clone(&text)));
        text
    }
}
