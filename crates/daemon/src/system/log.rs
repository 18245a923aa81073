//! The log's limit: lines a second about one user, or about one port's peers.
//!
//! The field `uid` of a line names its user. A line without it is about the port in its field `at` or `port`; a line
//! without these is about its place in the program. Lines about root and the daemon's own user have no limit, and
//! neither have the levels `debug` and `trace`, which were asked for.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::caller::is_trusted_user;

/// The subject of a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum About {
    User(u32),
    /// The port's name or path.
    Port(String),
    /// A hash of the line's place in the program.
    Place(u64),
}

/// Lines of the current second.
struct Lines {
    since: Instant,
    counts: HashMap<About, u32>,
}

static LINES: Mutex<Option<Lines>> = Mutex::new(None);
/// Maximum number of lines a second about one subject; unlimited until set.
static MOST: AtomicU32 = AtomicU32::new(u32::MAX);

/// Sets the limit, for [`Limit`].
pub(crate) fn set_limit(most: u32) {
    MOST.store(most, Ordering::Relaxed);
}

/// Drops lines over the limit, which the daemon sets at its start: a layer of the log's subscriber.
pub struct Limit;

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let most = MOST.load(Ordering::Relaxed);
        let is_asked_for = *event.metadata().level() > Level::INFO;
        most == u32::MAX || is_asked_for || about(event).is_none_or(|about| count(about) <= most)
    }
}

/// Counts a line. Returns the number of lines so far.
fn count(about: About) -> u32 {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = lines.get_or_insert_with(|| Lines { since: Instant::now(), counts: HashMap::new() });
    let count = lines.counts.entry(about).or_default();
    *count = count.saturating_add(1);
    *count
}

/// Starts the next second when due, and logs the number of dropped lines.
pub(super) fn report() {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_over = lines.as_ref().is_some_and(|lines| lines.since.elapsed() >= Duration::from_secs(1));
    let Some(past) = lines.take_if(|_| is_over) else { return };
    // Lines written from here on count, too.
    drop(lines);
    let most = MOST.load(Ordering::Relaxed);
    for (about, count) in past.counts.into_iter().filter(|(_, count)| *count > most) {
        let left_out = count - most;
        match about {
            About::User(uid) => tracing::warn!(uid, "{left_out} lines about this user were left out"),
            About::Port(port) => tracing::warn!(port, "{left_out} lines about this port were left out"),
            About::Place(_) => tracing::warn!("{left_out} lines of one kind were left out"),
        }
    }
}

/// The subject of an event; `None`: no limit applies.
fn about(event: &Event<'_>) -> Option<About> {
    let mut fields = Fields::default();
    event.record(&mut fields);
    match (fields.user, fields.port) {
        (Some(user), _) if is_trusted_user(user) => None,
        (Some(user), _) => Some(About::User(user)),
        (None, Some(port)) => Some(About::Port(port)),
        (None, None) => {
            let mut hasher = DefaultHasher::new();
            event.metadata().callsite().hash(&mut hasher);
            Some(About::Place(hasher.finish()))
        }
    }
}

/// The fields of an event that name its subject.
#[derive(Default)]
struct Fields {
    user: Option<u32>,
    port: Option<String>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "uid" {
            self.user = u32::try_from(value).ok();
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if matches!(field.name(), "at" | "port") {
            self.port = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "at" | "port") {
            self.port = Some(format!("{value:?}"));
        }
    }
}
